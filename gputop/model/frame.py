"""A frame: everything known at one moment, immutable, the one thing that travels."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Literal, cast

from gputop.frozen_dataclass import frozen_dataclass
from gputop.model.gpu import Gpu
from gputop.model.host import Cgroup, Host
from gputop.model.process import Identity, Job, Process, identity_of

Witness = Literal["stack", "trace", "notes", "meter", "recorder"]  # recorder: PyTorch's flight recorder, NCCL's RAS


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One fact about a process from a profile, a trace, or its own log."""

    process: Annotated[Identity, "process it is about"]
    witness: Annotated[Witness, "where it comes from"]
    name: Annotated[str, "identifier for the rules: loads-in-main, launch-bound"]
    text: Annotated[str, "as text, with its numbers"]
    share: Annotated[float | None, "share of the time, 0 to 1"] = None
    age_s: Annotated[float, "age at this frame, in seconds"] = 0.0


Subject = Literal["driver", "processes", "host", "monitor"]


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A notice: what is wrong, and what to do about it."""

    subject: Annotated[Subject, "what it is about"]
    key: Annotated[str, "identifier: no-library, mismatch, or a custom one"]
    text: Annotated[str, "one line: what is wrong"]
    help: Annotated[tuple[str, ...], "what to do about it, one line each; commands in backticks"] = ()


@frozen_dataclass(frozen=True, kw_only=True)
class Frame:
    """One sample of the machine. `mono_s` is for rates and ages, `wall_s` for display."""

    wall_s: Annotated[float, "when it was taken: wall clock, in seconds since 1970-01-01 UTC"]
    mono_s: Annotated[float, "when it was taken: monotonic clock, in seconds from an arbitrary start"]
    hostname: Annotated[str, "name of the machine"]
    host: Annotated[Host, "the machine around the GPUs"]
    gpus: Annotated[tuple[Gpu, ...], "GPUs and MIG instances, in the order of the driver"] = ()
    processes: Annotated[tuple[Process, ...], "processes in a job, on a GPU, or busy"] = ()
    jobs: Annotated[tuple[Job, ...], "jobs of these processes"] = ()
    cgroups: Annotated[tuple[Cgroup, ...], "cgroups of the trainers, each once"] = ()
    notes: Annotated[tuple[Note, ...], "what is wrong or unusual"] = ()
    facts: Annotated[
        tuple[Fact, ...],
        "recent facts about processes; each frame has all of them, so that reading can start at any frame",
    ] = ()
    viewer_uid: Annotated[int | None, "user ID of the viewer"] = None
    late_s: Annotated[float, "delay against the schedule, in seconds"] = 0.0
    cost_percent: Annotated[float | None, "CPU time of gputop since the last frame; 100 % is one core"] = None
    driver_percent: Annotated[float | None, "time in driver calls since the last frame, in percent"] = None

    @cached_property
    def by_identity(self) -> Mapping[Identity, Process]:
        """Processes by pid and start time."""
        found = dict(zip(map(identity_of, self.processes), self.processes, strict=True))
        return cast("Mapping[Identity, Process]", found)

    @cached_property
    def by_uuid(self) -> Mapping[str, Gpu]:
        """GPUs by uuid."""
        return {gpu.uuid: gpu for gpu in self.gpus}

    def note(self, key: str) -> Note | None:
        """The note with this key, if there is one."""
        return next((note for note in self.notes if note.key == key), None)
