"""Where frames come from: the protocol that live, demo and recording speak."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from threading import Event
from typing import Protocol

from gputop.model import Frame, Identity, Missing, Process


@dataclass(frozen=True, slots=True, kw_only=True)
class Interest:
    """What somebody looks at, so that costly signals are read only where they are seen."""

    pids: frozenset[int] = frozenset()  # processes that are open or selected
    every_process: bool = False  # the whole list is on screen, not only GPU kin


@dataclass(frozen=True, slots=True, kw_only=True)
class Thread:
    """One thread of an inspected process."""

    tid: int
    name: str
    state: str | None = None
    cpu_percent: float | None = None
    run_wait_percent: float | None = None
    cpu_time_s: float | None = None
    last_cpu: int | None = None
    waiting_in: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Detail:
    """What is read only about an inspected process."""

    threads: tuple[Thread, ...] = ()
    files: tuple[tuple[int, str], ...] = ()  # (descriptor, path)
    limits: tuple[tuple[str, str, str], ...] = ()  # (name, soft, hard)
    environment: tuple[tuple[str, str], ...] | None = None  # secrets masked
    children: tuple[Process, ...] = ()
    missing: tuple[Missing, ...] = ()


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

    def inspect(self, identity: Identity) -> Detail | Missing:
        """Threads, files, limits and environment of one process, or why not."""
        ...
