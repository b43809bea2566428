"""The key that records."""

from __future__ import annotations

from gputop.monitor import Update
from gputop.ui.keys.declared import Key
from gputop.ui.main.board import Board

_LONG_S = 10.0  # a path is read slowly


class Taping(Board):
    """Recording on and off; what goes wrong with it is said while everything else goes on."""

    def why_not(self, key: Key) -> str:
        """Why a key does nothing now; empty if it does."""
        if key.id == "record" and self.player:
            return "this is a recording already"
        if key.id == "record" and self.readonly:
            return "gputop is read-only"
        return super().why_not(key)

    def action_record(self) -> None:
        """Record, or stop."""
        tape = self.program.tape
        if tape.running:
            tape.stop(self._told)
        else:
            tape.start(lambda: self.program.mailbox.newest, self._told)

    def show(self, update: Update) -> None:
        """Draw an update, and say what has become of the recording."""
        super().show(update)
        if news := self.program.tape.news():
            self.say(news, _LONG_S)

    def _told(self, line: str) -> None:
        self.redraw()
        self.say(line, _LONG_S)
