"""Steps that look inside a process, by gputop's own commands: py-spy is mostly not on PATH where gputop is."""

from __future__ import annotations

from typing import Literal

from gputop.diagnose.finding import Step
from gputop.diagnose.view import View
from gputop.model import Process
from gputop.program import as_root


def stack(view: View, process: Process, text: str) -> Step:
    """See where its threads are at this moment."""
    return _inside(view, process, text, "stack")


def stacks_of_job(view: View, process: Process, text: str) -> Step:
    """See where all ranks of its job are, side by side."""
    return _inside(view, process, text, "stack", "--job")


def profile(view: View, process: Process, text: str) -> Step:
    """See where its time goes, over some seconds."""
    return _inside(view, process, text, "profile")


def closed(view: View, process: Process) -> bool:
    """Whether only root may look inside: it is of another user than who looks, or the kernel denied us a part of it.

    Who else may is up to the kernel (ptrace_scope), which no frame tells: these commands say so, and what allows it.
    """
    viewer = view.frame.viewer_uid
    if viewer == 0:
        return False
    foreign = None not in (viewer, process.uid) and process.uid != viewer
    return foreign or any(missing.reason == "denied" for missing in process.missing)


def _inside(view: View, process: Process, text: str, how: Literal["stack", "profile"], *flags: str) -> Step:
    words, root = (how, *flags, str(process.pid)), closed(view, process)
    command = as_root(*words) if root else f"gputop {' '.join(words)}"
    return Step(text=text, command=command, action=how, needs_root=root)
