"""What a process does or waits for, in a word or two: the first thing to read of it."""

from __future__ import annotations

from dataclasses import replace

from gputop import finding_text
from gputop.optional_sums import mean
from gputop.ui.advice.states import about, word
from gputop.ui.details.opened import Opened
from gputop.ui.gpus.state import State

BUSY = 50  # percent of one core: more is to be said of it than that its main thread sleeps
STATES = {
    "R": "running",
    "S": "sleeping",
    "D": "blocked",
    "T": "stopped",
    "t": "held by a debugger",
    "Z": "zombie",
    "I": "idle",
}


def doing(opened: Opened) -> State:
    """Ended, stopped, what the rules say, computing, sleeping: the first that holds."""
    process = opened.process
    if opened.gone:
        return State(opened.gone, "", "bright")
    if process.unseen:
        return State({"foreign": "in another namespace", "hidden": "hidden"}.get(process.unseen, "exited"), "", "dim")
    if process.state in ("T", "t"):
        return State(STATES[process.state], "", "warn", "warn")
    if process.state == "Z":
        return State("zombie: ended, and its parent has not asked how", "", "warn", "warn")
    return _judged(opened) or _working(opened)


def _judged(opened: Opened) -> State | None:
    """What the rules say of it, of its job or of its GPUs, where somebody should do something about it."""
    found = about(opened.process, opened.findings)
    if found is None:
        return None
    state = word(found)
    return replace(
        state, word=f"{state.word}: {finding_text.headline(found)}" if state.word else finding_text.headline(found)
    )


def _working(opened: Opened) -> State:
    process = opened.process
    busy = mean(share.busy_percent for share in process.gpus)
    if busy is not None and busy >= 1:
        return State(f"keeps GPU {opened.indexes} busy {busy:.0f}%", "", "busy")
    if process.state == "R":
        return State("running", "", "text")
    if process.state == "D":
        return State(f"blocked in {process.waiting_in}" if process.waiting_in else "blocked", "", "text")
    if process.cpu_percent is not None and process.cpu_percent >= BUSY:  # its main thread sleeps, others work
        return State(f"uses {process.cpu_percent:.0f}% of one core", "", "text")
    if process.state is None:
        return State("", "", "dim")
    word = STATES.get(process.state, process.state)
    return State(f"{word} in {process.waiting_in}" if process.waiting_in else word, "", "dim")
