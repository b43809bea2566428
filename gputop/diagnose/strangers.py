"""Who is not of a trainer's job: jobs tell, users and control groups do, and else which command started whom."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from gputop.diagnose.tree import DEEPEST
from gputop.model import Frame, Identity, Process


def strangers(frame: Frame, trainer: Process) -> Iterator[Process]:
    """Processes that are neither of its job, nor may be, nor started it."""
    by_pid = {process.pid: process for process in frame.processes if process.unseen is None}
    above = list(_line(by_pid, trainer))
    started = {one.identity for one in above}
    shells = {one.identity for one in _starters(above, trainer)} if trainer.group is not None else set()
    # in a pipe with it, or in one script; a launcher may give its ranks other groups than its own
    together = {None, *(one.group for one in (trainer, *above))}
    for process in by_pid.values():
        if process.identity in started:
            continue
        apart = process.job is None and process.group not in together
        if _claimed(process, trainer) or (apart and _another_command(_line(by_pid, process), trainer, shells)):
            yield process


def _starters(above: Sequence[Process], trainer: Process) -> Iterator[Process]:
    """Of who is above a trainer those that surely started what is below them.

    Whoever is first in its container, or in its control group, may have been given what others left over.
    """
    for one, its_parent in pairwise(above):
        if None is not one.cgroup == its_parent.cgroup == trainer.cgroup:
            yield one


def _claimed(process: Process, trainer: Process) -> bool:
    """Whether another job, another user or another control group has it."""
    if process.job is not None:
        return process.job != trainer.job
    return process.uid != trainer.uid or process.cgroup not in (None, trainer.cgroup)


def _another_command(above: Iterable[Process], trainer: Process, shells: Collection[Identity]) -> bool:
    """Whether who started the trainer started what has these above it with another command."""
    for one in above:
        if one.identity in shells:
            return True
        if one.identity == trainer.identity:
            break
    return False


def _line(by_pid: Mapping[int, Process], process: Process) -> Iterator[Process]:
    """Its parent, the parent of that, and so on."""
    for _ in range(DEEPEST):
        parent = by_pid.get(process.parent_pid)
        if parent is None:
            return
        yield parent
        process = parent
