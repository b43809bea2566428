"""What a process does or waits for, in a word or two: the first thing to read of it."""

from __future__ import annotations

from gputop.figures import io_percent, mean
from gputop.model import Process
from gputop.ui.details.opened import Opened
from gputop.ui.gpus.state import HELD_S, State

STATES = {
    "R": "running",
    "S": "sleeping",
    "D": "blocked",
    "T": "stopped",
    "t": "held by a debugger",
    "Z": "zombie",
    "I": "idle",
}
STORAGE_PERCENT = 20.0  # of the time: more than this is worth the first line
CPU_WAIT_PERCENT = 10.0
THROTTLED_PERCENT = 5.0


def doing(opened: Opened) -> State:
    """Ended, stopped, waiting for storage, input or a CPU, computing, sleeping: the first that holds."""
    process = opened.process
    if opened.gone:
        return State(opened.gone, "", "bright")
    if process.unseen:
        return State({"foreign": "in another namespace", "hidden": "hidden"}.get(process.unseen, "exited"), "", "dim")
    if process.state in ("T", "t"):
        return State(STATES[process.state], "", "warn", "warn")
    if process.state == "Z":
        return State("zombie: ended, and its parent has not asked how", "", "warn", "warn")
    return _waiting(opened) or _working(opened)


def _waiting(opened: Opened) -> State | None:
    process = opened.process
    stored = _held(opened, process, "io_wait_percent", io_percent(process))
    if stored >= STORAGE_PERCENT:
        return State(f"blocked on storage {stored:.0f}%", "", "warn", "warn")
    loading = [_held(opened, one, "io_wait_percent", io_percent(one)) for one in opened.loaders]
    if (blocked := mean(loading) or 0.0) >= STORAGE_PERCENT:
        return State(f"its loaders are blocked on storage {blocked:.0f}%", "", "warn", "warn")
    throttled = _held(opened, process, "throttled_percent", process.throttled_percent)
    if throttled >= THROTTLED_PERCENT:
        return State(f"out of CPU quota {throttled:.0f}%", "", "warn", "warn")
    waited = _held(opened, process, "main_run_wait_percent", process.main_run_wait_percent)
    if waited >= CPU_WAIT_PERCENT:
        return State(f"waits for a CPU {waited:.0f}%", "", "warn", "warn")
    return None


def _held(opened: Opened, process: Process, metric: str, now: float | None) -> float:
    """The mean of the last seconds: one look says little."""
    known = mean(opened.past.values(process.identity, metric, HELD_S))
    return (now or 0.0) if known is None else known


def _working(opened: Opened) -> State:
    process = opened.process
    busy = mean(share.busy_percent for share in process.gpus)
    if busy is not None and busy >= 1:
        return State(f"keeps GPU {opened.indexes} busy {busy:.0f}%", "", "busy")
    if process.state == "R" or (process.cpu_percent or 0) >= 50:
        return State("running", "", "text")
    if process.state == "D":
        return State(f"blocked in {process.waiting_in}" if process.waiting_in else "blocked", "", "text")
    if process.state is None:
        return State("", "", "dim")
    word = STATES.get(process.state, process.state)
    return State(f"{word} in {process.waiting_in}" if process.waiting_in else word, "", "dim")
