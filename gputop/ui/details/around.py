"""What the screen of one process asks of the program, and of the main screen."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from gputop.model import Frame, Process
from gputop.ui import program
from gputop.ui.dialogs.palette import Deed
from gputop.ui.dialogs.saving import Shot
from gputop.ui.profiling.background_jobs import Errands
from gputop.ui.profiling.tools import ToolId
from gputop.ui.replay.bar import ReplayBar
from gputop.ui.replay.player import Player


class Program(program.Program, Protocol):
    """What the screen asks of the program it belongs to, beyond what all do."""

    errands: Errands


class Replaying(Protocol):
    """What it does where a recording is played."""

    player: Player | None  # of the recording, where there is one

    def action_hold(self) -> None:
        """Have the recording stand still, or go on."""

    def action_hurry(self, steps: int) -> None:
        """Play it faster, or slower."""

    def action_step(self, seconds: int) -> None:
        """Go so many seconds on in it, or back."""

    def action_end_of_recording(self) -> None:
        """Go to its last frame."""

    def sought(self, message: ReplayBar.Sought) -> None:
        """Go to where its bar was clicked."""


class Main(Replaying, Protocol):
    """What the main screen does for this one."""

    def ask_signal(self, frame: Frame, process: Process) -> None:
        """Ask which signal, for a process as it is in a frame."""

    def ask_stack(self, frame: Frame, process: Process) -> None:
        """Look where its threads are."""

    def ask_profile(self, frame: Frame, process: Process, everybody: bool, tool: ToolId) -> None:
        """Ask how to look into it."""

    def copy_of(self, process: Process) -> None:
        """Its pid to the clipboard; pressed again, its command line."""

    def show_of(self, process: Process) -> None:
        """What can be copied of it, for the mouse."""

    def save_of(self, shot: Shot) -> None:
        """Ask as what, and write it into a file."""

    def action_setup(self) -> None:
        """Every setting."""

    def themes(self) -> Iterable[Deed]:
        """Other colours."""
