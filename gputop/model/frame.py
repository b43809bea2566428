"""A frame: everything known at one moment, immutable, the one thing that travels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from gputop.model.fact import Fact
from gputop.model.gpu import Gpu
from gputop.model.host import Cgroup, Host
from gputop.model.process import Identity, Job, Process

Subject = Literal["driver", "processes", "host", "monitor"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """One line for the header or an empty state: what is wrong, and lines that help."""

    subject: Subject
    key: str  # what it is about, for tests and for the screen that draws it: no-library, mismatch, foreign-pids, ...
    text: str
    help: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Frame:
    """One look at the machine. `mono_s` is for rates and ages, `wall_s` for people."""

    wall_s: float
    mono_s: float
    hostname: str
    host: Host
    gpus: tuple[Gpu, ...] = ()
    processes: tuple[Process, ...] = ()
    jobs: tuple[Job, ...] = ()
    cgroups: tuple[Cgroup, ...] = ()  # of trainers, each once
    notes: tuple[Note, ...] = ()
    facts: tuple[Fact, ...] = ()  # what was told of processes lately, all of it in every frame: one may begin anywhere
    late_s: float = 0.0  # how much later than planned it was taken
    cost_percent: float | None = None  # CPU time of this monitor since the last frame, of one core
    driver_percent: float | None = None  # time spent inside driver calls since the last frame

    @cached_property
    def by_identity(self) -> Mapping[Identity, Process]:
        """Processes by pid and start time."""
        return {process.identity: process for process in self.processes}

    @cached_property
    def by_uuid(self) -> Mapping[str, Gpu]:
        """GPUs by uuid."""
        return {gpu.uuid: gpu for gpu in self.gpus}

    def note(self, key: str) -> Note | None:
        """The note with this key, if there is one."""
        return next((note for note in self.notes if note.key == key), None)
