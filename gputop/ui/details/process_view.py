"""One open process at one moment: all that its screen is drawn from."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from gputop.diagnose import Finding
from gputop.frozen_dataclass import frozen_dataclass
from gputop.model import PARTS, Detail, Frame, GpuShare, Identity, Job, Missing, Part, Process, Relative, Role
from gputop.ui.gpus.state import GpuHistory
from gputop.ui.theme import Look


@frozen_dataclass(frozen=True, kw_only=True)
class ProcessView:
    """The newest of a process; of one that has ended, the last."""

    process: Process
    frame: Frame  # the newest one that has the process
    found: Detail | Missing
    past: GpuHistory
    look: Look
    findings: Sequence[Finding] = ()  # what the rules say of anything
    gone: str = ""  # why it is not of now: exited 12s ago

    @property
    def detail(self) -> Detail:
        """What the kernel reports of it; without any, a detail in which every part is missing for that reason."""
        if isinstance(self.found, Detail):
            return self.found
        why = self.found
        missing = tuple(Missing(metric=part, reason=why.reason, unlock=why.unlock) for part in PARTS)
        return Detail(identity=self.process.identity, mono_s=self.frame.mono_s, missing=missing)

    def why(self, part: Part) -> Missing:
        """Why a part of it is not there."""
        given = (missing for missing in self.detail.missing if missing.metric == part)
        return next(given, Missing(metric=part, reason="stale"))

    @property
    def others(self) -> bool:
        """Whether it is known to be of another user than ours."""
        return None not in (self.process.uid, self.frame.viewer_uid) and self.process.uid != self.frame.viewer_uid

    @cached_property
    def job(self) -> Job | None:
        """The job it belongs to."""
        return next((job for job in self.frame.jobs if job.key == self.process.job), None)

    @cached_property
    def parents(self) -> list[Process]:
        """Its parents in the frame, the nearest first: up to the first one that is not there."""
        one, found = self.process, []
        there = {each.pid: each for each in self.frame.processes if each.verified and each.pid != one.pid}
        while (parent := there.pop(one.parent_pid, None)) and parent.started_ticks <= one.started_ticks:
            found.append(parent)
            one = parent
        return found

    @cached_property
    def children(self) -> list[Process]:
        """Its children in the frame, by pid."""
        mine = self.process
        found = (
            one
            for one in self.frame.processes
            if one.parent_pid == mine.pid and one.started_ticks >= mine.started_ticks and mine.pid
        )
        return sorted(found, key=lambda one: one.pid)

    @cached_property
    def loaders(self) -> list[Process]:
        """Those of its children that load data."""
        return [one for one in self.children if one.role is Role.LOADER]

    @cached_property
    def relatives(self) -> dict[Identity, Relative]:
        """Its children, from the details."""
        return {one.identity: one for one in self.detail.children or ()}

    @cached_property
    def indexes(self) -> str:
        """Its GPUs as people number them: 0, or 0-3; nothing if it has none."""
        return ",".join(self.index(share) for share in self.process.gpus)

    def index(self, share: GpuShare) -> str:
        """The number of a GPU; of one that is not there, the beginning of its uuid."""
        gpu = self.frame.by_uuid.get(share.uuid)
        return gpu.index if gpu else share.uuid[:12]
