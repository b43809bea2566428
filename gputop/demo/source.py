"""A simulated server as a source of frames: paced for people, or as fast as it goes for tests and reports."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from threading import Event
from types import MappingProxyType

from gputop.demo.bystanders import hide, notes, others
from gputop.demo.details import detail
from gputop.demo.gpu import DemoSlot, Tenant
from gputop.demo.machine import host
from gputop.demo.programs import JobProcesses
from gputop.demo.results import Tool, result
from gputop.demo.server import DemoJob, Scenario
from gputop.model import Detail, Fact, Frame, Host, Identity, Missing, Noted, Process, Role
from gputop.source import EVERYTHING, DetailWish, Interest

_DAEMONS_S = 5.0
_NOTICE_S = 1.0  # after which another scenario begins, however seldom frames are asked for
_SELDOM_S = 5  # a step through the past: opening a demo must not wait until all of it is made
_COARSE_S = 15  # as the history keeps what is older


class Demo:
    """A scenario as a source. A frame is a function of the scenario and of time alone.

    `long_past()` and `past()` yield what is already past when the scenario opens, then `frames()` goes on from it.
    """

    def __init__(
        self,
        scenario: Scenario,
        *,
        pace: bool = True,
        interval_s: float = 1.0,
        at_s: float | None = None,
        anchor_s: float | None = None,
        others: Mapping[str, Scenario] = MappingProxyType({}),
    ) -> None:
        """`at_s` is where to open; `anchor_s` the wall-clock time of that moment, by default now.

        `others` are the scenarios that can be played instead, by name.
        """
        self.scenes = {name: other.title for name, other in others.items()}
        self.elsewhere: str | None = "a demo"
        self.interval_s = interval_s
        self.interest = Interest()
        self._pace = pace
        self._others = others
        self._staged: Scenario | None = None
        self._begin(scenario, scenario.open_at_s if at_s is None else at_s, anchor_s)

    def _begin(self, scenario: Scenario, at_s: float, anchor_s: float | None = None) -> None:
        self.scenario, self.at_s, self.label = scenario, at_s, f"demo {scenario.name}"
        self._anchor_s = (time.time() if anchor_s is None else anchor_s) - at_s
        self._newest: tuple[float, Frame] | None = None  # swapped whole: details are asked for in another thread
        self._tick = -1.0
        self._found: tuple[tuple[Process, ...], tuple[Process, ...]] = ((), ())
        server = scenario.server
        self._slots = tuple(DemoSlot(server, card) for card in server.cards)
        self._crews = tuple(JobProcesses(server, job, self._tenants(job)) for job in server.jobs)

    def stage(self, name: str) -> None:
        """Play another scenario, from its opening on."""
        self._staged = self._others[name]

    @property
    def staging(self) -> bool:
        """Whether another scenario is to begin."""
        return self._staged is not None

    def frame(self, t: float) -> Frame:
        """The server at t seconds of the scenario."""
        server = self.scenario.server
        crews = [crew for crew in self._crews if crew.job.runs(t)]
        working = [self._noting(process, crew.job, t) for crew in crews for process in crew.processes(t)]
        daemons, seen_daemons = self._daemons(t)
        processes = (*working, *daemons)
        return Frame(
            wall_s=self._anchor_s + t,
            mono_s=server.uptime_s + t,
            hostname=server.hostname,
            host=host(server, t, processes),
            gpus=tuple(slot.gpu(t) for slot in self._slots),
            processes=(*(hide(process, server.viewer) for process in working), *seen_daemons),
            jobs=tuple(crew.seen(t) for crew in crews),
            notes=notes(server, processes),
            cgroups=tuple(crew.confined(t) for crew in crews if crew.job.quota is not None),
            facts=tuple(fact for crew in crews[:1] for fact in self._facts(crew, t)),
            viewer_uid=server.viewer or 0,
            cost_percent=server.monitor_percent,
            driver_percent=0.4,
        )

    def _noting(self, process: Process, job: DemoJob, t: float) -> Process:
        """The process with what its program notes of its loss: of a job whose steps take a second."""
        nan_s = job.nan_s
        if nan_s is None or process.role is not Role.TRAINER:
            return process

        def loss(at_s: float) -> Noted:
            finite, step = at_s < nan_s, int(at_s - job.started_s)
            value = 2.41 if finite else None
            return Noted(name="loss", wall_s=self._anchor_s + at_s, value=value, finite=finite, step=step)

        return replace(process, metered=True, noted=(loss(t),), non_finite=loss(nan_s) if t >= nan_s else None)

    def _facts(self, crew: JobProcesses, t: float) -> Iterator[Fact]:
        """What a profile has shown of the first job."""
        for from_s, name, text, share in self.scenario.server.seen_inside:
            if t >= from_s:
                of = crew.seen(t).ranks[0]
                yield Fact(process=of, witness="stack", name=name, text=text, share=share, age_s=t - from_s)

    def rehearsed(self, identity: Identity, tool: Tool, amount: float = 0) -> str | None:
        """What a profiler would write of a process of the newest frame."""
        newest = self._newest
        process = newest[1].by_identity.get(identity) if newest else None
        return result(self.scenario, newest[1], process, tool, amount) if newest and process else None

    def long_past(self) -> Iterator[Frame]:
        """The GPUs alone, every 15 s, of the time before everything was watched."""
        self._enter()
        for ago in range(int(self.scenario.far_past_s), max(self._near_s, self.scenario.watched_s), -_COARSE_S):
            yield self._coarse(self.at_s - ago)

    def past(self) -> Iterator[Frame]:
        """The time before the scenario opens: seldom, then second by second."""
        self._enter()
        for ago in (*range(self.scenario.watched_s, self._near_s, -_SELDOM_S), *range(self._near_s, 0, -1)):
            yield self.frame(self.at_s - ago)

    def frames(self, stop: Event) -> Iterator[Frame]:
        """Frames from the opening on: paced without end, or without pace to the scenario's end."""
        t, due = self.at_s, time.monotonic()
        while not (stop.is_set() or self.staging) and (self._pace or t <= self.scenario.length_s):
            frame = self.frame(t)
            self._newest = t, frame
            yield frame
            t += self.interval_s
            if self._pace:
                due = max(due + self.interval_s, time.monotonic())
                while (left_s := due - time.monotonic()) > 0 and not (stop.is_set() or self.staging):
                    stop.wait(min(left_s, _NOTICE_S))

    def inspect(self, identity: Identity, wish: DetailWish = EVERYTHING) -> Detail | Missing:
        """The details of a process at the newest frame."""
        if self._newest is None:
            return Missing(metric="details", reason="stale")
        t, frame = self._newest
        process = frame.by_identity.get(identity)
        if process is None:
            return Missing(metric="details", reason="lost")
        job = next((job for job in self.scenario.server.jobs if job.key == process.job), None)
        return detail(self.scenario.server, frame, process, job, t, wish)

    def _enter(self) -> None:
        """Begin with what was staged."""
        if staged := self._staged:
            self._begin(staged, staged.open_at_s)
            self._staged = None

    @property
    def _near_s(self) -> int:
        return min(self.scenario.past_s, int(self.at_s))

    def _coarse(self, t: float) -> Frame:
        server = self.scenario.server
        return Frame(
            wall_s=self._anchor_s + t,
            mono_s=server.uptime_s + t,
            hostname=server.hostname,
            host=Host(),
            gpus=tuple(slot.glance(t, _COARSE_S) for slot in self._slots),
        )

    def _daemons(self, t: float) -> tuple[tuple[Process, ...], tuple[Process, ...]]:
        """Processes without GPU kin as they are and as they are seen, read every 5 s as on a live machine."""
        tick = t - t % _DAEMONS_S
        if tick != self._tick:
            server = self.scenario.server
            found = others(server, tick)
            self._tick, self._found = tick, (found, tuple(hide(process, server.viewer) for process in found))
        return self._found

    def _tenants(self, job: DemoJob) -> dict[int, Tenant]:
        return {slot.card.index: tenant for slot in self._slots for tenant in slot.tenants if tenant.job is job}
