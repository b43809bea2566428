"""Which program below a process does its work, where no job is known: a shell, a wrapper, a parent that only waits."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Sequence

from gputop.model import Frame, Process, Role

_WINDOW_S = 0.5  # over which CPU time is compared
_WAITS_S = 0.02  # of CPU in that time: a process that uses less only waits
_TRIES = 5  # such times, where nothing has used any
_MOST = 256  # descendants that are read
_TORCH = b"/libtorch"

Cpu = Callable[[Sequence[int]], dict[int, float]]


def workers(frame: Frame, process: Process, cpu: Cpu | None = None) -> tuple[Process, ...]:
    """The programs below a process that do its work, the busiest first; none where it does that itself.

    A process on a GPU, and one with torch that works or has several children, is a trainer itself.
    """
    from gputop.actions.tracing.agent import mapped
    from gputop.actions.tracing.routes import python_version
    from gputop.collect.jobs.kin import LOADER, Tree

    if process.gpus or process.unseen is not None:
        return ()
    tree = Tree({one.pid: one.parent_pid for one in frame.processes if one.unseen is None})
    # what runs gputop, as a login shell, is no job of its own
    ours = {os.getpid(), *tree.above(os.getpid()), *tree.below([os.getpid()])}
    below = tree.below([process.pid]) - ours
    by_pid = {one.pid: one for one in frame.processes if one.pid in below}
    own = python_version(process.pid) is not None
    trains = own and _TORCH in mapped(process.pid)  # else what its children do is no loading for it
    programs = [
        one
        for one in sorted(by_pid.values(), key=lambda one: one.pid)[:_MOST]
        if not (trains and one.role is Role.LOADER)
        and not one.name.startswith(LOADER)
        and python_version(one.pid) is not None
    ]
    torch = {one.pid for one in programs if _TORCH in mapped(one.pid)}
    chosen = [one for one in programs if one.gpus] or [one for one in programs if one.pid in torch] or programs
    if not chosen or (own and not any(one.gpus or one.pid in torch for one in chosen)):
        return ()
    measured = _measured([process.pid, *(one.pid for one in chosen)], cpu or used, _TRIES if trains else 1)
    if trains:
        loaders = any(one.role is Role.LOADER or one.name.startswith(LOADER) for one in by_pid.values())
        waits = measured.get(process.pid, _WAITS_S) < _WAITS_S <= measured.get(chosen[0].pid, 0.0)
        if loaders or len(chosen) > 1 or not waits:
            return ()
    outer = [one for one in chosen if {other.pid for other in chosen}.isdisjoint(tree.above(one.pid))]
    return tuple(sorted(outer, key=lambda one: -measured.get(one.pid, 0.0)))


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
