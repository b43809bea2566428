"""What an export format is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TextIO

from gputop.monitor import Update

Write = Callable[[Update], None]


class Format(Protocol):
    """Opens a format on a stream: what comes back writes one update at a time."""

    def __call__(self, out: TextIO, *, ascii: bool = False) -> Write:
        """A writer; with `ascii` it writes nothing but ASCII."""
        ...
