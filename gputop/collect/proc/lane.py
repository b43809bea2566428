"""The lane of the processes: one thread reads them all, and a substitute goes on when a file does not answer."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

from gputop.collect.lane import Lane, LaneGate
from gputop.collect.proc.gpu_processes import ProcessTable
from gputop.collect.proc.reader import ProcessReader
from gputop.model import Missing, Process, metrics

STUCK_S = 0.5  # a thread that does not get on for so long is replaced
HANG_S = 2.0  # where no thread may replace it, it counts as one that does not come back,
STALE_S = 3.0  # and what is older than this is then unknown


class ProcessLane:
    """Reads when it is nudged. Its threads are never joined."""

    def __init__(
        self,
        reader: ProcessReader,
        read: Callable[[], ProcessTable],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`read` is that of the reader, with what the screen wants to see."""
        self._reader, self._read, self._clock = reader, read, clock
        self._gate: LaneGate = reader.gate
        self._lane = Lane("processes", self._work, ProcessTable.EMPTY)
        self._moved: tuple[int, float] = (0, clock())  # how far the thread was, and when it was seen to get on
        self._replaced = False
        self._silent: tuple[ProcessTable, ProcessTable] | None = None

    def start(self) -> None:
        """Begin to listen for nudges."""
        self._lane.start()

    def stop(self) -> None:
        """Let the thread end when it comes back."""
        self._lane.stop()

    def nudge(self) -> None:
        """Ask for one read; a thread that hangs is replaced."""
        now_s = self._clock()
        if self._still_s(now_s) >= STUCK_S and self._gate.supersede(now_s):
            before, self._replaced = self._lane, True
            self._lane = Lane("processes", self._work, before.latest)
            before.stop()
            self._lane.start()
        if self._lane.settled(0):
            self._moved = self._gate.reads, now_s
        self._lane.nudge()

    def settled(self, until_s: float) -> bool:
        """Wait for the read that was asked for, no longer than until this time of the monotonic clock.

        One that was under way before is not waited for: it is late already.
        """
        done = self._lane.settled(0 if self._still_s(self._clock()) >= HANG_S else until_s)
        self._still_s(self._clock())
        return done

    @property
    def error(self) -> str | None:
        """What the last read raised, in one line."""
        return self._lane.error

    def latest(self) -> ProcessTable:
        """What was read last; without numbers once it is too old and the next read does not return."""
        table, now_s = self._lane.latest, self._clock()
        if self._still_s(now_s) < HANG_S or now_s - table.taken_s < STALE_S:
            return table
        if self._silent is None or self._silent[0] is not table:
            self._silent = table, replace(table, processes=tuple(map(silenced, table.processes)), cgroups=())
        return self._silent[1]

    def hangs(self) -> list[tuple[str, float]]:
        """Files that do not answer, and for how long."""
        now_s = self._clock()
        found = [(path, now_s - since_s + STUCK_S) for path, (_, since_s) in list(self._gate.hung.items())]
        if (still_s := self._still_s(now_s)) >= HANG_S and (at := self._gate.at) is not None:
            found.append((at, still_s))
        return found

    def _still_s(self, now_s: float) -> float:
        """For how long the thread has not got on; 0 while it has nothing to do."""
        if self._lane.settled(0) or self._gate.reads != self._moved[0]:
            self._moved = self._gate.reads, now_s
        return now_s - self._moved[1]

    def _work(self) -> ProcessTable:
        self._gate.take()
        try:
            if self._replaced:
                self._replaced = False
                self._reader.recover()
            return self._read()
        finally:
            self._gate.leave()


@cache
def _unknown() -> tuple[dict[str, Any], tuple[Missing, ...]]:
    names = [metric.name for metric in metrics(Process)]
    return dict.fromkeys(names), tuple(Missing(metric=name, reason="stale") for name in names)


def silenced(process: Process) -> Process:
    """The process without numbers, and why."""
    nothing, missing = _unknown()
    return replace(process, **nothing, missing=(*process.missing, *missing))
