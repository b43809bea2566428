"""Where frames come from: the protocol that live, demo and recording speak."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from threading import Event
from typing import Literal, Protocol, runtime_checkable

from gputop.frozen_dataclass import frozen_dataclass
from gputop.model import PARTS, Detail, Frame, Identity, Missing, Part


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Interest:
    """What somebody looks at, so that costly signals are read only where they are seen."""

    pids: frozenset[int] = frozenset()  # processes that are open or selected
    sight: frozenset[int] = frozenset()  # those on the screen in columns that not every process is read for
    families: frozenset[int] = frozenset()  # processes whose whole command is looked at, to find the job they are of
    every_process: bool = False  # the whole list is on screen, not only GPU kin
    extended: bool = False  # metrics of the extended tier: what is written down has all there are


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What somebody wants to see of one process. Secrets are shown one by one, and only while they are asked for."""

    parts: Collection[Part] = PARTS
    revealed: frozenset[str] = frozenset()  # names of the variables whose values are shown whole
    others_environment: bool = False  # root only: show that of another user's process, as asked for by a key


EVERYTHING = Wish()
# what stands in a Detail for root that did not ask for it: the key that does belongs beside it
OTHERS_ENVIRONMENT = Missing(metric="environment", reason="denied", unlock="it belongs to another user: ask by its key")
RECORDED = "a recording"  # whose processes those of one are
UNRECORDED = Missing(metric="details", reason="absent", unlock="recordings hold no details")


class Source(Protocol):
    """A stream of frames. Paces itself unless it was opened without pace; ends by itself, or when `stop` is set."""

    label: str  # "live", "demo healthy", the file's name
    elsewhere: str | None  # what its processes belong to if not to this machine, "a demo": then nobody may touch a pid
    interval_s: float  # wanted time between frames; may be set while running
    interest: Interest  # set by who looks; ignored by a recording

    def past(self) -> Iterable[Frame]:
        """Frames from before the first one, for the history; none for a live machine."""
        ...

    def frames(self, stop: Event) -> Iterator[Frame]:
        """Yield frames, the oldest first."""
        ...

    def inspect(self, identity: Identity, wish: Wish = EVERYTHING) -> Detail | Missing:
        """The newest details of a process: never waits, and asking is what keeps them coming.

        Ask again at every frame while it is on screen; parts of it that have not been read yet are `stale`. A Missing
        instead: the process has ended or was never there (`lost`), or this source has no details (`absent`).
        """
        ...


@runtime_checkable
class Remembering(Protocol):
    """What a source has besides when it knows of a time that is too long ago for the rules to be asked about it."""

    def long_past(self) -> Iterable[Frame]:
        """Frames from before those of `past`, one every 15 s, with what the charts of hours show of the GPUs."""
        ...


@runtime_checkable
class Releasable(Protocol):
    """What a source has besides when it holds the driver and can let go of it. Any thread may ask and set."""

    released: bool  # True: nothing is held, so that an administrator can reset a GPU; False takes it again


@runtime_checkable
class Recorded(Protocol):
    """What a source has besides when it is read from somewhere, and may be cut or damaged there."""

    @property
    def damage(self) -> str:
        """What is wrong with what was read so far, in one line; empty if nothing is."""
        ...


@runtime_checkable
class Rehearsed(Protocol):
    """A source whose processes are simulated, and that has recorded results of profilers instead: a demo."""

    def rehearsed(
        self, identity: Identity, tool: Literal["profile", "stack", "trace"], amount: float = 0
    ) -> str | None:
        """What the tool would write of a process, as it writes it; None where it cannot be used. From any thread.

        `amount`: seconds of a profile, steps of a trace, or how many looks before the last one stacks are; 0: as usual.
        Empty where it would wait for the end of a step in vain.
        """
        ...


@runtime_checkable
class Staged(Protocol):
    """What a source has besides when it can play something else: simulated servers. Any thread may ask and set."""

    scenes: Mapping[str, str]  # by name, a line about each

    def stage(self, name: str) -> None:
        """Play another one from its opening on, returning at once; KeyError when there is none of this name.

        `frames` ends, and `past` and `frames` are to be called anew, after all that was before is forgotten.
        """
        ...

    @property
    def staging(self) -> bool:
        """Whether `frames` ended, or will end, because of that, and has not begun anew."""
        ...


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Something that happened in a recording, for the bar that shows where one is."""

    at_s: float  # seconds after the first frame
    text: str
    severity: Literal["info", "warn", "crit"] = "info"


@runtime_checkable
class Seekable(Protocol):
    """What a source has besides when one can go back in it. Positions are seconds after its first frame.

    Positions only grow, whatever the clocks did when it was recorded. Any thread may ask and set.
    """

    speed: float  # times as fast as it was; 0 holds it, and everything else still works

    @property
    def position_s(self) -> float:
        """Where it is: the frame yielded last, or where `seek` is going."""
        ...

    @property
    def going(self) -> bool:
        """Whether the frame of that position is still to come."""
        ...

    @property
    def length_s(self) -> float:
        """Position of the last frame as far as is known; grows while the file is looked through."""
        ...

    @property
    def complete(self) -> bool:
        """Whether length, span and marks are those of the whole recording."""
        ...

    @property
    def span(self) -> tuple[float, float]:
        """Wall-clock time of the first and of the last frame, as far as is known."""
        ...

    @property
    def marks(self) -> tuple[Mark, ...]:
        """What happened, the oldest first, as far as is known."""
        ...

    def seek(self, position_s: float) -> None:
        """Go there, returning at once; before the start is the start, behind the end is the end.

        `frames` ends, and `past` and `frames` are to be called anew: `seeking` says so.
        """
        ...

    @property
    def seeking(self) -> bool:
        """Whether `frames` ended, or will end, because of a `seek`, and has not begun anew."""
        ...
