"""A recorded file as a source: at its pace, faster, or as fast as possible; seekable."""

from __future__ import annotations

import os
import stat
import time
from collections import deque
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from threading import Event as Signal
from typing import BinaryIO

from gputop.model import Frame, Identity, Missing
from gputop.record.deltas import DeltaFrame, frame_of_step, steps, with_damage_note
from gputop.record.index import FrameClock, Index, IndexEntry
from gputop.record.lines import Damage, read
from gputop.record.parse import Header, Newer, Times, glance, parse
from gputop.safe.files import Refused
from gputop.safe.text import clean
from gputop.source import EVERYTHING, RECORDED, UNRECORDED, DetailWish, Interest, RecordedEvent

NEAR_S, FAR_S, FAR_STEP_S = 150.0, 900.0, 15.0  # of the past: for the rules, and for charts
_KNOWN_S = 60.0  # past that is still in the history after seeking back
_LONGEST_WAIT_S = 5.0  # longer gaps in the recording are skipped
_NOTICE_S = 0.1
_FLAGS = os.O_RDONLY | sum(getattr(os, name, 0) for name in ("O_CLOEXEC", "O_NONBLOCK", "O_NOCTTY", "O_BINARY"))
_NEAR = 0.25  # of an interval: frames are rarely on time, and one second back must reach the previous one


