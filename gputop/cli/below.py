"""Which program below a process does its work, where no job is known: a shell, a wrapper, a parent that only waits."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from gputop.model import Frame, Process, Role
from gputop.profile.code import Call

_WINDOW_S = 0.5  # over which CPU time is compared
_WAITS_S = 0.02  # of CPU in that time: a process that uses less only waits
_TRIES = 5  # such times, where nothing has used any
_MOST = 256  # descendants that are read
_TORCH = b"/libtorch"
_JOINS = (("join", "multiprocessing/process.py"), ("join", "multiprocessing/spawn.py"), ("_wait", "/subprocess.py"))

Cpu = Callable[[Sequence[int]], dict[int, float]]


class Below(NamedTuple):
    """The programs below a process that do its work, the busiest first; those of which it cannot be told."""

    work: tuple[Process, ...] = ()
    perhaps: tuple[Process, ...] = ()


def workers(
    frame: Frame, process: Process, cpu: Cpu | None = None, joining: Callable[[], bool] = lambda: False
) -> Below:
    """What of the programs below a process does its work; none where it does that itself.

    A process on a GPU, and one with torch that works, is a trainer itself. One with torch that waits may train as
    well, fed by its children: they do the work where their agents have seen them make steps, or where it is seen
    `joining` them.
    """
    from gputop.actions.tracing.routes import python_version
    from gputop.agent_client import mapped
    from gputop.collect.jobs.kin import Tree

    if process.gpus or process.unseen is not None:
        return Below()
    tree = Tree({one.pid: one.parent_pid for one in frame.processes if one.unseen is None})
    # what runs gputop, as a login shell, is no job of its own
    ours = {os.getpid(), *tree.above(os.getpid()), *tree.below([os.getpid()])}
    below = tree.below([process.pid]) - ours
    by_pid = {one.pid: one for one in frame.processes if one.pid in below}
    own = python_version(process.pid) is not None
    trains = own and _TORCH in mapped(process.pid)  # else what its children do is no loading for it
    programs = _programs(by_pid)
    steps = [one for one in programs if trains and runs_for(process, one) and _makes_steps(one)]
    programs = steps or [one for one in programs if not (trains and one.role is Role.LOADER)]
    torch = {one.pid for one in programs if _TORCH in mapped(one.pid)}
    chosen = [one for one in programs if one.gpus] or [one for one in programs if one.pid in torch] or programs
    if not chosen or (own and not any(one.gpus or one.pid in torch for one in chosen)):
        return Below()
    measured = _measured([process.pid, *(one.pid for one in chosen)], cpu or used, _TRIES if trains else 1)
    busy = [one for one in chosen if measured.get(one.pid, 0.0) >= _WAITS_S]
    if trains:
        if measured.get(process.pid, _WAITS_S) >= _WAITS_S or _has_loaders(by_pid):
            return Below()
        if not (steps or chosen == busy[:1] or joining()):
            return Below(perhaps=tuple(chosen))
        if busy and not steps:  # beside them may be one that only holds a queue
            chosen = [one for one in chosen if measured.get(one.pid, 0.0) > 0]
    outer = [one for one in chosen if {other.pid for other in chosen}.isdisjoint(tree.above(one.pid))]
    return Below(tuple(sorted(outer, key=lambda one: -measured.get(one.pid, 0.0))))


def _programs(below: Mapping[int, Process]) -> list[Process]:
    """Those that run Python, the lowest pid first; no loaders, and nothing of multiprocessing's own."""
    from gputop.actions.tracing.routes import python_version
    from gputop.collect.jobs.kin import LOADER
    from gputop.collect.jobs.launchers import is_service

    def serves(one: Process) -> bool:
        # what a fork server forked has its command line
        return is_service(one) and not ((parent := below.get(one.parent_pid)) and is_service(parent))

    return [
        one
        for one in sorted(below.values(), key=lambda one: one.pid)[:_MOST]
        if not serves(one) and not one.name.startswith(LOADER) and python_version(one.pid) is not None
    ]


def runs_for(process: Process, child: Process) -> bool:
    """Whether a child runs a function of a process, as multiprocessing has it: forked, or spawned for that."""
    from gputop.collect.jobs.launchers import is_service, is_spawned

    return is_spawned(child) or is_service(child) or (bool(child.command) and child.command == process.command)


def started_by(frame: Frame, process: Process) -> Process:
    """The outermost process that this one runs a function for; itself where it runs a program of its own."""
    from gputop.collect.jobs.launchers import is_python

    by_pid = {one.pid: one for one in frame.processes if one.unseen is None}
    above = process
    while (parent := by_pid.get(above.parent_pid)) is not None and is_python(above):
        if not runs_for(parent, above):
            break
        above = parent
    return above


def joins(calls: Sequence[Call]) -> bool:
    """Whether a main thread waits for processes to end, other than for its loaders at the end of an epoch."""
    waits = any(call.name.endswith(name) and call.file.endswith(file) for call in calls for name, file in _JOINS)
    return waits and not any(call.file.endswith("/dataloader.py") for call in calls)


def _makes_steps(process: Process) -> bool:
    """Whether an agent listens in what multiprocessing started: there it begins at the first step of an optimizer."""
    from gputop.agent_client import NoAgent, present

    try:
        return present(process.pid, process.started_ticks, process.uid)
    except NoAgent:
        return False


def _has_loaders(below: Mapping[int, Process]) -> bool:
    """Whether what is above all these has DataLoader workers of its own, not only those of its children."""
    from gputop.collect.jobs.kin import LOADER
    from gputop.collect.jobs.launchers import is_service

    for one in below.values():
        parent = below.get(one.parent_pid)
        if one.name.startswith(LOADER) and (parent is None or is_service(parent)):
            return True
    return False


def _measured(pids: Sequence[int], cpu: Cpu, tries: int) -> dict[int, float]:
    """What each uses; once more where neither of the first two did: on a busy machine it had no turn."""
    for _ in range(tries):
        measured = cpu(pids)
        if any(measured.get(pid, 0.0) >= _WAITS_S for pid in pids[:2]):
            break
    return measured


def used(pids: Sequence[int]) -> dict[int, float]:
    """CPU seconds that each uses in a moment."""
    before = _used(pids)
    time.sleep(_WINDOW_S)
    return {pid: cpu_s - before[pid] for pid, cpu_s in _used(pids).items() if pid in before}


def _used(pids: Collection[int]) -> dict[int, float]:
    from gputop.safe.identity import read_stat

    stats = {pid: stat for pid in pids if (stat := read_stat(pid)) is not None}
    tick = os.sysconf("SC_CLK_TCK")
    return {pid: ((stat.user_ticks or 0) + (stat.system_ticks or 0)) / tick for pid, stat in stats.items()}
