"""Where frames come from: the protocol that live, demo and recording speak."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from threading import Event
from typing import Protocol

from gputop.model import Frame


@dataclass(frozen=True, slots=True, kw_only=True)
class Interest:
    """What somebody looks at, so that costly signals are read only where they are seen."""

    pids: frozenset[int] = frozenset()  # processes that are open or selected
    every_process: bool = False  # the whole list is on screen, not only GPU kin


class Source(Protocol):
    """A stream of frames. Paces itself unless it was opened without pace; ends by itself, or when `stop` is set."""

    label: str  # "live", "demo healthy", the file's name
    interval_s: float  # wanted time between frames; may be set while running
    interest: Interest  # set by who looks; ignored by a recording

    def past(self) -> Iterable[Frame]:
        """Frames from before the first one, for the history; none for a live machine."""
        ...

    def frames(self, stop: Event) -> Iterator[Frame]:
        """Yield frames, the oldest first."""
        ...
