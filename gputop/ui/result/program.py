"""What the screen of a result asks of the program it belongs to."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from gputop.actions import Rights
from gputop.config import Settings
from gputop.ui import program

if TYPE_CHECKING:
    from gputop.ui.dialogs.palette import Deed


class Main(Protocol):
    """What the main screen does for this one."""

    settings: Settings

    @property
    def rights(self) -> Rights:
        """What may be done to processes."""

    def themes(self) -> Iterable[Deed]:
        """Other colours."""


class Program(program.Program, Protocol):
    """What the screen asks of the program it belongs to, beyond what all do."""

    @property
    def main(self) -> Main:
        """The main screen."""
