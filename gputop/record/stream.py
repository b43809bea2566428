"""A recording from a pipe as a source: every frame in order, as history and rules need all.

A slow reader lets the pipe fill up: the recorder at its other end continues, and reports the frames it could not write.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, islice
from threading import Event as Signal

from gputop.model import Frame, Identity, Missing, Note
from gputop.record.deltas import DeltaFrame, frame_of_step, steps, with_damage_note
from gputop.record.index import FrameClock
from gputop.record.lines import MAGIC, Damage, Splitter
from gputop.record.parse import Header, Newer, glance
from gputop.safe.bounded_gzip import TooLarge, Unpacker
from gputop.safe.files import Refused
from gputop.source import EVERYTHING, RECORDED, UNRECORDED, DetailWish, Interest

_CHUNK = 1 << 16
_USE = "use it as in gputop record - | gputop replay -"


class Stream:
    """Frames from a descriptor. With pace the last frame is marked for the user."""

    def __init__(self, fd: int, *, pace: bool = True, greeting_lines: int = 0, remote: bool = False) -> None:
        """Waits for the first frame; Refused says in one line why there is none.

        `greeting_lines`: how many lines of another program may come first, as a login shell prints some. `remote`: it
        is the output of a command on another host.
        """
        self.label = "stream"
        self.elsewhere: str | None = RECORDED
        self.interval_s = 1.0
        self.interest = Interest()
        self._fd = fd
        self._pace = pace
        self._name, self._use = ("its output", "") if remote else ("standard input", f": {_USE}")
        self._damage = Damage()
        lines = self._read()
        self._check(lines, greeting_lines)
        self._steps = self._begun(steps(lines, FrameClock(), self._damage))

    @property
    def damage(self) -> str:
        """Damage found so far, in one line; empty if there is none."""
        return str(self._damage)

    def past(self) -> Iterator[Frame]:
        """Empty: the past is unknown."""
        return iter(())

    def frames(self, stop: Signal) -> Iterator[Frame]:
        """Frames until the stream ends; with pace the last one is repeated with a note."""
        last: Frame | None = None
        for step in self.steps(stop):
            if frame := self.frame(step):
                last = frame
                yield frame
        if last and self._pace and not stop.is_set():
            note = Note(subject="monitor", key="stream-ended", text="the stream has ended: this is its last frame")
            last = with_damage_note(last, self._damage) if self._damage.count else last
            yield replace(last, notes=(note, *last.notes))

    def steps(self, stop: Signal) -> Iterator[DeltaFrame]:
        """What arrives, for a reader that does not need every frame: making one costs a hundred times as much."""
        for step in self._steps:
            if stop.is_set():
                return
            self.interval_s = step.time.interval_s
            yield step

    def frame(self, step: DeltaFrame) -> Frame | None:
        """The frame of a step, before the next one is read; None if it is damaged."""
        return frame_of_step(step, self._damage)

    def inspect(self, identity: Identity, wish: DetailWish = EVERYTHING) -> Missing:  # noqa: ARG002
        """Details are live only, and not part of a stream."""
        return UNRECORDED

    def _begun(self, arriving: Iterator[DeltaFrame]) -> Iterator[DeltaFrame]:
        """Everything readable from the first frame on."""
        for step in arriving:
            if frame_of_step(step, self._damage):
                return chain((step,), arriving)
        raise Refused(self._damage.without_frame(self._name))

    def _check(self, lines: Iterator[bytes], greeting_lines: int) -> None:
        """Read the header; Refused if there is none."""
        found = False
        for line in islice(lines, greeting_lines + 1):
            found = True
            try:
                if isinstance(glance(line), Header):
                    return
            except Newer as error:
                raise Refused(f"the stream cannot be read: {error}") from None
            except ValueError:
                pass
        if found:
            raise Refused(f"{self._name} is not a recording{self._use}")
        why = f" ({self._damage.first})" if self._damage.count else ""
        raise Refused(f"{self._name} ended before a recording began{why}{self._use}")

    def _read(self) -> Iterator[bytes]:
        """Complete lines, plain or compressed, until the stream ends."""
        splitter, pieces = Splitter(self._damage), self._pieces()
        try:
            first = next(pieces, b"")
            unpack = Unpacker() if first.startswith(MAGIC) else None
            for data in chain((first,), pieces):
                for text in _texts(unpack, data) if unpack else (data,):
                    yield from splitter.feed(text)
                if self._damage.gives_up:
                    return
        except (zlib.error, TooLarge, OSError) as error:
            self._damage.add(f"reading it failed: {error}")
        if splitter.rest and not self._damage.final:
            self._damage.add("the last line is truncated")

    def _pieces(self) -> Iterator[bytes]:
        first = b""
        while len(first) < len(MAGIC) and (more := os.read(self._fd, _CHUNK)):
            first += more
        if first:
            yield first
        while data := os.read(self._fd, _CHUNK):
            yield data


def _texts(unpack: Unpacker, data: bytes) -> Iterator[bytes]:
    while data:
        yield from unpack.feed(data)
        data = unpack.rest or b""
        if unpack.rest is not None:
            unpack.again()
