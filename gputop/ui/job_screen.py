"""A screen with a line for running profiles, and one for a recording that is played."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from textual import on

from gputop.ui.commands.command import Command
from gputop.ui.copy_texts import CopyText
from gputop.ui.panes.header import Status
from gputop.ui.profiling.background_jobs import BackgroundJobs
from gputop.ui.profiling.status_line import JobLine
from gputop.ui.replay.bar import ReplayBar
from gputop.ui.replay.player import stands
from gputop.ui.screen import CommandScreen
from gputop.ui.session import Session
from gputop.ui.targets import CommandTarget
from gputop.ui.theme import Look

if TYPE_CHECKING:
    from gputop.ui.dialogs.saving import Shot
    from gputop.ui.profiling.tools import ToolId


class JobScreen(CommandScreen, inherit_bindings=False):
    """The main screen, and that of one process: what commands about processes ask of it."""

    def __init__(self, session: Session, jobs: BackgroundJobs) -> None:
        super().__init__(session)
        self.jobs = jobs
        self.job_line = JobLine(jobs, session.look, self.key_that_stops)
        player, label = session.player, session.source.label
        self.replay = ReplayBar(player, label, self.commands, session.look) if player else None

    def key_that_stops(self) -> str:
        """The key that now asks whether to end what is under way; empty where there is none."""
        return ""

    async def press(self, command: Command) -> None:
        """Run a command, unless the key was for the news of what has ended."""
        if command.above_dialogs or not self.jobs.press(command.id):
            await super().press(command)

    @abstractmethod
    def progressed(self) -> None:
        """Draw the line of what is under way again."""

    def set_theme(self, look: Look) -> None:
        """Draw everything with other colours or glyphs."""
        self.job_line.restyle(look)
        if self.replay:
            self.replay.restyle(look)
        super().set_theme(look)

    @property
    @abstractmethod
    def replay_is_shown(self) -> bool:
        """Whether there is a line for the recording."""

    def status(self) -> Status:
        """What the header says of the monitor; that time stands only where no bar of the recording says so."""
        status, player = self.session.status(), self.session.player
        return replace(status, stands=stands(player)) if player and not self.replay_is_shown else status

    def no_processes(self) -> str:
        """Why nothing can be done to a process here; empty if it can."""
        return ""

    @abstractmethod
    def target(self) -> CommandTarget | None:
        """The process that is selected, or what is meant instead of it; None where there is none, which is said."""

    @abstractmethod
    def copy_texts(self) -> Sequence[CopyText]:
        """What can be copied of what is selected."""

    def copy_place(self, texts: Sequence[CopyText]) -> int:
        """Which of these texts is to be copied now: the first, then the one after the last."""
        return self.session.copies.next(self.copy_owner(), len(texts))

    @abstractmethod
    def copy_owner(self) -> Hashable:
        """What the texts are of: of another one the first is copied."""

    @abstractmethod
    def shot(self) -> Shot:
        """What is on the screen, without secrets, to be saved."""

    @abstractmethod
    def open_tab(self, tab: str) -> None:
        """Open a tab of the process."""

    def about_finding(self) -> bool:
        """Whether keys that look into a process are about that of the chosen finding."""
        return False

    def target_to_profile(self, tool: ToolId) -> CommandTarget | None:  # noqa: ARG002
        """The process to look into; of a whole job its scope says so."""
        return self.target()

    def moved_in_time(self) -> None:
        """Another moment of a recording is to be seen: a held picture is let go."""
        if self.session.frozen:
            self.session.freeze()
        self.redraw()

    @on(ReplayBar.Sought)
    def sought(self, message: ReplayBar.Sought) -> None:
        """A moment of the recording was clicked."""
        if self.session.player:
            self.session.player.seek(message.position_s)
            self.moved_in_time()
        if message.said:
            self.session.say(message.said)
