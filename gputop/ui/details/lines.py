"""Lines of text in the tabs of a process, and why a part of its details is not there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from textual.strip import Strip

from gputop.model import Part
from gputop.source import OTHERS_ENVIRONMENT, UNRECORDED
from gputop.ui.details.process_view import ProcessView
from gputop.ui.theme import Ground
from gputop.ui.widgets.drawing import Line, Run, wrap
from gputop.ui.widgets.tabs import Body, Entry

_WHY = {
    "stale": "not read yet",
    "lost": "no answer: reading it hangs",
    "denied": "not shown",
    "unsupported": "not reported by the kernel",
    "absent": "none here",
    "implausible": "implausible value",
}


def plain(view: ProcessView, width: int, lines: Iterable[Sequence[Run]], first: int = 0) -> list[Entry]:
    """Lines of text, which nothing sorts."""

    def drawn(runs: Sequence[Run]) -> Callable[[Ground, int], Strip]:
        return lambda on, _: Line(view.look, on).add("  ").runs(runs).strip(width)

    return [Entry(("line", place), drawn(runs)) for place, runs in enumerate(lines, first)]


def without(view: ProcessView, width: int, part: Part, facts: str = "", known: Sequence[str] = ()) -> Body:
    """A tab whose part of the details is not there: why, and below it what the frame has of it."""
    room = max(20, width - 4)
    lines = [[Run(line, "dim")] for line in wrap(said(view, part), room)]
    lines += [[]] if known else []
    lines += [[Run(line)] for text in known for line in wrap(text, room)]
    return Body(plain(view, width, lines), facts=facts)


def said(view: ProcessView, part: Part) -> str:
    """Why a part is missing, and what would unlock it."""
    missing = view.why(part)
    if missing == OTHERS_ENVIRONMENT:
        return "not shown: another user's process; the last line names the key that shows it"
    if missing.unlock == UNRECORDED.unlock:
        return f"not in this recording: {missing.unlock}"
    why = _WHY[missing.reason]
    if missing.reason == "denied" and view.others:
        why += ": another user's process"
    return f"{why}: {missing.unlock}" if missing.unlock else why
