"""The palette: everything that can be done, by name, with its key, or the reason why not now."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial

from textual import events

from gputop.frozen_dataclass import frozen_dataclass
from gputop.monitor import Update
from gputop.ui.dialogs.choices import MOVES, ListDialog
from gputop.ui.dialogs.text_line import TextLine
from gputop.ui.screen import CommandScreen
from gputop.ui.theme import Look
from gputop.ui.widgets import drawing
from gputop.ui.widgets.drawing import Line

NAME = 19  # cells, a blank at their end
LONGEST = 40


@frozen_dataclass(frozen=True, slots=True)
class PaletteEntry:
    """One thing that can be done."""

    name: str
    help: str
    run: Callable[[], Awaitable[None] | None]
    keys: str = ""
    unavailable: str = ""  # empty: it can be done now
    also: str = ""  # other words for it


def of_commands(screen: CommandScreen) -> Iterator[PaletteEntry]:
    """What the keys of a screen do, those that only move last; what depends on the open tab only where it can be."""
    for command in sorted(screen.commands, key=lambda command: command.group == "MOVE"):
        why = command.unavailable(screen)
        if command.id != "palette" and not (why and command.group in ("DETAILS", "RESULT")):
            yield PaletteEntry(
                command.id, command.help, partial(screen.press, command), " ".join(command.names), why, command.also
            )


async def do(entry: PaletteEntry | None) -> None:
    """Do what was chosen, if anything was."""
    done = entry.run() if entry else None
    if done is not None:
        await done


def found(entries: Iterable[PaletteEntry], typed: str) -> list[PaletteEntry]:
    """The entries that are meant: words of the name first, then of what is said of it, then letters of the name."""
    words = typed.lower().split()
    ranked = [(rank, entry) for entry in entries if (rank := _rank(entry, words)) is not None]
    return [entry for _, entry in sorted(ranked, key=lambda pair: pair[0])]


def _rank(entry: PaletteEntry, words: Sequence[str]) -> int | None:
    name, text = entry.name.lower(), f"{entry.name} {entry.help} {entry.keys}".lower()
    if words == [name]:
        return 0
    if all(word in name for word in words):
        return 1 if not words or name.startswith(words[0]) else 2
    if words and all(any(each.startswith(word) for each in entry.also.split()) for word in words):
        return 3
    if all(word in text for word in words):
        return 4
    letters = iter(name)
    return 5 if all(letter in letters for letter in "".join(words)) else None


class PaletteDialog(ListDialog[PaletteEntry, PaletteEntry]):
    """A list that narrows while one types."""

    TITLE_TEXT = "do"
    FOOT = "type to filter   Enter runs   Esc closes"
    WIDTH = 78
    ROWS = 14

    def __init__(self, look: Look, entries: Callable[[], Iterable[PaletteEntry]]) -> None:
        """`entries` are asked for again with each update: what can be done now may be another then."""
        self._make = entries
        self._entries = list(entries())
        super().__init__(look, self._entries)
        self.head = self._text = TextLine(LONGEST)

    def on_mount(self) -> None:
        """Follow what is typed."""
        self.watch(self._text, "value", self._typed, init=False)
        self.watch(self._text, "selection", self.redraw, init=False)

    def show(self, update: Update) -> None:  # noqa: ARG002
        """What can be done now, and why not; the cursor stays where it is."""
        if not self.is_mounted:
            return
        name = self.items[self.at].name if self.items else ""
        self._entries = list(self._make())
        items = found(self._entries, self._text.value)
        self.put(items, next((place for place, entry in enumerate(items) if entry.name == name), self.at))
        self.redraw()

    def set_theme(self, look: Look) -> None:
        """Draw everything with other colours or glyphs."""
        self.look = look
        self.redraw()

    def heading(self) -> Line:
        """What was typed."""
        line = self._text.write(super().heading().add("  "))
        return line if self.items else line.add("  no match", "warn")

    def row(self, entry: PaletteEntry, line: Line, chosen: bool) -> Line:  # noqa: ARG002
        """Its name, what it does or why not now, its keys."""
        more = self.look.glyphs.more
        line.add(f"  {drawing.fit(entry.name, NAME - 1, more=more)} ", "dim" if entry.unavailable else "text")
        room = max(0, self.width - line.cells - len(entry.keys) - 4)
        text = f"not now: {entry.unavailable}" if entry.unavailable else entry.help
        line.add(drawing.cut(text, room, more), "dim")
        return line.to(self.width - 2 - len(entry.keys)).add(entry.keys, "dim" if entry.unavailable else "busy")

    def take(self, entry: PaletteEntry) -> None:
        """Close, and do it; what cannot be done now stays on the list with its reason."""
        if not entry.unavailable:
            self.dismiss(entry)

    def press(self, event: events.Key) -> None:
        """Move in the list, take a line of it, or type."""
        if event.key in MOVES or event.key == "enter":
            super().press(event)
        else:
            self._text.press(event)

    def _typed(self) -> None:
        """Narrow the list."""
        self.put(found(self._entries, self._text.value))
        self.choices.scroll_to_highlight()
        self.redraw()
