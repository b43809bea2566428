"""Keys of a recording: where it plays, and how fast."""

from __future__ import annotations

from dataclasses import replace

from textual import on

from gputop.monitor import Update
from gputop.source import RECORDED
from gputop.ui.keys.declared import Key
from gputop.ui.main.board import Board
from gputop.ui.main.changing import TAKEN
from gputop.ui.panes.layout import Panes
from gputop.ui.panes.parts import Parts
from gputop.ui.replay.bar import ReplayBar
from gputop.ui.replay.player import stands, why_not
from gputop.ui.table.row import Row


class Replaying(Board):
    """What the keys of a recording and a click on its bar do."""

    def why_not(self, key: Key) -> str:
        """Why a key does nothing now; empty if it does."""
        if reason := why_not(key.id, self.player):
            return reason
        if key.id == "delay" and self.program.source.elsewhere == RECORDED:
            return TAKEN
        return super().why_not(key)

    def parts(self, update: Update, panes: Panes, selected: Row | None) -> Parts:
        """What the panes around the table are drawn from; the header says that time stands where no bar does."""
        parts = super().parts(update, panes, selected)
        if not self.player or panes.replay:
            return parts
        return replace(parts, status=replace(parts.status, stands=stands(self.player)))

    def redraw(self, *only: str) -> None:
        """Draw everything around the table again, or these panes alone."""
        super().redraw(*only)
        if self.replay:
            self.replay.redraw()

    def action_hold(self) -> None:
        """Stand still, or go on."""
        if self.player:
            self.player.hold()
            self.redraw()

    def action_hurry(self, steps: int) -> None:
        """Faster, or slower."""
        if self.player:
            self.player.hurry(steps)
            self.redraw()

    def action_step(self, seconds: int) -> None:
        """So many seconds on, or back."""
        if self.player and seconds > 0 and self.player.ended:
            self.say("this is the end of the recording")
        elif self.player:
            self.player.step(seconds, self.program.source.interval_s)
            self._moved_in_time()

    def action_end_of_recording(self) -> None:
        """To the last frame."""
        if self.player:
            self.player.end()
            self._moved_in_time()

    @on(ReplayBar.Sought)
    def sought(self, message: ReplayBar.Sought) -> None:
        """A moment was clicked."""
        if self.player:
            self.player.seek(message.position_s)
            self._moved_in_time()
        if message.said:
            self.say(message.said)

    def _moved_in_time(self) -> None:
        """Who goes elsewhere in time wants to see it: a held picture is let go."""
        if self.program.frozen:
            self.program.freeze()
        self.redraw()
