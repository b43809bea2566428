"""Stacks as tabs: the ranks of a job and which differ, main threads side by side, every thread with its calls."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from textual.strip import Strip

from gputop import labels
from gputop.actions.pyspy import Shown, StackResult
from gputop.profile.code import Call
from gputop.profile.dump import ThreadStack, grouped, look
from gputop.profile.ranks import RankPosition, Ranks
from gputop.profile.training_parts import PARTS, kind, shares
from gputop.severity import Severity
from gputop.ui.result.about import About
from gputop.ui.result.collectives import CollectivesTab
from gputop.ui.result.content import Content
from gputop.ui.result.verdicts import Saying, Says
from gputop.ui.theme import Look, Token
from gputop.ui.widgets import drawing
from gputop.ui.widgets.drawing import Line, Run
from gputop.ui.widgets.grid import Grid, GridColumn
from gputop.ui.widgets.tabs import Body, Entry, ListTab, Tab, text_entry

_NARROWEST = 36  # cells of a stack beside others
_ROWS = 60
_MOVES = {True: "yes", False: "no", None: ""}
_BESIDE_IN = 75  # cells of what stands beside where a rank is


def of_stacks(result: StackResult) -> Content:
    """What the stacks of some processes are shown as."""
    first = result.processes[0].process if result.processes else None
    several = len(result.processes) > 1
    many = labels.amount(len(result.processes), "process") if several else ""
    about = About(
        what=f"stacks{f' of {many}' if many else ''}",
        pid=None if several or first is None else first.pid,
        at_s=time.time(),
        processes=tuple(shown.process.identity for shown in result.processes),
        job=first.job if first else None,
        rank=None if several or first is None else first.rank,
    )
    tabs: list[Tab] = []
    if result.ranks is not None:
        tabs.append(RanksTab(result, result.ranks))
    if several:
        tabs.append(Beside(result.processes, result.ranks))
    if result.collectives is not None and result.collectives.comparison is not None:
        tabs.append(CollectivesTab(result.collectives.comparison))
    tabs.append(StacksTab(result))
    return Content(about=about, says=says_of(result), tabs=tabs, again=True)


def says_of(result: StackResult) -> Says:
    """The outlier, or where the main thread is."""
    names = {part.name for shown in result.processes for part, share in shares(look(shown.threads)).items() if share}
    words_of, sayings = list(result.lines), list(_of_collectives(result))
    if result.ranks is not None and result.ranks.text:
        severity = _severity(result.ranks)
        name = "collectives" if any(place.collective for place in result.ranks.places) else ""
        sayings.append(Saying(severity=severity, text=result.ranks.text, name=name))
    elif not any(shown.threads for shown in result.processes):
        sayings.append(Saying(severity="warn", text=result.text))
    for shown in result.processes if result.ranks is None else ():
        main = next((thread for thread in shown.threads if thread.main), None)
        if main is None or not main.calls:
            continue
        own = f"; of your own code it is in {main.own.text}" if main.own and main.own is not main.calls[0] else ""
        what = "waits" if kind(main.calls[0].text, {}) == "waits" else main.doing
        whose = f"{shown.process.pid}: the" if len(result.processes) > 1 else "The"
        words_of.append(f"{whose} main thread {what} in {main.calls[0].text}{own}.")
    return Says(
        sayings=tuple(sayings),
        words=tuple(words_of),
        names=frozenset(names),
        known=frozenset(part.name for part in PARTS),
        action="stack",
    )


def _of_collectives(result: StackResult) -> Iterator[Saying]:
    """What the ranks reported about their collectives."""
    known = result.collectives
    for place, text in enumerate(known.words if known else ()):
        found = known.comparison.discrepancies if known and known.comparison else ()
        severity: Severity = "crit" if place < len(found) else "info"
        yield Saying(severity=severity, text=text, name="collectives" if found else "")


def _severity(ranks: Ranks) -> Severity:
    """Whether it is a hang, and a rank that differs has caused it."""
    still = [place for place in ranks.places if place.inner and place.moves is False and not place.woke]
    stuck = len(still) == sum(place.inner is not None for place in ranks.places)
    return "crit" if stuck and ranks.odd else "warn" if stuck or ranks.odd else "info"


def _token(ranks: Ranks | None) -> Token:
    """The colour of a rank that differs: that of the headline."""
    return "crit" if ranks is not None and _severity(ranks) == "crit" else "warn"


class RanksTab(ListTab):
    """A line for each rank; one that differs has a sign, in the colour of the headline."""

    id, title = "ranks", "Ranks"

    def __init__(self, result: StackResult, ranks: Ranks) -> None:
        self._rows = list(zip(ranks.places, result.processes, strict=True))
        self._longest = max((len(_in(*row)) for row in self._rows), default=0)
        self._odd, self._token = len(ranks.odd), _token(ranks)

    def body(self, width: int, look: Look) -> Body:
        """The ranks in their order."""
        columns: tuple[GridColumn[tuple[RankPosition, Shown]], ...] = (
            GridColumn("", 1, lambda row: getattr(look.glyphs, self._token) if row[0].odd else "", right=False),
            GridColumn("RANK", 9, lambda row: row[0].label, right=False),
            GridColumn("PID", 8, lambda row: str(row[1].process.pid), keep=3),
            GridColumn("MOVING", 6, lambda row: _MOVES[row[0].moves], right=False, keep=4),
            GridColumn(
                "TOP FRAME", max(30, min(self._longest, width - _BESIDE_IN)), lambda row: _in(*row), right=False
            ),
            GridColumn(
                "YOUR CODE",
                30 if width > 110 else 20,
                lambda row: row[0].own.text if row[0].own else "",
                right=False,
                keep=1,
            ),
        )
        grid = Grid(columns, width, look)

        def line(row: tuple[RankPosition, Shown]) -> Entry:
            token: Token = self._token if row[0].odd else "text"
            return Entry(row[1].process.pid, lambda on, shift: grid.line(row, on, shift, token))

        facts = f"{self._odd} differs from the others" if self._odd else ""
        return Body([line(row) for row in self._rows], [grid.titles()], facts)


def _in(place: RankPosition, shown: Shown) -> str:
    call = place.collective or place.inner
    return call.text if call else shown.barred.text if shown.barred else "not read"


class Beside(Tab):
    """The main threads side by side, the innermost call on top."""

    id, title, short = "beside", "Side by side", "Beside"
    keys = frozenset({"left", "right"})
    terms = ("own code", "waits")

    def __init__(self, processes: Sequence[Shown], ranks: Ranks | None) -> None:
        self._columns = [_main(shown) for shown in processes]
        places = ranks.places if ranks else ()
        self._token = _token(ranks)
        self._odd = [place.odd for place in places] or [False] * len(processes)
        self._labels = [place.label for place in places] or [str(shown.process.pid) for shown in processes]
        self._first = self._top = 0
        self._shown = 1

    def facts(self, look: Look) -> Sequence[str]:  # noqa: ARG002
        """Which of them."""
        count, last = len(self._labels), self._first + self._shown
        return () if self._shown >= count else (f"{self._first + 1}-{last} of {count}, arrows move",)

    def natural(self, width: int, look: Look) -> int:  # noqa: ARG002
        """As long as the longest."""
        return 1 + max((len(calls) for calls in self._columns), default=0)

    def draw(self, width: int, height: int, look: Look) -> list[Strip]:
        """As many beside each other as have room."""
        count = len(self._labels)
        self._shown = max(1, min(count, width // _NARROWEST))
        self._first = min(self._first, count - self._shown)
        cells = width // self._shown
        places = range(self._first, self._first + self._shown)
        most = max((len(self._columns[place]) for place in places), default=0)
        self._top = min(self._top, max(0, most - height + 1))
        head = Line(look)
        for number, place in enumerate(places):
            sign, token = (f"{getattr(look.glyphs, self._token)} ", self._token) if self._odd[place] else ("", "bright")
            head.to(1 + number * cells).add(f"{sign}{self._labels[place]}", token, bold=True)
        lines = [head.strip(width)]
        for row in range(self._top, min(most, self._top + height - 1)):
            line = Line(look)
            for number, place in enumerate(places):
                calls = self._columns[place]
                if row < len(calls):
                    line.to(1 + number * cells).runs(call_runs(calls[row], cells - 2, look))
            lines.append(line.strip(width))
        return lines[: max(0, height)]

    def move(self, lines: int) -> None:
        """Further out, or back."""
        self._top = max(0, self._top + lines)

    def press(self, what: str, amount: int = 0) -> str:
        """Other ranks."""
        if what == "sideways":
            self._first = max(0, self._first + amount)
        return ""


def _main(shown: Shown) -> tuple[Call, ...]:
    return next((thread.calls for thread in shown.threads if thread.main), ())


def call_runs(call: Call, width: int, look: Look) -> list[Run]:
    """A call: `>` before the user's own, `=` before what waits."""
    waits = kind(call.text, {}) == "waits"
    sign, token = ("=", "warn") if waits else (">", "bright") if call.own else (" ", "dim")
    return [Run(f"{sign} {drawing.cut(call.text, max(1, width - 2), look.glyphs.more)}", token)]  # type: ignore[arg-type]


