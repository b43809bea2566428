"""Time on the screen of a process, where a recording is played: the bar and the keys of the main screen, which does it.

They are those that the main screen has, for it is one recording, and one place in it.
"""

from __future__ import annotations

from dataclasses import replace

from textual import on

from gputop.ui.details.around import Main, Program
from gputop.ui.keys.declared import Key
from gputop.ui.keys.keyed import Keyed
from gputop.ui.panes.header import Status
from gputop.ui.panes.layout import HEIGHT_FOR_REPLAY
from gputop.ui.replay.bar import ReplayBar
from gputop.ui.replay.player import stands, why_not
from gputop.ui.widgets.key_bar import KeyBar


class Replaying(Keyed, inherit_bindings=False):
    """What the keys of a recording and a click on its bar do."""

    program: Program
    main: Main
    bar: KeyBar
    replay: ReplayBar | None

    def why_not(self, key: Key) -> str:
        """Why a key does nothing now; empty if it does."""
        return why_not(key.id, self.main.player)

    async def action_press(self, id: str) -> None:
        """Do what a key does, or say why not now; nothing if it was for the news of what has ended."""
        if self.program.errands.press(id):
            return
        if reason := why_not(id, self.main.player):
            self.bar.say(f"not now: {reason}")
        else:
            await super().action_press(id)

    def place_bar(self) -> int:
        """Give the bar its line where there is room; how many lines it takes."""
        tall = int(self.replay is not None and self.app.size.height >= HEIGHT_FOR_REPLAY)
        if self.replay:
            self.replay.styles.height = tall
            self.replay.redraw()
        return tall

    def status(self) -> Status:
        """What the header says of the monitor; that time does not move only where no bar says so."""
        status, player = self.program.status(), self.main.player
        told = self.app.size.height >= HEIGHT_FOR_REPLAY
        return replace(status, stands=stands(player)) if player and not told else status

    def redraw(self) -> None:
        """Draw everything again."""
        raise NotImplementedError

    def action_hold(self) -> None:
        """Stand still, or go on."""
        self.main.action_hold()
        self.redraw()

    def action_hurry(self, steps: int) -> None:
        """Faster, or slower."""
        self.main.action_hurry(steps)
        self.redraw()

    def action_step(self, seconds: int) -> None:
        """So many seconds on, or back."""
        self.main.action_step(seconds)
        self.redraw()

    def action_end_of_recording(self) -> None:
        """To the last frame."""
        self.main.action_end_of_recording()
        self.redraw()

    @on(ReplayBar.Sought)
    def sought(self, message: ReplayBar.Sought) -> None:
        """A moment was clicked."""
        self.main.sought(message)
        self.redraw()
