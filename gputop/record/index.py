"""An index from time to file position, built by a thread that reads the file once."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from threading import Thread
from typing import BinaryIO, NamedTuple

from gputop.record.lines import Damage, read
from gputop.record.parse import Event, Header, Newer, Times, glance
from gputop.source import RecordedEvent

MOST_GAP_S = 400 * 86400.0  # a longer gap is invalid
_LAST_WALL_S = 253_402_300_799.0 - 86400  # within the year 9999 in any time zone


@dataclass(slots=True)
class FrameClock:
    """Follows the clocks from frame to frame; after `step` it is at that frame.

    The monotonic clock counts, as it does not jump. After a header, possibly due to a reboot, the wall clock does; if
    that goes back, too, a frame is one interval after the previous one.
    """

    at_s: float = -1.0  # seconds after the first frame; negative before it
    wall_s: float = 0.0
    mono_s: float = 0.0  # with `shift` added it only grows
    _shift_s: float = 0.0
    _anew: bool = True
    _apart_s: deque[float] = field(default_factory=lambda: deque(maxlen=5))

    def header(self) -> None:
        """What follows was recorded later, possibly after a reboot."""
        self._anew = True

    def step(self, wall_s: float, mono_s: float) -> None:
        """The next frame, with its own clock values."""
        known = 0 < wall_s < _LAST_WALL_S
        if self.at_s < 0:
            self.at_s, self.wall_s, self.mono_s = 0.0, wall_s if known else 0.0, mono_s
        else:
            apart_s = mono_s + self._shift_s - self.mono_s
            if self._anew or not 0 < apart_s < MOST_GAP_S:
                by_wall_s = wall_s - self.wall_s if known and self._anew else 0.0
                apart_s = by_wall_s if 0 < by_wall_s < MOST_GAP_S else self.interval_s
                self._shift_s = self.mono_s + apart_s - mono_s
            else:
                self._apart_s.append(apart_s)
            self.at_s += apart_s
            self.mono_s = mono_s + self._shift_s
            self.wall_s = wall_s if known else self.wall_s + apart_s
        self._anew = False

    @property
    def interval_s(self) -> float:
        """The usual time between two frames."""
        return sorted(self._apart_s)[len(self._apart_s) // 2] if self._apart_s else 1.0

    def copy(self) -> FrameClock:
        """A copy of the current state."""
        return replace(self, _apart_s=deque(self._apart_s, maxlen=5))


EVERY = 30  # frames between two entries
_MOST_ENTRIES = 1 << 15  # eleven days at one per second; for a longer recording every second one is kept, and so on
_MOST_MARKS = 10_000


class IndexEntry(NamedTuple):
    """A position where reading can begin, and its time."""

    at_s: float
    place: int
    before: FrameClock


class Index:
    """Grows while its thread works; existing entries are valid."""

    def __init__(self, open_file: Callable[[], BinaryIO]) -> None:
        self.entries: list[IndexEntry] = []
        self.marks: tuple[RecordedEvent, ...] = ()
        self.length_s = 0.0
        self.wall_s = 0.0  # of the last frame
        self.complete = False
        self._open = open_file
        self._started = False

    def start(self) -> None:
        """Read the file in a daemon thread, once."""
        if not self._started:
            self._started = True
            Thread(target=self._run, name="index", daemon=True).start()

    def entry(self, at_s: float) -> IndexEntry:
        """The last entry at or before this time."""
        entries = self.entries  # the thread may replace them by fewer
        if not entries:
            return IndexEntry(0.0, 0, FrameClock())
        return entries[max(0, bisect_right(entries, at_s, key=lambda entry: entry.at_s) - 1)]

    def _run(self) -> None:
        try:
            with self._open() as file:
                self._look_through(file)
        except (OSError, Newer):  # the reader of the frames reports it
            pass
        finally:
            self.complete = True

    def _look_through(self, file: BinaryIO) -> None:
        time, since, due, every = FrameClock(), EVERY, None, EVERY
        for place, line in read(file, 0, Damage()):
            try:
                found = glance(line)
            except Newer:
                raise
            except ValueError:
                continue
            if place is not None and since >= every and due is None:
                due = (place, time.copy())
            if isinstance(found, Times) and not found.whole:
                due = None  # reading cannot start with a change of an earlier frame
            if isinstance(found, Header):
                time.header()
            elif isinstance(found, Event):
                if len(self.marks) < _MOST_MARKS:
                    mark = RecordedEvent(at_s=max(0.0, time.at_s), text=found.text, severity=found.severity)
                    self.marks = (*self.marks, mark)
            elif found is not None:
                time.step(found.wall_s, found.mono_s)
                since += 1
                if due:
                    self.entries.append(IndexEntry(time.at_s, *due))
                    since, due = 0, None
                    if len(self.entries) > _MOST_ENTRIES:
                        self.entries, every = self.entries[::2], 2 * every
                self.length_s, self.wall_s = time.at_s, time.wall_s
