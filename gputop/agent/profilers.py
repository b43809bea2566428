"""The profilers of the program itself, which always win: two at once in one process crash it.

Nothing of torch is imported here, only taken from `sys.modules` once it is whole: importing it from another thread has
ended trainings with a deadlock error.
"""

from __future__ import annotations

import json
import sys
import weakref
from typing import Any, Callable

_NEEDED = (
    ("torch.autograd.profiler", ("_is_profiler_enabled", "record_function")),
    ("torch.optim.optimizer", ("register_optimizer_step_post_hook", "_global_optimizer_post_hooks")),
)
_METHODS = ("_prepare_trace", "_start_trace", "__exit__")

first: Callable[[], object] = bool  # called before a profiler of the program is prepared
used = False  # one of ours was started in this process, or in one that it was forked from
_originals: dict[str, Any] = {}
_late = False  # torch was there before us
_prepared: weakref.WeakSet[Any] = weakref.WeakSet()  # the program's, from `_prepare_trace` to `__exit__`


def whole(name: str) -> Any:
    """A module that has been imported to its end; None until then."""
    module = sys.modules.get(name)
    return None if module is None or _begun(module) else module


def importing() -> list[str]:
    """The modules of torch that are being imported now."""
    found = [name for name in list(sys.modules) if name == "torch" or name.startswith("torch.")]
    return [name for name in found if _begun(sys.modules.get(name))]


def lacking() -> str | None:
    """The first name that is needed and that this torch has not; None if it has all."""
    for name, attributes in _NEEDED:
        module = whole(name)
        for attribute in attributes:
            if module is None or not hasattr(module, attribute):
                return f"{name}.{attribute}"
    return next((f"torch.autograd.profiler.profile.{name}" for name in _METHODS if name not in _originals), None)


def active() -> bool:
    """Whether a profiler of the program runs, or is prepared to."""
    module = whole("torch.autograd.profiler")
    return bool(_prepared) or bool(module is not None and module._is_profiler_enabled)


def may_be_active() -> bool:
    """The same, where the agent came after torch and missed its first calls; takes longer."""
    return active() or (_late and _earlier())


def guard() -> bool:
    """Get a call whenever the program starts a profiler; False as long as torch's is not imported."""
    global _late
    module = whole("torch.autograd.profiler")
    if module is None:
        return False
    kind: Any = getattr(module, "profile", None)
    if not _originals and all(hasattr(kind, name) for name in _METHODS):
        _late = whole("torch") is not None
        _originals.update((name, getattr(kind, name)) for name in _METHODS)
        kind._prepare_trace = _prepare_trace
        kind.__exit__ = _exit
    return True


def prepare(profiler: Any) -> None:
    """Prepare one of ours: not seen as one of the program's."""
    global used
    used = True
    _originals["_prepare_trace"](profiler)


def start(profiler: Any) -> None:
    """Start one that was prepared."""
    _originals["_start_trace"](profiler)


def describe(name: str, value: Any) -> None:
    """Put something into the head of the trace that is being recorded, as torch.profiler.profile does."""
    add = getattr(whole("torch.autograd"), "_add_metadata_json", None)
    if add is not None and value is not None:
        add(name, json.dumps(value))


def end(profiler: Any) -> None:
    """Stop one of ours."""
    _originals["__exit__"](profiler, None, None, None)


def _earlier() -> bool:
    """Whether one that was prepared before we came has not ended yet: looked for among all live objects, which holds
    the interpreter for some 100 ms."""
    import gc

    kind = getattr(whole("torch.autograd.profiler"), "profile", None)
    # type() only: isinstance runs code of the program
    alive = [vars(each) for each in gc.get_objects() if type(each) is kind]
    return any(each.get("entered") and each.get("kineto_results") is None for each in alive)


def _prepare_trace(self: Any, *args: Any, **kwargs: Any) -> Any:
    try:
        _prepared.add(self)
        first()
    except Exception:  # the program must not see it
        pass
    return _originals["_prepare_trace"](self, *args, **kwargs)


def _exit(self: Any, *args: Any, **kwargs: Any) -> Any:
    _prepared.discard(self)
    return _originals["__exit__"](self, *args, **kwargs)


def _begun(module: Any) -> bool:
    """Whether its import has begun and not ended: `_initializing` of its spec."""
    try:
        return bool(vars(module)["__spec__"]._initializing)
    except (TypeError, KeyError, AttributeError):
        return False
