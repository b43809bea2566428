"""A host behind ssh as a source of frames: what its gputop records, and a new connection when that ends."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from threading import Event
from typing import Any, Literal, Protocol

from gputop.frozen_dataclass import frozen_dataclass
from gputop.hosts.ssh import Child, NoSsh
from gputop.model import Frame, Identity, Missing, Note
from gputop.record.parse import Newer
from gputop.record.stream import Stream
from gputop.safe.files import Refused
from gputop.safe.text import clean
from gputop.source import EVERYTHING, DetailWish, Interest

Connected = Literal["connecting", "live", "lost"]
_SILENCE_S = 20.0  # without a frame: the connection is given up
_FIRST_RETRY_S, _LAST_RETRY_S = 1.0, 60.0
_SLACK = 0.5  # of an interval: a frame may be early
_LONGEST_APART_S = 60.0  # a longer way to the next frame is that of a clock that went back
_GREETING_LINES = 200  # that a login shell may print before the stream
_DETAILS = "details are read on the host itself: run gputop there"


class RemoteCommand(Protocol):
    """A started command on a host."""

    @property
    def output(self) -> int:
        """The descriptor of its output; reads fail after a time of silence."""

    def end(self) -> None:
        """End it; reads return."""

    def reason(self) -> str:
        """End it, and say why it ended; empty if it had not ended by itself."""


class Step(Protocol):
    """A frame that has arrived and is not made yet."""

    @property
    def mono_s(self) -> float:
        """When it was taken, by the monotonic clock of its host."""


class FrameStream(Protocol):
    """Frames read from the output of a command."""

    interval_s: float

    @property
    def damage(self) -> str:
        """What could not be read, in one line; empty if all could."""

    def steps(self, stop: Event) -> Iterator[Step]:
        """What arrives: cheap, as not every frame is made."""

    def frame(self, step: Any) -> Frame | None:
        """The frame of a step, before the next one is read; None if it is damaged."""


Connect = Callable[[float], RemoteCommand]  # with seconds of silence that end it; NoSsh
Read = Callable[[int], FrameStream]  # of a descriptor; Refused in one line if it holds no frames


@frozen_dataclass(frozen=True, slots=True)
class Link:
    """State of the connection. Times are of our monotonic clock."""

    state: Connected
    since_s: float
    why: str = ""  # it was lost
    frame_s: float | None = None  # when the last frame arrived
    retry_s: float | None = None  # when the next attempt begins


def recorder(host: str, interval_s: float) -> Connect:
    """Starts `gputop record -` on a host."""

    def connect(silence_s: float) -> RemoteCommand:
        return Child(host, ["gputop", "record", "-", "--interval", f"{interval_s:g}"], silence_s=silence_s)

    return connect


class RemoteHost:
    """Frames of another host until it is closed. A lost connection is opened again, less and less often."""

    def __init__(
        self, host: str, connect: Connect, *, interval_s: float = 1.0, silence_s: float = _SILENCE_S,
        turn: AbstractContextManager[object] | None = None, read: Read | None = None,
    ) -> None:  # fmt: skip
        """`turn` is held while a frame is made and consumed: a lock that hosts share, so that one works at a time."""
        self.label = host
        self.elsewhere: str | None = host
        self.interval_s = interval_s
        self.interest = Interest()
        self.apart_s = 0.0  # seconds between two frames that are made, of those that arrive; may be set at any time
        self.link = Link("connecting", time.monotonic())
        self.hurry = Event()  # ends a wait before the next attempt
        self._connect = connect
        self._silence_s = max(silence_s, 4 * interval_s)
        self._child: RemoteCommand | None = None
        self._closed = False
        self._turn = turn or nullcontext()
        self._read: Read = read or partial(Stream, pace=False, greeting_lines=_GREETING_LINES, remote=True)

    def past(self) -> Iterator[Frame]:
        """Empty: a recording begins when it is asked for."""
        return iter(())

    def frames(self, stop: Event) -> Iterator[Frame]:
        """Frames as they arrive. When the connection ends, its last one again, with a note that says why."""
        retry_s = _FIRST_RETRY_S
        while not self._over(stop):
            last: Frame | None = None
            self.link = Link("connecting", time.monotonic(), self.link.why, self.link.frame_s)
            for frame in self._session(stop):
                last = frame
                yield frame
            if self._over(stop):
                return
            retry_s = _FIRST_RETRY_S if last else min(_LAST_RETRY_S, 2 * retry_s)
            now_s = time.monotonic()
            self.link = replace(self.link, state="lost", since_s=now_s, retry_s=now_s + retry_s)
            if last:
                note = Note(subject="monitor", key="host-lost", text=f"{self.label}: {self.link.why}; reconnecting")
                yield replace(last, notes=(note, *last.notes))
            self._wait(retry_s)

    def close(self) -> None:
        """End the connection, and `frames`; returns at once."""
        self._closed = True
        self.hurry.set()
        if child := self._child:
            child.end()

    def inspect(self, identity: Identity, wish: DetailWish = EVERYTHING) -> Missing:  # noqa: ARG002
        """Details do not travel."""
        return Missing(metric="details", reason="absent", unlock=_DETAILS)

    def _over(self, stop: Event) -> bool:
        return self._closed or stop.is_set()

    def _wait(self, seconds: float) -> None:
        if not self._closed:
            self.hurry.clear()
            self.hurry.wait(seconds)

    def _session(self, stop: Event) -> Iterator[Frame]:
        """Frames of one connection; afterwards `link.why` says why it ended."""
        try:
            child = self._child = self._connect(self._silence_s)
        except NoSsh as error:
            self._lost(str(error))
            return
        damage = ""
        try:
            stream = self._read(child.output)
            due_s = -math.inf  # of the host's own clock
            for step in stream.steps(stop):
                now_s = time.monotonic()
                since_s = self.link.since_s if self.link.state == "live" else now_s
                self.link = Link("live", since_s, frame_s=now_s)
                at_s = step.mono_s
                if at_s < due_s - _SLACK * stream.interval_s and at_s > due_s - _LONGEST_APART_S:
                    continue
                self.interval_s = max(stream.interval_s, self.apart_s)
                due_s = at_s + self.interval_s
                with self._turn:  # until the consumer comes back for the next frame
                    if frame := stream.frame(step):
                        yield frame
            damage = stream.damage
        except (Refused, Newer) as error:
            damage = str(error)
        finally:
            self._child = None
            why = child.reason()
            self._lost(self._cause(why, damage))

    def _cause(self, why: str, damage: str) -> str:
        if why:
            return why
        silent = "temporarily unavailable" in damage or self.link.state == "live"
        return f"no data for {self._silence_s:.0f} s" if silent else clean(damage, 200) or why

    def _lost(self, why: str) -> None:
        self.link = Link("lost", time.monotonic(), why, self.link.frame_s)
