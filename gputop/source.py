"""The interface of frame sources: live, demo and recording."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from threading import Event
from typing import Literal, Protocol, runtime_checkable

from gputop.frozen_dataclass import frozen_dataclass
from gputop.model import PARTS, Detail, Frame, Identity, Missing, Part


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Interest:
    """What is on the screen, so that costly metrics are read only where they are visible."""

    pids: frozenset[int] = frozenset()  # opened or selected processes
    sight: frozenset[int] = frozenset()  # processes on the screen with columns that are read on demand
    families: frozenset[int] = frozenset()  # processes with a command needed in full, to find their job
    every_process: bool = False  # the whole list is on screen, not only GPU processes and their relatives
    extended: bool = False  # metrics of the extended tier: what is written down has all there are


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class DetailWish:
    """The wanted details of one process. Secrets are shown individually, and only while requested."""

    parts: Collection[Part] = PARTS
    revealed: frozenset[str] = frozenset()  # names of variables whose values are shown in full
    others_environment: bool = False  # root only: show another user's process, after a key press


EVERYTHING = DetailWish()
# shown in a Detail to root before that key press, with the key
OTHERS_ENVIRONMENT = Missing(metric="environment", reason="denied", unlock="it belongs to another user: ask by its key")
RECORDED = "a recording"  # the container of a process's own processes
UNRECORDED = Missing(metric="details", reason="absent", unlock="recordings hold no details")


class Source(Protocol):
    """A stream of frames. Paces itself unless opened without pace; ends by itself, or when `stop` is set."""

    label: str  # "live", "demo healthy", the file's name
    elsewhere: str | None  # origin of its processes if not this machine, "a demo": then no PID may be acted on
    interval_s: float  # wanted time between frames; may be set at any time
    interest: Interest  # set by the consumer; ignored by a recording

    def past(self) -> Iterable[Frame]:
        """Frames before the first one, for the history; none for a live machine."""
        ...

    def frames(self, stop: Event) -> Iterator[Frame]:
        """Yield frames, the oldest first."""
        ...

    def inspect(self, identity: Identity, wish: DetailWish = EVERYTHING) -> Detail | Missing:
        """The newest details of a process: never blocks; requesting keeps them coming.

        Request it at every frame while it is on screen; unread parts are `stale`. A Missing instead: the process has
        ended or never existed (`lost`), or this source has no details (`absent`).
        """
        ...


@runtime_checkable
class Remembering(Protocol):
    """A source with history beyond the time that the rules need."""

    def long_past(self) -> Iterable[Frame]:
        """Frames before those of `past`, one every 15 s, with the GPU metrics of long charts."""
        ...


@runtime_checkable
class Releasable(Protocol):
    """A source that holds the driver and can release it. Thread-safe."""

    released: bool  # True: nothing is held, so that an administrator can reset a GPU; False reopens it


@runtime_checkable
class Recorded(Protocol):
    """A source read from a file or stream, which may be truncated or damaged."""

    @property
    def damage(self) -> str:
        """Damage found so far, in one line; empty if there is none."""
        ...


@runtime_checkable
class Rehearsed(Protocol):
    """A source with simulated processes and recorded profiler results: a demo."""

    def rehearsed(
        self, identity: Identity, tool: Literal["profile", "stack", "torch"], amount: float = 0
    ) -> str | None:
        """The tool's output for a process; None if the tool is unavailable. Thread-safe.

        `amount`: seconds of a profile, steps of a trace, or number of stack samples before the last one; 0: default.
        Empty if it would wait in vain for the end of a step.
        """
        ...


@runtime_checkable
class Staged(Protocol):
    """A source that can switch to another simulated server. Thread-safe."""

    scenes: Mapping[str, str]  # by name, one line each

    def stage(self, name: str) -> None:
        """Switch to another one from its start, returning at once; KeyError if unknown.

        `frames` ends; the caller drops all earlier state, and calls `past` and `frames` again.
        """
        ...

    @property
    def staging(self) -> bool:
        """Whether `frames` ends because of that, and has not restarted."""
        ...


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class RecordedEvent:
    """An event in a recording, for the replay bar."""

    at_s: float  # seconds after the first frame
    text: str
    severity: Literal["info", "warn", "crit"] = "info"


@runtime_checkable
class Seekable(Protocol):
    """A seekable source. Positions are seconds after its first frame.

    Positions only grow, whatever the clocks did while recording. Thread-safe.
    """

    speed: float  # relative to recorded speed; 0 pauses, and everything else still works

    @property
    def position_s(self) -> float:
        """The position of the last frame yielded, or the target of `seek`."""
        ...

    @property
    def going(self) -> bool:
        """Whether the frame of that position is still pending."""
        ...

    @property
    def length_s(self) -> float:
        """Position of the last known frame; grows while the file is indexed."""
        ...

    @property
    def complete(self) -> bool:
        """Whether length, span and marks cover the whole recording."""
        ...

    @property
    def span(self) -> tuple[float, float]:
        """Wall-clock time of the first and last known frame."""
        ...

    @property
    def marks(self) -> tuple[RecordedEvent, ...]:
        """Known events, oldest first."""
        ...

    def seek(self, position_s: float) -> None:
        """Seek to a position, clamped to the recording; returns at once.

        `frames` ends, and `past` and `frames` must be called again: `seeking` says so.
        """
        ...

    @property
    def seeking(self) -> bool:
        """Whether `frames` ends because of a `seek`, and has not restarted."""
        ...