class StacksTab(ListTab):
    """Every thread of every process with its calls, those in the same place once."""

    id, title = "stacks", "Stacks"
    cursor = False
    terms = ("own code", "waits", "GIL")

    def __init__(self, result: StackResult) -> None:
        self._processes = result.processes

    def body(self, width: int, look: Look) -> Body:
        """Process by process."""
        entries = []
        for shown in self._processes:
            for place, runs in enumerate(_process(shown, width, look, len(self._processes) > 1)):
                entries.append(text_entry((shown.process.pid, place), runs, width, look))
        return Body(entries, [], "> your own code   = waits")


def _process(shown: Shown, width: int, look: Look, named: bool) -> Iterator[list[Run]]:
    if named:
        yield [Run(f"{shown.process.pid}  {labels.command(shown.process)}", "bright", True)]
    if shown.barred is not None:
        yield [Run(shown.barred.line, "warn")]
    for group in grouped(shown.threads):
        yield from _group(group, width, look)
    yield []


def _group(group: Sequence[ThreadStack], width: int, look: Look) -> Iterator[list[Run]]:
    first = group[0]
    name = first.name or "unnamed"
    title = f"{name} {first.tid}" if len(group) == 1 and first.tid else name
    if len(group) > 1:
        title = f"{len(group)} threads in the same place: {', '.join(one.name or 'unnamed' for one in group[:6])}"
    doing = first.doing if first.calls else "no Python frames"
    yield [
        Run(drawing.cut(title, max(20, width - 30), look.glyphs.more), "bright", first.main),
        Run(f"  {doing}", "dim"),
    ]
    for call in first.calls[:_ROWS]:
        yield [Run("  "), *call_runs(call, width - 4, look)]
    if left := max(0, len(first.calls) - _ROWS) + first.cut:
        yield [Run(f"    {left} more calls further out", "dim")]
