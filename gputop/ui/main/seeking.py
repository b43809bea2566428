"""Keys that look for something: find, filter, one user."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Literal

from textual import events

from gputop.labels import searched
from gputop.ui.keys.hints import hint
from gputop.ui.main.board import Board
from gputop.ui.table.filter import HINT, Wrong, parse, until
from gputop.ui.table.row import Key, Row
from gputop.ui.widgets.drawing import Line
from gputop.ui.widgets.prompt import pointing

NOWHERE = "nowhere"
_IN_TEXT = re.compile(r"F\d+")  # where one types, other keys are text


class Seeking(Board):
    """What is typed to find processes, and what then is shown."""

    _words = ""
    _from: Key | None = None  # where the cursor was before the search
    _wrong = False

    def type(self, event: events.Key) -> bool:
        """Take a key as text while something is typed; whether it was."""
        return self.asking is not None and self.prompt.take(event)

    def place(self) -> None:
        """Give every pane its place; where there is none for the line, it ends, and what was typed holds."""
        super().place()
        if self.asking is not None and self.panes and not self.panes.prompt:
            self._close()

    def _ask(
        self, what: Literal["find", "filter"], text: str, changed: Callable[[str], None], ended: Callable[[bool], None]
    ) -> None:
        if not (self.panes and self.panes.processes):
            return
        self.asking = what
        self.place()
        self.errand_line.redraw()
        self.prompt.ask(what, text, changed, ended)
        self.set_focus(self.prompt)  # at once: the next key may be here already
        changed(text)

    def _close(self) -> None:
        self.asking = None
        self.bar.lend(None)
        self.place()
        self.errand_line.redraw()
        self.set_focus(self.table if self.table.display else None)  # a small screen may not have it

    def _hint(self, text: str) -> None:
        self.bar.lend(Line(self.look, "raised").add(f" {text}", "dim"))

    def action_filter(self) -> None:
        """Show only what matches."""
        if self.asking is None:
            asked = self.table.listing.view.filter
            self._ask("filter", asked.text if asked else "", self._filter, self._filtered)

    def _filter(self, text: str) -> None:
        try:
            asked = parse(text)
        except Wrong as wrong:
            self._wrong = True
            self.show_only(filter=until(text, wrong))
            self.prompt.tell("", (wrong.start, wrong.end))
            cells = self.prompt.column(wrong.start), self.prompt.column(wrong.end)
            self.bar.lend(pointing(cells, str(wrong), self.app.size.width, self.look))
            return
        self._wrong = False
        self.show_only(filter=asked)
        self.prompt.tell(self.table.found(self.shown.frame) if self.shown else "")
        self._hint(HINT)

    def _filtered(self, taken: bool) -> None:
        if taken and self._wrong:
            return
        if not taken:
            self.table.see(filter=None)
        self._close()

    def action_find(self) -> None:
        """Go to the first process in which a word is found."""
        if self.asking == "find":
            self.action_find_next()
        elif self.asking is None:
            row = self.table.listing.cursor
            self._from = row.key if row else None
            self._ask("find", "", self._find, self._found)

    def _find(self, text: str) -> None:
        self._words = text
        self._hint(f"any words of a line;{self._find_next()} Enter stays there, Esc goes back")
        said = self._go(self._from, 0) if text.strip() else ""
        if said in ("", NOWHERE):
            self._back()  # not on a line that other letters found: the next key may be a signal
        self.prompt.tell(said)

    def _find_next(self) -> str:
        ways = (name for key in self.keys if key.id in ("find", "find-next") for name in key.names)
        return next((f" {name} the next one," for name in ways if _IN_TEXT.fullmatch(name)), "")

    def _found(self, taken: bool) -> None:
        if not taken:
            self._back()
        self._close()

    def _back(self) -> None:
        if self._from:
            self.table.listing.go(self._from)
            self.table.redraw()

    def action_find_next(self) -> None:
        """Go to the next one."""
        if not self._words.strip():
            self.say(f"nothing to find yet{hint(self.names, ': {} begins', 'find')}")
            return
        row = self.table.listing.cursor
        said = self._go(row.key if row else None, 1)
        if self.asking:
            self.prompt.tell(said)
        else:
            self.say(f"{self._words.strip()}: {said}")

    def _go(self, start: Key | None, step: int) -> str:
        """Put the cursor on the first hit from a line on, or behind it, around the end; which one it is."""
        self.table.key()
        rows = self.table.listing.unfolded()
        hits = [place for place, row in enumerate(rows) if _matches(row, self._words)]
        if not hits:
            return NOWHERE
        at = next((place for place, row in enumerate(rows) if row.key == start), -1)
        number = next((number for number, place in enumerate(hits) if place >= at + step), 0)
        self.table.listing.go(rows[hits[number]].key)
        self.table.redraw()
        return f"{number + 1} of {len(hits)}"

    def action_user(self) -> None:
        """Show one user only."""
        from gputop.ui.dialogs.choices import UserDialog  # late

        if self.shown is None:
            return
        gpus: dict[str, set[str]] = {}
        counts: dict[str, int] = {}
        for process in self.shown.frame.processes:
            if process.user is not None:
                counts[process.user] = counts.get(process.user, 0) + 1
                gpus.setdefault(process.user, set()).update(share.uuid for share in process.gpus)
        users = sorted(((user, len(gpus[user]), count) for user, count in counts.items()), key=_most)
        self.app.push_screen(UserDialog(self.look, users, self.table.listing.view.user), self._show_user)

    def _show_user(self, user: str | None) -> None:
        if user is not None:
            self.show_only(user=user or None)

    def show_only(self, **whom: Any) -> None:
        """Others on the screen; a cursor whose process is not among them begins at the top."""
        listing = self.table.listing
        before = listing.cursor
        self.table.key()
        self.table.see(**whom)
        if before and listing.cursor and listing.cursor.key != before.key:
            listing.move(-len(listing.rows))
            self.table.redraw()

    def clear(self) -> bool:
        """Show everybody again, whatever hid them; whether anything did."""
        view = self.table.listing.view
        if view.filter is None and view.user is None and view.gpu is None:
            return False
        self.table.see(filter=None, user=None, gpu=None)
        return True


def _matches(row: Row, words: str) -> bool:
    own = searched(row.process) if row.process else ""
    text = f"{row.label} {row.user or (row.process and row.process.user) or ''} {row.text} {own}".casefold()
    return all(word in text for word in words.casefold().split())


def _most(user: tuple[str, int, int]) -> tuple[int, int, str]:
    name, gpus, processes = user
    return -gpus, -processes, name
