"""The palette: everything that can be done, by name, with its key, or the reason why not now."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial

from textual import events

from gputop.frozen_dataclass import frozen_dataclass
from gputop.monitor import Update
from gputop.ui.dialogs.choices import ListDialog
from gputop.ui.screen import CommandScreen
from gputop.ui.theme import Look
from gputop.ui.widgets import drawing
from gputop.ui.widgets.drawing import Line

NAME = 19  # cells
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


class Palette(ListDialog[PaletteEntry]):
    """A list that narrows while one types."""

    TITLE_TEXT = "do"
    FOOT = "type to narrow the list   Enter does it   Esc closes"
    WIDTH = 78
    ROWS = 14

    def __init__(self, look: Look, entries: Callable[[], Iterable[PaletteEntry]]) -> None:
        """`entries` are asked for again with each update: what can be done now may be another then."""
        super().__init__(look)
        self._make = entries
        self._entries = list(entries())
        self._found = list(self._entries)
        self._typed = ""

    def show(self, update: Update) -> None:  # noqa: ARG002
        """What can be done now, and why not; the cursor stays where it is."""
        if not self.is_mounted:
            return
        name = self._found[self.at].name if self._found else ""
        self._entries = list(self._make())
        self._found = found(self._entries, self._typed)
        self.at = next((place for place, entry in enumerate(self._found) if entry.name == name), self.at)
        self.redraw()

    def set_theme(self, look: Look) -> None:
        """Draw everything with other colours or glyphs."""
        self.look = look
        self.redraw()

    @property
    def count(self) -> int:
        """Those that are meant."""
        return len(self._found)

    def heading(self) -> Line:
        """What was typed."""
        line = super().heading().add("  ").add(self._typed, "bright").add(" ", "bright", reverse=True)
        return line if self._found else line.add("  nothing is called so", "warn")

    def row(self, place: int, line: Line) -> Line:
        """Its name, what it does or why not now, its keys."""
        entry, look = self._found[place], self.look
        line.add(f"  {drawing.fit(entry.name, NAME, more=look.glyphs.more)}", "dim" if entry.unavailable else "text")
        room = max(0, self.width - line.cells - len(entry.keys) - 4)
        text = f"not now: {entry.unavailable}" if entry.unavailable else entry.help
        line.add(drawing.cut(text, room, look.glyphs.more), "dim")
        return line.to(self.width - 2 - len(entry.keys)).add(entry.keys, "dim" if entry.unavailable else "busy")

    def take(self, place: int) -> None:
        """Close, and do it; what cannot be done now stays on the list with its reason."""
        if not self._found[place].unavailable:
            self.dismiss(self._found[place])

    def press(self, event: events.Key) -> None:
        """Move, type, or take a line."""
        before = self._typed
        if event.key == "backspace":
            self._typed = self._typed[:-1]
        elif event.key == "ctrl+u":
            self._typed = ""
        elif event.character and event.character.isprintable():
            self._typed = (self._typed + event.character)[:LONGEST]
        else:
            super().press(event)
            return
        if self._typed != before:
            self._found, self.at = found(self._entries, self._typed), 0
            self.redraw()
