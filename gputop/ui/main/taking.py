"""Keys that take something along: the clipboard, a plain screen for the mouse, a file."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from textual.geometry import Region
from textual.strip import Strip

from gputop.actions.target import typed
from gputop.diagnose import Finding
from gputop.model import Process
from gputop.safe.text import clean
from gputop.ui.advice.finding_list import commands
from gputop.ui.keys import declared
from gputop.ui.keys.declared import Key
from gputop.ui.keys.hints import hint
from gputop.ui.main.advising import Advising
from gputop.ui.main.board import AROUND
from gputop.ui.main.changing import Changing
from gputop.ui.table.row import Row, masked
from gputop.ui.widgets.strip_pane import Lines

if TYPE_CHECKING:
    from gputop.ui.dialogs.saving import Kind, Shot

LONGEST = 2000  # characters: a terminal drops what is too long for it, and does not say so


class Text(NamedTuple):
    """Something to copy."""

    what: str
    text: str


def texts(row: Row | None) -> list[Text]:
    """What a line offers: its pid or pids, then its command line, with what looks like a secret masked."""
    if row is None:
        return []
    if row.process is None:
        pids = [str(process.pid) for process in row.members]
        return [Text("its pids" if len(pids) > 1 else "its pid", " ".join(pids))]
    return texts_of(row.process)


def texts_of(process: Process) -> list[Text]:
    """The pid and the command line of one process."""
    found = [Text("pid", str(process.pid))]
    if any(process.command):
        found.append(Text("command line", typed(process)))
    return found


def texts_of_steps(finding: Finding | None) -> list[Text]:
    """The commands of a finding's steps, the best first."""
    return [Text(name, clean(step.command or "")) for name, step in commands(finding)]


class Taking(Advising, Changing):
    """Copy, and save."""

    _copied: tuple[Hashable, int] = (None, -1)

    def action_copy(self) -> None:
        """The pid of the line to the clipboard; pressed again, its command line; of the advice its steps' commands."""
        if self.advised:
            self._copy_place(texts_of_steps(self.sheet.chosen), self.sheet.copy_place)
            self.sheet.copied()
            self.redraw("advice")  # the next press copies another one
            return
        row = self.table.listing.cursor
        self._copy(row.key if row else None, texts(row))

    def copy_of(self, process: Process) -> None:
        """The same for one process."""
        self._copy(process.identity, texts_of(process))

    def _copy(self, owner: Hashable, found: Sequence[Text]) -> None:
        before, place = self._copied
        place = (place + 1) % len(found) if before == owner and found else 0
        self._copied = (owner, place)
        self._copy_place(found, place)

    def _copy_place(self, found: Sequence[Text], place: int) -> None:
        """This one of what there is to copy; what the next press copies is said with it."""
        if not found:
            self.say("nothing to copy here")
            return
        text = found[place].text
        if len(text) > LONGEST:
            self.say(f"too long to copy ({len(text)} characters){hint(self.names, '; {} shows it', 'show')}")
            return
        self.app.copy_to_clipboard(text)
        again = found[(place + 1) % len(found)].what
        more = hint(self.names, f"   {{}} again: {again}", "copy") if len(found) > 1 and not place else ""
        self.say(f"copied {text}{more}")

    def action_show(self) -> None:
        """What can be copied of the line, for the mouse."""
        self._show(texts_of_steps(self.sheet.chosen) if self.advised else texts(self.table.listing.cursor))

    def show_of(self, process: Process) -> None:
        """The same for one process."""
        self._show(texts_of(process))

    def _show(self, found: Sequence[Text]) -> None:
        if found:
            from gputop.ui.dialogs.plain import Plain  # late

            self.app.push_screen(Plain(self.look, [text for _, text in found], self._mouse))
        else:
            self.say("nothing to copy here")

    def _mouse(self, on: bool) -> None:
        self.program.listen_to_mouse(on and self.settings.mouse)

    def why_not(self, key: Key) -> str:
        """Why a key does nothing now; empty if it does."""
        if key.id == "save" and self.readonly:
            return "gputop is read-only"
        if key.id == "save" and not self.shown:
            return "nothing is shown yet"
        return super().why_not(key)

    def action_save(self) -> None:
        """What is on the screen into a file."""
        if self.shown:
            from gputop.export import formats  # late
            from gputop.ui.dialogs.saving import Shot

            self.save_of(Shot(self._panes, partial(formats.snapshot, self.shown)))

    def _panes(self) -> list[tuple[Region, Sequence[Strip]]]:
        """What each pane shows; those around the table are drawn anew from what may leave the machine."""
        update, panes, row = self.shown, self.panes, self.table.listing.cursor
        if update is None or panes is None:
            return []
        from gputop.export.format import redacted  # late

        self.past.at_s = update.frame.mono_s
        parts = self.parts(replace(update, frame=redacted(update.frame)), panes, row and masked(row))
        drawn = {name: self.strips(name, rect, parts) for name in AROUND if (rect := getattr(panes, name)) is not None}
        return [
            (pane.region, drawn[pane.id] if pane.id in drawn else pane.masked())
            for pane in self.query(Lines)
            if pane.display
        ]

    def save_of(self, shot: Shot) -> None:
        """The same for any screen."""
        from gputop.ui.dialogs.saving import SaveDialog  # late

        if reason := self.why_not(declared.key("save")):
            self.say(f"not now: {reason}")
        else:
            self.app.push_screen(SaveDialog(self.look), partial(self._save, shot))

    def _save(self, shot: Shot, kind: Kind | None) -> None:
        if kind is None:
            return
        (width, height), look, panes = self.app.size, self.look, shot.panes()

        def work() -> str:
            from gputop.export import codec  # late
            from gputop.ui.dialogs.saving import save
            from gputop.ui.panes import picture

            if kind == "json":
                return save(kind, f"{codec.dumps(shot.numbers())}\n")
            lines = picture.composed(width, height, panes, look)
            return save(kind, picture.text(lines) if kind == "txt" else picture.svg(lines, width))

        self.program.aside.do(work, lambda line: self.say(line, 10))