class Recording:
    """A file of frames. Without pace it ends after its last frame; with pace it waits there for a seek."""

    def __init__(self, path: str, *, pace: bool = True) -> None:
        """Refused says in one line why this is not a readable recording."""
        self._path = path
        self.label = clean(Path(path).name)
        self.elsewhere: str | None = RECORDED
        self.interval_s = 1.0
        self.interest = Interest()
        self.speed = 1.0
        self._pace = pace
        self._damage = Damage()
        self._index = Index(self._open)
        self._steps: Iterator[DeltaFrame] = iter(())
        self._file: BinaryIO | None = None  # source of the steps
        self._now = FrameClock()
        self._since_s = 0.0  # the history is complete from this position on
        self._top_s = 0.0  # largest position in the history since then
        self._asked: deque[float] = deque(maxlen=1)  # target of `seek`
        self._heading_s: float | None = None  # target being approached
        self._stands_s: float | None = None  # of the last frame yielded; None while seeking
        self._woken = Signal()
        self._first = self._first_time()

    @property
    def position_s(self) -> float:
        """The current position, or the target of a seek."""
        going = self._heading_s
        return max(0.0, self._now.at_s) if going is None else going

    @property
    def going(self) -> bool:
        """Whether the frame of that position is still pending."""
        return self._heading_s is not None

    @property
    def length_s(self) -> float:
        """Position of the last known frame."""
        return max(self._index.length_s, self._now.at_s, 0.0)

    @property
    def span(self) -> tuple[float, float]:
        """Wall-clock time of the first and last known frame."""
        return self._first.wall_s, max(self._index.wall_s, self._now.wall_s, self._first.wall_s)

    @property
    def marks(self) -> tuple[RecordedEvent, ...]:
        """Known events, oldest first."""
        return self._index.marks

    @property
    def damage(self) -> str:
        """Damage found so far, in one line; empty if there is none."""
        return str(self._damage)

    @property
    def complete(self) -> bool:
        """Whether length, span and marks cover the whole file."""
        return self._index.complete

    def seek(self, position_s: float) -> None:
        """Seek to a position; returns at once."""
        most_s = self.length_s if self._index.complete else position_s
        self._heading_s = max(0.0, min(position_s, most_s))
        self._asked.append(self._heading_s)
        self._woken.set()

    @property
    def seeking(self) -> bool:
        """Whether `frames` ends because of a `seek`."""
        return bool(self._asked)

    def past(self) -> Iterator[Frame]:
        """After a `seek`: what the history lacks of the time before, without processes outside jobs.

        Some time before the new position is repeated, as the rules have forgotten it.
        """
        if not self._asked:
            self._steps = self._steps_from(IndexEntry(0.0, 0, FrameClock()))
            if self._pace:
                self._index.start()
            return
        target_s = self._reachable()
        if target_s == self._stands_s:
            self._heading_s = None
            return
        self._heading_s, self._stands_s = target_s, None
        yield from self._approach(target_s)

    def frames(self, stop: Signal) -> Iterator[Frame]:
        """Frames from the current position on."""
        owed_s = None if self._stands_s is None else 0.0  # the first frame after a seek is shown at once
        last: Frame | None = None
        reported = 0  # damaged places that `last` reports
        for step in self._steps:
            if owed_s is not None:
                owed_s = self._wait(step.time.at_s - self._now.at_s + owed_s, stop)
            if stop.is_set():
                self._leave()
                return
            if self.seeking:
                self._steps = chain((step,), self._steps)
                return
            frame = self._frame(step)
            owed_s, self._heading_s, self._stands_s = owed_s or 0.0, None, step.time.at_s
            if frame:
                last, reported = frame, self._damage.count
                yield frame
        if not self.seeking:
            self._heading_s = None
            if last and self._pace and self._damage.count > reported:  # no later frame reports it
                yield with_damage_note(last, self._damage)
        while self._pace and not stop.is_set() and not self.seeking:
            self._woken.wait(_NOTICE_S)
            self._woken.clear()

    def inspect(self, identity: Identity, wish: DetailWish = EVERYTHING) -> Missing:  # noqa: ARG002
        """Details are live only, and not part of a recording."""
        return UNRECORDED

    def _wait(self, ahead_s: float, stop: Signal) -> float:
        """Wait this much recorded time; returns the overshoot (negative remainder), which is owed."""
        if not self._pace:
            return 0.0
        ahead_s, looked_s = min(ahead_s, max(_LONGEST_WAIT_S, 3 * self.interval_s)), time.monotonic()
        while ahead_s > 0 and not stop.is_set() and not self.seeking:
            self._woken.wait(min(_NOTICE_S, ahead_s / self.speed) if self.speed > 0 else _NOTICE_S)
            self._woken.clear()
            now_s = time.monotonic()
            ahead_s, looked_s = ahead_s - (now_s - looked_s) * self.speed, now_s
        return max(ahead_s, -_NOTICE_S * self.speed)

    def _reachable(self) -> float:
        """The target of a seek, as far as the index has come."""
        self._index.start()
        target_s = 0.0
        while True:
            if self._asked:
                target_s = self._asked.pop()
            complete = self._index.complete
            if complete or target_s < self._index.length_s:
                return min(target_s, self._index.length_s)
            self._woken.wait(_NOTICE_S)
            self._woken.clear()

    def _approach(self, target_s: float) -> Iterator[Frame]:
        """The past of a position, as far as the history lacks it; its frame comes next."""
        here_s = self._now.at_s
        near_s, far_s = target_s - NEAR_S, target_s - FAR_S
        if 0 <= here_s <= target_s <= here_s + NEAR_S:
            steps, near_s = self._steps, here_s
        elif target_s <= here_s and target_s - max(self._since_s, self._top_s - FAR_S) >= min(_KNOWN_S, target_s):
            steps, far_s = self._steps_from(self._index.entry(max(0.0, near_s))), near_s
        else:
            steps = self._steps_from(self._index.entry(max(0.0, far_s)))
            self._since_s = self._top_s = max(0.0, near_s)
        last: DeltaFrame | None = None
        near_enough_s = target_s + _NEAR * self.interval_s
        for step in steps:
            if self.seeking or step.time.at_s > near_enough_s:
                steps = chain((step,), steps)
                break
            if last and (last.time.at_s >= near_s or last.time.at_s >= far_s):
                frame = self._frame(last, coarse=True)
                far_s = last.time.at_s + FAR_STEP_S
                if frame:
                    yield frame
            last = step
        self._steps = chain((last,), steps) if last else steps

    def _frame(self, step: DeltaFrame, *, coarse: bool = False) -> Frame | None:
        """A step as a frame in growing time; None if it is damaged."""
        self._now = step.time
        self._top_s = max(self._top_s, step.time.at_s)
        self.interval_s = step.time.interval_s
        return frame_of_step(step, self._damage, coarse=coarse)

    def _steps_from(self, entry: IndexEntry) -> Iterator[DeltaFrame]:
        """Everything from a position on."""
        self._leave()
        self._damage = damage = Damage()
        time = entry.before.copy()
        self._file = file = self._open()
        with file:
            yield from steps((line for _, line in read(file, entry.place, damage)), time, damage)

    def _leave(self) -> None:
        """Close the file of abandoned steps now rather than at garbage collection."""
        if self._file:
            self._file.close()

    def _first_time(self) -> FrameClock:
        """The time of the first frame, after checking that the file is readable."""
        damage = Damage()
        try:
            with self._open() as file:
                first, begun = _first(file, damage)
        except OSError as error:
            raise Refused(f"{self._path}: {os.strerror(error.errno or 0)}") from None
        except Newer as error:
            raise Refused(f"{self._path} cannot be read: {error}") from None
        if first:
            return first
        if not begun:
            raise Refused(f"{self._path} is not a recording: {damage.first}")
        raise Refused(damage.without_frame(self._path))

    def _open(self) -> BinaryIO:
        fd = os.open(self._path, _FLAGS)
        if stat.S_ISREG(os.fstat(fd).st_mode):
            return os.fdopen(fd, "rb")
        os.close(fd)
        raise Refused(f"{self._path} is not a regular file; use - to read a stream")


def _first(file: BinaryIO, damage: Damage) -> tuple[FrameClock | None, bool]:
    """The time of the first frame, if any; whether the readable part begins like a recording.

    A damaged header may be missing: a frame also shows that this is a recording.
    """
    first, empty, headed = FrameClock(), True, False
    for _, line in read(file, 0, damage):
        empty = False
        try:
            found = glance(line)
            if isinstance(found, Times) and found.whole:
                first.step(found.wall_s, found.mono_s)
                parse(line)
                return first, True
            headed = headed or isinstance(found, Header)
            if not headed:
                damage.add("it does not start with a header")
        except Newer:
            raise
        except ValueError as error:
            damage.add(str(error))
        if damage.gives_up:
            break
    return None, headed or empty
