"""One process as a filter sees it: what it is, what it shows, whom it works for."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

from gputop import labels
from gputop.model import Frame, Identity, Process
from gputop.process_totals import Figures, one
from gputop.ui.table.kin import members


class Subject:
    """One process as the filter sees it; a loader and a launcher count as being on the GPUs they work for."""

    def __init__(self, process: Process, frame: Frame, job: str, gpus: tuple[str, ...]) -> None:
        self.process, self.frame, self.job, self.gpus = process, frame, job, gpus

    @cached_property
    def figures(self) -> Figures:
        """What the columns show."""
        return one(self.process, self.frame)

    @cached_property
    def text(self) -> str:
        """What a plain word is looked for in."""
        process = self.process
        parts = (str(process.pid), process.user or "", self.job, labels.searched(process))
        return "\n".join(parts).casefold()


def subjects(frame: Frame) -> list[Subject]:
    """Every process with its job's name and the GPUs it works for."""
    names = {job.key: job.name for job in frame.jobs}
    by_job: dict[str, list[Process]] = {}
    for process in frame.processes:
        if process.job in names:
            by_job.setdefault(process.job, []).append(process)
    works_for: dict[Identity, tuple[str, ...]] = {}
    for processes in by_job.values():
        kin = members(processes)
        ranks: dict[Identity | None, tuple[str, ...]]
        ranks = {rank.identity: _indexes((rank,), frame) for rank in kin.ranks}
        everywhere = _indexes(processes, frame)
        for owner, loaders in kin.loaders.items():
            works_for.update({process.identity: ranks.get(owner, everywhere) for _, process in loaders})
        for owner, others in kin.others.items():
            works_for.update({process.identity: ranks.get(owner, everywhere) for process in others})
    return [
        Subject(
            process,
            frame,
            names.get(process.job or "", ""),
            _indexes((process,), frame) if process.gpus else works_for.get(process.identity, ()),
        )
        for process in frame.processes
    ]


def _indexes(processes: Iterable[Process], frame: Frame) -> tuple[str, ...]:
    gpus = frame.by_uuid
    return tuple({gpus[share.uuid].index for process in processes for share in process.gpus if share.uuid in gpus})


def using(frame: Frame, uuid: str) -> frozenset[Identity]:
    """The processes on a GPU or on an instance of it, and those that work for them."""
    gpu = frame.by_uuid.get(uuid)
    if gpu is None:
        return frozenset()
    return frozenset(
        subject.process.identity
        for subject in subjects(frame)
        if any(index == gpu.index or index.partition(":")[0] == gpu.index for index in subject.gpus)
    )
