"""What all receivers share: how one is sent to, and how a failure is said without secrets."""

from __future__ import annotations

from typing import Protocol

from gputop.alerts.message import AlertMessage
from gputop.safe.text import clean, redact

TIMEOUT_S = 10.0  # of one message, unless the settings say otherwise


class Undelivered(Exception):
    """Why a message was not delivered, in one line; `again`: another try may work, `after_s` the receiver's wish."""

    def __init__(self, reason: str, *, again: bool = True, after_s: float | None = None) -> None:
        super().__init__(redact(clean(reason, 200)))
        self.again, self.after_s = again, after_s


class Receiver(Protocol):
    """Something that messages are sent to."""

    @property
    def name(self) -> str:
        """Its name in the settings."""

    @property
    def place(self) -> str:
        """Kind and address, without secrets."""

    @property
    def acts(self) -> bool:
        """Whether it starts a program: not with --readonly."""

    def send(self, message: AlertMessage) -> None:
        """Deliver one message, which may take as long as its timeout; Undelivered if that failed."""
