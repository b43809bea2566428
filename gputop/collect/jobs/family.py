"""The job that any process belongs to, by all that its command started: for commands that name one pid of a job."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from gputop.collect.jobs.ancestry import CommandGroup, Parentage
from gputop.collect.jobs.groups import jobs
from gputop.collect.jobs.launchers import stem
from gputop.model import Frame, Identity, Job, Process, Role
from gputop.model.process import changed
from gputop.safe.text import decode

MOST_THREADS = 4096  # of one process that are read


def family(processes: Sequence[Process], pid: int) -> set[int]:
    """The pids of all that the command of a process started."""
    seen = [process for process in processes if process.unseen is None]
    tree = Parentage({process.pid: process.parent_pid for process in seen})
    return tree.family(pid, {process.pid: CommandGroup(process.name, process.group) for process in seen})


def recognized(frame: Frame, pid: int, proc: str = "/proc") -> Frame:
    """The frame with its jobs recognised again, by the threads of all that the command of a process started.

    Only the threads of those that seem to train are sampled as time goes on, and a rank that waits does not.
    """
    kin = family(frame.processes, pid)
    renamed = [
        changed(process, thread_names=names)
        if process.pid in kin and (names := thread_names(process.pid, proc))
        else process
        for process in frame.processes
    ]
    processes, found = jobs(renamed, tuple(gpu.uuid for gpu in frame.gpus))
    return replace(frame, processes=processes, jobs=found)


def jobs_of(frame: Frame, process: Process) -> tuple[Job, ...]:
    """The job of a process; of one that is in none, as a shell that started some, those of its descendants."""
    own = tuple(job for job in frame.jobs if job.key == process.job)
    if own:
        return own
    tree = Parentage({one.pid: one.parent_pid for one in frame.processes if one.unseen is None})
    below = tree.below([process.pid])
    return tuple(job for job in frame.jobs if job.members and job.members[0].pid in below)


def first_of(frame: Frame, job: Job) -> Process | None:
    """The only rank of a job, or the one that all others stem from and that talks to none; None where there is none."""
    tree = Parentage({one.pid: one.parent_pid for one in frame.processes if one.unseen is None})
    ranks = [frame.by_identity[identity] for identity in job.ranks]
    first = next((rank for rank in ranks if {one.pid for one in ranks} - {rank.pid} <= tree.below([rank.pid])), None)
    return first if first is not None and not (len(ranks) > 1 and first.talks) else None


def handed_on(frame: Frame, process: Process, ranks: Sequence[Process]) -> Frame:
    """The frame with these as the ranks of the job of a process, which only started them; in order of their start."""
    key = process.job or f"{process.pid}.{process.started_ticks}"
    ranks = sorted(ranks, key=lambda one: (one.started_ticks, one.pid))
    numbers: dict[Identity, int | None] = {one.identity: number for number, one in enumerate(ranks)}
    if len(ranks) == 1:
        numbers[ranks[0].identity] = process.rank
    tree = Parentage({one.pid: one.parent_pid for one in frame.processes if one.unseen is None})
    below = tree.below([process.pid])
    old = next((job for job in frame.jobs if job.key == key), None)
    before = set(old.ranks) if old else set()

    def part(one: Process) -> Process:
        if one.identity in numbers:
            return changed(one, role=Role.TRAINER, rank=numbers[one.identity], job=key)
        if one.identity == process.identity:
            return changed(one, role=Role.LAUNCHER, rank=None, job=key)
        if one.identity in before or (one.pid in below and one.job is None):
            return changed(one, role=Role.OTHER, rank=None, job=key)
        return one

    parts = tuple(part(one) for one in frame.processes)
    if old is None:
        started = sorted((one.started_ticks, one.pid, one.identity) for one in frame.processes if one.pid in below)
        members = (process.identity, *(identity for _, _, identity in started))
        new = Job(key=key, name=stem(process), user=process.user, launcher="python", members=members)
        return replace(frame, processes=parts, jobs=(*frame.jobs, replace(new, ranks=tuple(numbers))))
    jobs_now = tuple(replace(one, ranks=tuple(numbers)) if one.key == key else one for one in frame.jobs)
    return replace(frame, processes=parts, jobs=jobs_now)


def rank_of(frame: Frame, process: Process) -> Process | None:
    """The rank that a process works for, as its loader or another child; the process itself if it is one."""
    above: Process | None = process
    by_pid = {one.pid: one for one in frame.processes if one.job == process.job and one.job is not None}
    for _ in range(len(by_pid)):
        if above is None or above.role is Role.TRAINER:
            return above
        above = by_pid.get(above.parent_pid)
    return None


def thread_names(pid: int, proc: str = "/proc") -> tuple[tuple[str, int], ...]:
    """Names of the threads of a process and how many have each, the most first; nothing where they are hidden."""
    names: Counter[str] = Counter()
    try:
        tids = os.listdir(f"{proc}/{pid}/task")[:MOST_THREADS]
    except OSError:
        return ()
    for tid in tids:
        try:
            with open(f"{proc}/{pid}/task/{tid}/comm", "rb") as file:
                names[decode(file.read(64).rstrip(b"\n"))] += 1
        except OSError:
            continue
    return tuple(names.most_common())
