"""Hooks around optimizer steps, added and removed from another thread without harm to the threads that run them.

torch iterates over an OrderedDict of hooks at each step. Changing it during that raises in the program's thread, unless
nothing but the running hook was left: so with others in it, ours wait for a moment when no thread is inside.
"""

from __future__ import annotations

import sys
import time
from typing import Any, Callable

from .profilers import whole

_MODULE = "torch.optim.optimizer"
_HOOKS = ("_global_optimizer_pre_hooks", "_global_optimizer_post_hooks")
_TRIES = 2000
_DEEPEST = 200


def possible() -> bool:
    """Whether torch's optimizers are there and take hooks."""
    return hasattr(whole(_MODULE), "register_optimizer_step_post_hook")


class OnStep:
    """A hook that is called at each optimizer step, on the thread that makes it."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self.live = True  # a hook that is no longer has nothing to do

    @classmethod
    def add(cls, call: Callable[..., None], *, before: bool = False) -> OnStep:
        """Put one in, after each step or before it."""

        def hook(*step: Any) -> None:
            call(*step)

        hook._torchdynamo_disable = True  # type: ignore[attr-defined]  # the compiler must not look into it
        _wait_until_unused()
        register = f"register_optimizer_step_{'pre' if before else 'post'}_hook"
        return cls(getattr(whole(_MODULE), register)(hook))

    def remove(self) -> None:
        """Take it out."""
        self.live = False
        _wait_until_unused()
        self._handle.remove()


def _wait_until_unused() -> None:
    for _ in range(_TRIES):
        # with one at most: a thread inside it has no next one to fetch
        if all(len(getattr(whole(_MODULE), name, ())) < 2 for name in _HOOKS):
            return
        if not any(map(_inside, sys._current_frames().values())):
            return
        time.sleep(0.001)


def _inside(frame: Any) -> bool:
    """Whether a thread is in the function of torch that calls hooks. After a wait we hold the GIL for a while: what is
    seen is still so when the next line is done."""
    for _ in range(_DEEPEST):
        if frame is None:
            return False
        code = frame.f_code
        if code.co_name == "wrapper" and code.co_filename.endswith("optimizer.py"):
            return True
        frame = frame.f_back
    return False
