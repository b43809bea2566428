"""Help: what is missing now; keys, columns, metrics and rules, all of them made of the declarations; and searched."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.strip import Strip

from gputop.columns import COLUMNS, TITLE
from gputop.diagnose.rules import RULES
from gputop.docs.tables import PLACES
from gputop.glossary import GROUPS as TERM_GROUPS
from gputop.glossary import TERMS
from gputop.model import Note, metrics
from gputop.ui.commands.command import EVERY, GROUPS, Command, Group, help_lines
from gputop.ui.dialogs.pager import Pager
from gputop.ui.panes import empty
from gputop.ui.screen import CommandScreen
from gputop.ui.theme import Look, Token
from gputop.ui.widgets import drawing
from gputop.ui.widgets.drawing import Line, Run, wrap

NAMES = 9  # cells for the names of keys
LONGEST = 40  # characters that are searched for
_TERM = 32  # cells for a term, at most

Unavailable = Callable[[Command], str]


def pages(
    look: Look,
    width: int,
    keys: Sequence[Command],
    notes: Sequence[Note] = (),
    *,
    explained: Sequence[tuple[str, str]] = (),
    unavailable: Unavailable = lambda _: "",
    asked: str = "",
    hosts: bool = False,
) -> dict[str, list[Line]]:
    """The lines of each page at a width, of all or of what says the words that are asked for.

    The page of the notes is there where there are any, and so is the first one, with the terms that are `explained`.
    `unavailable` says why a key does nothing now. `hosts`: with the keys of the overview of several hosts.
    """
    main = [key for key in keys if "main" in key.on]
    found = {"under the cursor": _definitions(explained, look, width, asked)} if explained else {}
    if hosts:
        found["hosts"] = _keys(look, width, [key for key in keys if "hosts" in key.on], unavailable, asked)
    found["keys"] = _keys(look, width, main, unavailable, asked)
    found["details"] = _keys(look, width, [key for key in keys if "details" in key.on], unavailable, asked)
    found["results"] = _keys(look, width, [key for key in keys if "result" in key.on], asked=asked)
    found |= {"columns": _columns(look, width, asked), "metrics": _metrics(look, width, asked)}
    found |= {"glossary": _glossary(look, width, asked), "rules": _rules(look, width, asked)}
    if notes:
        said = (note for note in notes if _says(asked, note.text, *note.help))
        found["notes"] = [Line(look).runs(row) for note in said for row in empty.said(note, width)]
    return found


def _says(asked: str, *texts: str) -> bool:
    """Whether each of the words is in one of the texts."""
    whole = " ".join(texts).casefold()
    return all(word in whole for word in asked.casefold().split())


def _keys(
    look: Look, width: int, keys: Sequence[Command], unavailable: Unavailable = lambda _: "", asked: str = ""
) -> list[Line]:
    half = width // 2 - 1
    columns = 2 if width >= 76 else 1
    room = half if columns == 2 else width - 2
    off = {key.id: why for key in keys if key.keys and (why := unavailable(key))}
    groups = [_group(group, keys, room, off, asked) for group in GROUPS]
    groups = [group for group in (*groups, _not_now(keys, room, off, asked)) if group]
    cuts = range(1, max(2, len(groups)))
    cut = min(cuts, key=lambda cut: _taller(groups, cut)) if columns == 2 else len(groups)
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


def _group(group: Group, keys: Sequence[Command], width: int, off: Iterable[str], asked: str) -> list[list[Run]]:
    """A group of keys under its name, dim what does nothing now; nothing where none says what is asked for."""
    dim = {name for key in keys if key.id in off for name in key.names}
    lines = []
    for names, text in help_lines(group, keys):
        if _says(asked, group, names, text):
            lines += _pair(names, text, width, "dim" if dim.issuperset(names.split()) else "busy")
    return [[Run(group, "bright", True)], *lines, []] if lines else []


def _not_now(keys: Sequence[Command], width: int, off: dict[str, str], asked: str) -> list[list[Run]]:
    """The keys that do nothing now, by the reason."""
    lines = []
    for why in dict.fromkeys(off.values()):
        names = " ".join(name for key in keys if off.get(key.id) == why for name in key.names)
        if _says(asked, names, why):
            lines += _pair(names, why, width, "dim")
    return [[Run("UNAVAILABLE NOW", "bright", True)], *lines, []] if lines else []


def _pair(names: str, text: str, width: int, token: Token) -> list[list[Run]]:
    """Names of keys, and what there is to say of them."""
    shown = f"  {names:{NAMES}} " if len(names) <= NAMES else f"  {names}  "
    parts = wrap(text, max(10, width - len(shown)))
    return [[Run(shown if place == 0 else " " * len(shown), token), Run(part)] for place, part in enumerate(parts)]


def _columns(look: Look, width: int, asked: str) -> list[Line]:
    said = (column for column in COLUMNS if _says(asked, column.title, column.id, column.definition))
    return [line for column in said for line in _said(column.title, TITLE, column.definition, look, width)]


def _metrics(look: Look, width: int, asked: str) -> list[Line]:
    lines = []
    for place, owner in PLACES.items():
        said = [metric for metric in metrics(owner) if _says(asked, place, metric.name, metric.help)]
        if said:
            lines.append(Line(look).add(f" {place}", "bright", bold=True))
            for metric in said:
                lines += _said(metric.name, 32, metric.help, look, width)
            lines.append(Line(look))
    return lines


def _glossary(look: Look, width: int, asked: str) -> list[Line]:
    lines = []
    for group, title in TERM_GROUPS.items():
        if said := _definitions([(term.name, term.text) for term in TERMS[group]], look, width, asked):
            lines += [Line(look).add(f" {title}", "bright", bold=True), *said, Line(look)]
    return lines


def _definitions(terms: Sequence[tuple[str, str]], look: Look, width: int, asked: str) -> list[Line]:
    cells = min(_TERM, 1 + max((drawing.cells([Run(name)]) for name, _ in terms), default=0))
    return [line for name, text in terms if _says(asked, name, text) for line in _said(name, cells, text, look, width)]


def _rules(look: Look, width: int, asked: str) -> list[Line]:
    said = (rule for rule in RULES.values() if _says(asked, rule.id, rule.question))
    return [line for rule in said for line in _said(rule.id, 23, rule.question, look, width)]


def _said(name: str, cells: int, text: str, look: Look, width: int) -> list[Line]:
    """A name and what it means, wrapped beside it."""
    lines = []
    for place, part in enumerate(wrap(text, max(20, min(100, width - cells - 4)))):
        line = Line(look).add(f"  {drawing.fit(name if place == 0 else '', cells)}", "busy")
        lines.append(line.add(part, "text"))
    return lines


class Help(Pager):
    """The help, a page at a time."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(key, action, show=False)
        for key, action in {"tab": "turn(1)", "shift+tab": "turn(-1)", "space": "page(1)"}.items()
    ]

    def __init__(self, screen: CommandScreen, explained: Sequence[tuple[str, str]] = ()) -> None:
        """It opens at the terms that are explained, else at the keys of a screen, with those unavailable there."""
        super().__init__(screen.look)
        self._screen = screen
        self._keys = screen.session.commands
        self._notes = empty.noted(screen.shown.frame) if screen.shown and screen.PLACE == "main" else ()
        self._explained = explained
        self._hosts = screen.PLACE == "hosts"
        self._page = 0 if explained or self._hosts else EVERY.index(screen.PLACE)
        self._asked: str | None = None  # what is searched for; None: nothing is

    @property
    def takes_text(self) -> bool:
        """While something is searched for."""
        return self._asked is not None

    def _unavailable(self, command: Command) -> str:
        """Why a key does nothing now; those that depend on an open tab are not listed by their reasons."""
        screen = self._screen
        here = screen.PLACE in command.on and command.group not in ("DETAILS", "RESULT")
        return command.unavailable(screen) if here else ""

    def on_key(self, event: events.Key) -> None:
        """What is searched for is typed; what moves goes on to do so, and Esc ends the search first."""
        if self._asked is None:
            if event.key in (*self._keys_of("help"), *self._keys_of("keys")):
                event.stop()
                self.dismiss()
                return
            if event.key not in self._keys_of("find"):
                return
            self._asked = ""
        elif event.key == "escape":
            self._asked = None
        elif event.key == "backspace":
            self._asked = self._asked[:-1]
        elif event.is_printable and event.character and (event.character != " " or self._asked):
            self._asked = (self._asked + event.character)[:LONGEST]
        else:
            return
        event.stop()
        event.prevent_default()
        self.first = 0
        self.redraw()

    def _keys_of(self, id: str) -> tuple[str, ...]:
        return next((each.keys for each in self._keys if each.id == id), ())

    def action_turn(self, step: int) -> None:
        """The next page."""
        self._page, self.first = self._page + step, 0
        self.redraw()

    def page(self, width: int) -> tuple[Sequence[Strip], Sequence[Line]]:
        """The names of all pages, and the one that is open."""
        asked = self._asked or ""
        found = pages(
            self.look, width, self._keys, self._notes,
            explained=self._explained, unavailable=self._unavailable, asked=asked,
            hosts=self._hosts,
        )  # fmt: skip
        names = list(found)
        name = names[self._page % len(names)]
        lines = found[name] or [Line(self.look).add(" nothing found on this page", "dim")]
        dot = f" {self.look.glyphs.dot} "
        return [drawing.rule(f"help: {name}", width, self.look, right=f"Tab: {dot.join(names)}")], lines

    def foot(self, width: int, below: int) -> Strip:
        """What is searched for, and what keys do here."""
        line = Line(self.look, "raised")
        if self._asked is not None:
            line.add(" search ", "dim").add(self._asked, "bright").add(" ", "bright", reverse=True).add(" ")
        for name, what in self._ways(below > 0 or self.first > 0):
            line.add(" ").add(name, "busy", bold=True).add(f" {what} ", "dim")
        return line.strip(width)

    def _ways(self, more: bool) -> Iterable[tuple[str, str]]:
        """Keys that do something here, and what."""
        searching = self._asked is not None
        named = {each.id: each.names[:1] for each in self._keys}
        yield "Esc", "ends the search" if searching else "closes"
        if not searching:
            yield from ((name, "search") for name in named.get("find", ()))
        yield "Tab", "next page"
        if more:
            yield "Down PgDn", "more"
        if not searching:
            yield from ((name, "quits gputop") for name in named.get("quit", ()))
