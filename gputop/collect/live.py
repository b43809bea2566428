"""The live source: lanes for the driver, processes and the host, composed into a frame on every tick."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from threading import Event
from typing import TYPE_CHECKING

from gputop import units
from gputop.collect.host.reader import HostReader
from gputop.collect.jobs.groups import Jobs
from gputop.collect.lane import pause
from gputop.collect.nvml.lane import GpuLane
from gputop.collect.proc.lane import ProcessLane
from gputop.collect.proc.metadata_lane import MetadataLane
from gputop.collect.proc.reader import ProcessReader, ProcessTable, with_shares
from gputop.collect.step_meters import MeterLane
from gputop.model import Detail, Frame, Identity, Missing, Note
from gputop.safe.text import clean
from gputop.source import EVERYTHING, DetailWish, Interest

if TYPE_CHECKING:
    from gputop.collect.details.inspector import Inspector

PATIENCE_S = 0.25  # how long a tick waits for a lane; a later result belongs to the next frame
PRIME_S = 0.2  # rates need two samples: the first is not shown
FIRST_PATIENCE_S = 1.0  # a first frame without processes would be a lie that lasts a second
DRIVER_PATIENCE_S = (
    0.4  # a process on a GPU is followed, and named, from the first sample on; a hung driver is not waited for
)
MOST_NAMED = 3  # of what does not answer, in one line
NAMES_PATIENCE_S = 0.5  # on a busy machine the names come after the second sample, and jobs are recognised by them


class Live:
    """This machine, now. A lane that does not answer leaves its last values, with their age."""

    label = "live"
    elsewhere: str | None = None

    def __init__(
        self,
        *,
        interval_s: float = 1.0,
        nvml: bool = True,
        gpm: str = "auto",
        driver_patience_s: float = DRIVER_PATIENCE_S,
        proc: str = "/proc",
        sys: str = "/sys",
        clock: Callable[[], float] = time.monotonic,
        cpu_clock: Callable[[], float] = time.process_time,
    ) -> None:
        self.interval_s = interval_s
        self._driver_patience_s = driver_patience_s
        self.interest = Interest()
        self._gpus = GpuLane(interval_s, gpm, nvml)
        self._clock, self._cpu_clock = clock, cpu_clock  # of what this program costs
        self._names = MetadataLane(proc)
        self._reader = ProcessReader(proc, names=self._names, sys=sys)
        self._processes = ProcessLane(self._reader, self._read_processes)
        self._host = HostReader(proc, sys)
        self._jobs, self._meters = Jobs(), MeterLane()
        self._spent: tuple[float, float] | None = None  # at the last frame: the time, and CPU time so far
        self._hostname = clean(os.uname().nodename)

    @property
    def released(self) -> bool:
        """Whether the driver is let go of, so that an administrator can reset a GPU; False takes it again."""
        return self._gpus.released

    @released.setter
    def released(self, released: bool) -> None:
        (self._gpus.release if released else self._gpus.resume)()

    def past(self) -> Iterator[Frame]:
        """A live machine has no past."""
        return iter(())

    def frames(self, stop: Event) -> Iterator[Frame]:
        """A frame every `interval_s`, never late for a lane that hangs; after a suspend one gap, no catching up."""
        self._gpus.read_extended(self.interest.extended)
        self._gpus.start()
        self._names.start()
        self._processes.start()
        # a screen shows a GPU that starts later; a command that waits longer for the driver wants every one of them
        whole = self._driver_patience_s > DRIVER_PATIENCE_S
        self._gpus.settled(time.monotonic() + self._driver_patience_s, whole=whole)
        self._look(FIRST_PATIENCE_S)
        due_s = time.monotonic() + PRIME_S - self.interval_s  # of the last frame, had there been one
        self._names.settled(time.monotonic() + NAMES_PATIENCE_S)

        def left_s() -> float:
            return due_s + self.interval_s - time.monotonic()

        while not pause(stop, left_s):
            now_s, late_s = time.monotonic(), max(0.0, -left_s())
            self._look()
            yield self._compose(now_s, late_s)
            due_s = max(due_s + self.interval_s, time.monotonic() - self.interval_s)
        for stopped in (self._processes, self._host, self._gpus, self._names, self._meters):
            stopped.stop()

    def inspect(self, identity: Identity, wish: DetailWish = EVERYTHING) -> Detail | Missing:
        """The newest details of a process, read by threads of their own."""
        return self._inspector.inspect(identity, wish)

    @cached_property
    def _inspector(self) -> Inspector:
        # late: no process is inspected before the first frame
        from gputop.collect.details.inspector import Inspector

        return Inspector(lambda: self._processes.latest().processes)

    def _read_processes(self) -> ProcessTable:
        interest, steps = self.interest, self._meters.stepping
        if steps:
            interest = replace(interest, sight=interest.sight | {pid for pid, _ in steps})
        return self._reader.read(self._gpus.latest().shares, interest)

    def _look(self, patience_s: float = PATIENCE_S) -> None:
        """Ask every lane for a fresh result and give them a moment; a late one is not waited for."""
        until_s = time.monotonic() + patience_s
        self._gpus.interval_s = self.interval_s
        self._gpus.read_extended(self.interest.extended)
        self._processes.nudge()
        self._host.ask()
        self._host.settled(until_s)
        self._processes.settled(until_s)

    def _compose(self, now_s: float, late_s: float) -> Frame:
        driver, hosted = self._gpus.latest(now_s), self._host.latest()
        table = with_shares(self._processes.latest(), driver.shares, driver.taken_s)
        uuids = tuple(gpu.uuid for gpu in driver.gpus)
        processes, found = self._jobs.of(table.processes, uuids, self._meters.stepping)
        if self._meters.ask(processes):
            processes, found = self._jobs.of(table.processes, uuids, self._meters.stepping)
        return Frame(
            wall_s=time.time(),
            mono_s=now_s,
            hostname=self._hostname,
            host=replace(
                hosted,
                process_count=table.count,
                own_pids=table.private,
                driver_version=driver.driver_version,
                cuda_version=driver.cuda_version,
            ),
            gpus=driver.gpus,
            processes=self._meters.of(processes, found),
            jobs=found,
            cgroups=table.cgroups,
            notes=(*driver.notes, *self._broken(), *table.notes),
            viewer_uid=os.geteuid(),
            late_s=late_s,
            cost_percent=self._cost_percent(),
            driver_percent=driver.driver_percent,
        )

    def _cost_percent(self) -> float | None:
        """CPU time of this program since the last frame, of one core; the first has none to begin with."""
        before, self._spent = self._spent, (self._clock(), self._cpu_clock())
        return 100 * (self._spent[1] - before[1]) / (self._spent[0] - before[0]) if before else None

    def _broken(self) -> Iterator[Note]:
        for name, problem in (("processes", self._processes.error), ("host", self._host.broken)):
            if problem:
                text = f"{name} could not be read: {clean(problem)}"
                yield Note(subject="monitor", key=f"{name}-failed", text=text)
        if hangs := [*self._host.hangs(), *self._processes.hangs(), *self._names.hangs()]:
            yield hanging(hangs)


def hanging(hangs: Sequence[tuple[str, float]]) -> Note:
    """Files and mounts that do not answer, and for how long."""
    longest = sorted(hangs, key=lambda hang: -hang[1])
    named = ", ".join(f"{place} ({units.ago_text(seconds)})" for place, seconds in longest[:MOST_NAMED])
    more = f" and {len(hangs) - MOST_NAMED} more" if len(hangs) > MOST_NAMED else ""
    return Note(
        subject="host",
        key="not-answering",
        text=f"Not answering: {named}{more}",
        help=("Metrics read from there are unknown (·) until it answers. All others are current.",),
    )
