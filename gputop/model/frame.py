"""A frame: everything known at one moment, immutable, the one thing that travels."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Literal, cast

from gputop.frozen_dataclass import frozen_dataclass
from gputop.model.gpu import Gpu
from gputop.model.host import Cgroup, Host
from gputop.model.process import Identity, Job, Process, identity_of

Witness = Literal["stack", "trace", "notes", "meter"]


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One thing that a profile of stacks, a trace, or the notes of the program itself say of a process."""

    process: Annotated[Identity, "whom it is said of"]
    witness: Annotated[Witness, "who says it"]
    name: Annotated[str, "what it is, for the rules: loads-in-main, launch-bound"]
    text: Annotated[str, "the same in words, with its numbers"]
    share: Annotated[float | None, "of the time, 0 to 1"] = None
    age_s: Annotated[float, "how old it is at this frame, in seconds"] = 0.0


Subject = Literal["driver", "processes", "host", "monitor"]


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """One line for the header or an empty state: what is wrong, and lines that help."""

    subject: Annotated[Subject, "what it is about"]
    key: Annotated[str, "its name, for programs: no-library, mismatch, or one of your own"]
    text: Annotated[str, "one line: what is wrong"]
    help: Annotated[tuple[str, ...], "lines that say what to do about it; commands stand in backticks"] = ()


@frozen_dataclass(frozen=True, kw_only=True)
class Frame:
    """One look at the machine. `mono_s` is for rates and ages, `wall_s` for people."""

    wall_s: Annotated[float, "when it was taken, in seconds since 1970-01-01 UTC, by the wall clock"]
    mono_s: Annotated[float, "the same by a clock that never jumps, from any beginning"]
    hostname: Annotated[str, "name of the machine"]
    host: Annotated[Host, "the machine around the GPUs"]
    gpus: Annotated[tuple[Gpu, ...], "GPUs and MIG instances, as the driver orders them"] = ()
    processes: Annotated[tuple[Process, ...], "processes that are in a job, on a GPU or busy"] = ()
    jobs: Annotated[tuple[Job, ...], "jobs that these processes are of"] = ()
    cgroups: Annotated[tuple[Cgroup, ...], "what confines trainers, each once"] = ()
    notes: Annotated[tuple[Note, ...], "what is wrong or unusual"] = ()
    facts: Annotated[
        tuple[Fact, ...], "what was told of processes lately, all of it in every frame: one may begin anywhere"
    ] = ()
    viewer_uid: Annotated[int | None, "uid of who looks"] = None
    late_s: Annotated[float, "how much later than planned it was taken, in seconds"] = 0.0
    cost_percent: Annotated[float | None, "CPU time of this monitor since the last frame, in percent of one core"] = (
        None
    )
    driver_percent: Annotated[float | None, "time spent inside driver calls since the last frame, in percent"] = None

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
