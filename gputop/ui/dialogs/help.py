"""Help: what is missing now; keys, columns and metrics, all of them made of the declarations."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import ClassVar, Literal

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.strip import Strip

from gputop.model import Disk, Gpu, GpuShare, Host, Mount, Network, Note, Process, metrics
from gputop.ui import draw
from gputop.ui.dialogs.modal import Modal
from gputop.ui.draw import Line, Run, wrap
from gputop.ui.keys import bindings
from gputop.ui.keys.declared import GROUPS, KEYS, Group, Key, key, told
from gputop.ui.look import Look
from gputop.ui.panes import empty
from gputop.ui.panes.lines import Lines
from gputop.ui.table.columns import COLUMNS

NAMES = 9  # cells for the names of keys


def pages(look: Look, width: int, notes: Sequence[Note] = (), keys: Sequence[Key] = KEYS) -> dict[str, list[Line]]:
    """The lines of each page at a width; that of the notes only where there are any."""
    found = {"keys": _keys(look, width, [key for key in keys if "main" in key.on])}
    found["details"] = _keys(look, width, [key for key in keys if "details" in key.on])
    found |= {"columns": _columns(look, width), "metrics": _metrics(look, width)}
    if notes:
        found["notes"] = [Line(look).runs(row) for note in notes for row in empty.said(note, width)]
    return found


def _keys(look: Look, width: int, keys: Sequence[Key]) -> list[Line]:
    half = width // 2 - 1
    columns = 2 if width >= 76 else 1
    room = half if columns == 2 else width - 2
    groups = [_group(group, keys, room) for group in GROUPS if any(key.group == group for key in keys)]
    cut = min(range(len(groups)), key=lambda cut: _taller(groups, cut)) if columns == 2 else len(groups)
    left, right = [*chain(*groups[:cut])], [*chain(*groups[cut:])]
    for column in (left, right):
        while column and not column[-1]:
            column.pop()
    lines = []
    for place in range(max(len(left), len(right))):
        line = Line(look).add(" ")
        if place < len(left):
            line.runs(left[place])
        if place < len(right):
            line.to(half + 2).runs(right[place])
        lines.append(line)
    return lines


def _taller(groups: Sequence[Sequence[object]], cut: int) -> int:
    """Lines of the taller of two columns."""
    return max(sum(map(len, groups[:cut])), sum(map(len, groups[cut:])))


def _group(group: Group, keys: Sequence[Key], width: int) -> list[list[Run]]:
    """A group of keys under its name."""
    lines = [[Run(group, "bright", True)]]
    for names, text in told(group, keys):
        shown = f"  {names:{NAMES}} " if len(names) <= NAMES else f"  {names}  "
        for place, part in enumerate(wrap(text, max(10, width - len(shown)))):
            lines.append([Run(shown if place == 0 else " " * len(shown), "busy"), Run(part)])
    return [*lines, []]


def _columns(look: Look, width: int) -> list[Line]:
    return [line for column in COLUMNS for line in _said(column.title, 10, column.help, look, width)]


def _metrics(look: Look, width: int) -> list[Line]:
    lines = []
    for owner in (Gpu, Process, GpuShare, Host, Disk, Mount, Network):
        title = "share of a GPU" if owner is GpuShare else owner.__name__
        lines.append(Line(look).add(f" {title.upper()}", "bright", bold=True))
        for metric in metrics(owner):
            lines += _said(metric.name, 32, metric.help, look, width)
        lines.append(Line(look))
    return lines


def _said(name: str, cells: int, text: str, look: Look, width: int) -> list[Line]:
    """A name and what it means, wrapped beside it."""
    lines = []
    for place, part in enumerate(wrap(text, max(20, min(100, width - cells - 4)))):
        line = Line(look).add(f"  {draw.fit(name if place == 0 else '', cells)}", "busy")
        lines.append(line.add(part, "text"))
    return lines


class Help(Modal[None], inherit_bindings=False):
    """The help, a page at a time."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss", show=False),
        Binding(",".join(key("help").keys), "dismiss", show=False, id="help"),
        Binding("tab", "turn(1)", show=False),
        Binding("shift+tab", "turn(-1)", show=False),
        Binding("up", "scroll_by(-1)", show=False),
        Binding("down", "scroll_by(1)", show=False),
        Binding("pageup", "scroll_by(-20)", show=False),
        Binding("pagedown,space", "scroll_by(20)", show=False),
        Binding("home", "scroll_by(-100000)", show=False),
        Binding("end", "scroll_by(100000)", show=False),
        *bindings.everywhere(),
    ]

    def __init__(
        self, look: Look, notes: Sequence[Note] = (), keys: Sequence[Key] = KEYS, *, page: Literal[0, 1] = 0
    ) -> None:
        super().__init__()
        self.look = look
        self._keys = keys
        self._notes = notes
        self._page: int = page
        self._first = 0

    def compose(self) -> ComposeResult:
        """One pane."""
        yield Lines()

    def on_resize(self) -> None:
        """Wrap anew."""
        self.redraw()

    def action_turn(self, step: int) -> None:
        """The next page."""
        self._page, self._first = self._page + step, 0
        self.redraw()

    def action_scroll_by(self, lines: int) -> None:
        """Up or down."""
        self._first += lines
        self.redraw()

    def redraw(self) -> None:
        """Draw the page."""
        width, height = self.app.size
        found = pages(self.look, width, self._notes, self._keys)
        names = list(found)
        name = names[self._page % len(names)]
        lines = found[name]
        room = max(0, height - 2)
        self._first = min(max(0, self._first), max(0, len(lines) - room))
        body = [line.strip(width) for line in lines[self._first : self._first + room]]
        body += [draw.blank(width, self.look)] * (room - len(body))
        dot = f" {self.look.glyphs.dot} "
        title = draw.rule(f"help: {name}", width, self.look, right=f"Tab: {dot.join(names)}")
        self.query_one(Lines).show([title, *body, self._foot(width, len(lines) > room)])

    def _foot(self, width: int, more: bool) -> Strip:
        line = Line(self.look, "raised").add(" Esc", "busy", bold=True).add(" closes  ", "dim")
        line.add("Tab", "busy", bold=True).add(" turns the page  ", "dim")
        if more:
            line.add("Down PgDn", "busy", bold=True).add(" more  ", "dim")
        for name in [name for each in self._keys if each.id == "quit" for name in each.names[:1]]:
            line.add(name, "busy", bold=True).add(" quits gputop", "dim")
        return line.strip(width)
