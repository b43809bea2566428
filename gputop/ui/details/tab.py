"""What a tab is: its title, the parts of the details it needs, and its lines."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence

from textual.strip import Strip

from gputop.frozen_dataclass import frozen_dataclass
from gputop.model import Part
from gputop.source import OTHERS_ENVIRONMENT, UNRECORDED
from gputop.ui.details.process_view import ProcessView
from gputop.ui.theme import Ground
from gputop.ui.widgets.drawing import Line, Run, wrap

_WHY = {
    "stale": "not read yet",
    "lost": "it does not answer: a read of it hangs",
    "denied": "not shown",
    "unsupported": "the kernel does not tell",
    "absent": "there is none",
    "implausible": "its value cannot be",
}


@frozen_dataclass(frozen=True, slots=True)
class Entry:
    """A line of a tab. The cursor keeps its `key`; the highest `rank` is on top."""

    key: Hashable
    draw: Callable[[Ground, int], Strip]  # on a ground, with its long text scrolled by some cells
    rank: float | None = None


@frozen_dataclass(frozen=True, slots=True)
class Body:
    """What a tab shows now: lines that stay, and lines that scroll."""

    entries: Sequence[Entry]
    head: Sequence[Strip] = ()
    facts: str = ""  # in a few words, how much there is


@frozen_dataclass(frozen=True, slots=True)
class Tab:
    """A tab, declared once."""

    id: str
    title: str
    parts: tuple[Part, ...]
    body: Callable[[ProcessView, int], Body]  # at a width
    short: str = ""  # its title where there is little room
    cursor: bool = True  # a line of it can be selected
    loaders: bool = False  # what its loaders do stands below
    takes: str = ""  # what Enter does with that line


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
        return "not shown: it is another user's; the last line names the key that shows it"
    if missing.unlock == UNRECORDED.unlock:
        return f"not in this recording: {missing.unlock}"
    why = _WHY[missing.reason]
    if missing.reason == "denied" and view.others:
        why += ", as it is another user's"
    return f"{why}: {missing.unlock}" if missing.unlock else why
