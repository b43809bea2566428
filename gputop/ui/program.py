"""What every screen asks of the program it belongs to; each adds what it alone needs."""

from __future__ import annotations

from typing import Protocol

from gputop.source import Source
from gputop.ui.latest_update import Mailbox
from gputop.ui.panes.header import Status


class Program(Protocol):
    """The part of the program that all screens know."""

    source: Source
    mailbox: Mailbox
    frozen: bool

    def status(self) -> Status:
        """What the header says of the monitor itself."""

    def failed(self, error: Exception, where: str) -> str:
        """Keep what went wrong; the line to show for it."""

    def freeze(self) -> None:
        """Hold the picture, or let it go on."""

    def listen_to_mouse(self, on: bool) -> None:
        """Have the terminal report clicks and the wheel, or leave them to it."""
