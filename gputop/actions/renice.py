"""Niceness of all threads of a process: Linux keeps it per thread (setpriority(2), "C library/kernel").

setpriority has no pidfd form. The process is checked by its pidfd before and after; a thread is checked after the
change, and if its id has passed to another process by then, the former value is restored.

    handles = Handles(frame, process, rights)
    run = RENICE.run(handles, Niceness(10, Scope.LOADERS), tell)
    run.result.text                                           # 9 processes have nice 10
    RENICE.run(handles, Niceness(1, relative=True), tell)        # one step, as a key does it
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from threading import Lock

from gputop import labels
from gputop.actions.action import ActionResult, ActionRun, start_run
from gputop.actions.handles import Handles, Scope
from gputop.actions.target import Declined, Rights, TargetOutcome, TargetProcess, attempt, untouchable
from gputop.frozen_dataclass import frozen_dataclass
from gputop.model import Process

LOWEST, HIGHEST = -20, 19
_ONE_AT_A_TIME = Lock()  # three key presses make three steps
_PASSES = 5  # threads created during the change inherit the old or the new value


@frozen_dataclass(frozen=True, slots=True)
class Niceness:
    """The chosen niceness: -20 is highest priority, 19 lowest; lowering it needs root."""

    nice: int
    scope: Scope = Scope.PROCESS
    insists: bool = False  # typed the PID despite cautions
    relative: bool = False  # `nice` is added to each current value, within the limits


@frozen_dataclass(frozen=True, kw_only=True)
class ReniceResult(ActionResult):
    """The result, with an outcome per process."""

    outcomes: tuple[TargetOutcome, ...] = ()


class Renice:
    """The action."""

    id = "renice"
    title = "Nice"

    def why_not(self, process: Process, rights: Rights) -> str | None:
        """Why its niceness cannot be changed: as for signals."""
        return untouchable(process, rights)

    def run(self, handles: Handles, options: Niceness, tell: Callable[[ActionRun], object]) -> ActionRun:
        """Set the niceness of every process in the scope; finished when `run.result` is set."""
        return start_run(
            f"nice {_options_text(options)} for {handles.process.pid}",
            handles,
            lambda _: _renice(handles, options),
            tell,
        )


RENICE = Renice()


def _renice(handles: Handles, options: Niceness) -> ReniceResult:
    if not options.relative and not LOWEST <= options.nice <= HIGHEST:
        return ReniceResult(text=f"nothing changed: nice values range from {LOWEST} to {HIGHEST}", good=False)
    if why := handles.why_not(options.scope):
        return ReniceResult(text=f"nothing changed: {why}", good=False)
    held = handles.held(options.scope)
    given: set[int] = set()
    with _ONE_AT_A_TIME:
        outcomes = tuple(
            attempt(one, options.insists, "no change", lambda target: given.add(_set(target, options))) for one in held
        )
    done = [outcome.pid for outcome in outcomes if outcome.kind == "done"]
    said = tuple(outcome.text for outcome in outcomes if outcome.text)
    missed = len(held) - len(done)
    nice = given.pop() if len(given) == 1 else _options_text(options)
    if not done:
        text = said[0] if missed == 1 else f"no change to any of {labels.amount(missed, 'process')}"
    elif len(held) == 1:
        text = f"{done[0]} has nice {nice}"
    else:
        text = f"{labels.amount(len(done), 'process')} {'has' if len(done) == 1 else 'have'} nice {nice}"
    if done and missed:
        text += f"; {labels.amount(missed, 'process')} skipped"
    return ReniceResult(text=text, good=not missed, lines=said, outcomes=outcomes)


def _options_text(options: Niceness) -> str:
    return f"{options.nice:+d}" if options.relative else str(options.nice)


def _set(target: TargetProcess, options: Niceness) -> int:
    """Set the niceness; return the value in effect."""
    _alive(target)
    nice = options.nice
    if options.relative:
        nice = min(max(LOWEST, nice + os.getpriority(os.PRIO_PROCESS, target.pid)), HIGHEST)
    for _ in range(_PASSES):
        if not sum(set_thread(target, int(name), nice) for name in os.listdir(f"/proc/{target.pid}/task")):
            break
    _alive(target)
    return nice


def set_thread(target: TargetProcess, thread: int, nice: int) -> bool:
    """Set the niceness of one thread, or restore it if the thread turns out to be of another process.

    Returns whether it changed. Raises OSError with the reason, Declined if only root may lower it.
    """
    try:
        before = os.getpriority(os.PRIO_PROCESS, thread)
        if target.ended():
            return False
        os.setpriority(os.PRIO_PROCESS, thread, nice)  # even if it is unchanged: the kernel checks permission
    except ProcessLookupError:
        return False
    except PermissionError as error:
        if error.errno == errno.EACCES:
            raise Declined("only root can lower its nice value") from error
        raise
    if not os.path.exists(f"/proc/{target.pid}/task/{thread}") or target.ended():
        _restore(thread, before)
    return before != nice


def _restore(thread: int, before: int) -> None:
    """Restore a thread: its id may have passed to another process."""
    try:
        os.setpriority(os.PRIO_PROCESS, thread, before)
    except OSError:
        pass


def _alive(target: TargetProcess) -> None:
    if target.ended():
        raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))
