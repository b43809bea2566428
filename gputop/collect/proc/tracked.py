"""What is read only of processes that are followed closely: I/O, scheduler, memory, limits, threads."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from gputop.collect.kernel_files import FdCache, Kernel, read_file
from gputop.collect.proc.cgroup import CgroupPath, Confined, Quota, Quotas
from gputop.collect.proc.proc_files import QUOTA, READINGS, Scale, Values
from gputop.collect.proc.process_state import ProcessState
from gputop.collect.proc.threads import ThreadSampler
from gputop.model import Cgroup

SLOW_EVERY_S = 5.0  # status and the like; of what is on the screen, on each tick

_VOLUNTARY, _INVOLUNTARY = "voluntary_switches_per_s", "involuntary_switches_per_s"
_QUICK = tuple(reading for reading in READINGS if reading.when == "tick")
_SLOW = tuple(reading for reading in READINGS if reading.when == "slow")
_SEEN = tuple(reading for reading in READINGS if reading.when == "seen")


class DetailReader:
    """Reads the other files of the few."""

    def __init__(self, root: str, sys: str, clock: Callable[[], float], shelf: FdCache) -> None:
        self._clock, self._shelf = clock, shelf
        gate = shelf.gate
        kernel = Kernel(root, sys, read=lambda path: gate.ask(path, read_file, path))
        self._quotas = Quotas(kernel)
        self._threads = ThreadSampler(root, clock, shelf)
        self._confined = Confined(kernel)

    def read(self, seen: ProcessState, opened: bool, shown: bool, place: CgroupPath | None, scale: Scale) -> None:
        """One tick of one process; a zombie and a thread of the kernel have no more values."""
        followed = seen.follow(self._shelf)
        if seen.stat.kernel_thread or (seen.stat.state in "ZX" and (seen.stat.threads or 0) <= 1):
            followed.bare()
            return
        now_s, fields = self._clock(), followed.fields
        for reading in _QUICK:
            followed.read(reading, now_s, scale)
        if shown != followed.shown:
            followed.show(shown, _SEEN, now_s)
        if opened or now_s >= followed.slow_s:
            part = seen.identity.pid % 10 / 10 if followed.slow_s == 0 else 0.0  # not all of them at the same tick
            followed.slow_s = now_s + SLOW_EVERY_S * (1 - part)
            for reading in (*_SLOW, *_SEEN) if shown else _SLOW:
                followed.read(reading, now_s, scale)
            followed.main_switches = fields.get(_VOLUNTARY), fields.get(_INVOLUNTARY)
            affinity = fields.get("affinity")
            if seen.named:  # else its quota is not known yet
                quota = None if place is None else self._quotas.over(place, now_s)
                if quota is not None and not quota.known:
                    followed.troubles[QUOTA] = "stale"
                else:
                    followed.troubles.pop(QUOTA, None)
                fields.update(_limits(quota, None if affinity is None else scale.cpus(affinity)))

    def sample(
        self, trainers: Iterable[ProcessState], opened: Iterable[ProcessState], everyone: Collection[ProcessState]
    ) -> None:
        """Threads of trainers in turn, all threads of what is open; then what follows from them for everyone."""
        self._threads.sample(
            {seen.identity: seen.stat.threads for seen in trainers},
            {seen.identity: seen.stat.threads for seen in opened},
        )
        now_s = self._clock()
        for seen in everyone:
            followed, identity = seen.follow(self._shelf), seen.identity
            fields = followed.fields
            fields.update(self._threads.values(identity, fields, seen.stat.threads))
            (asked, forced), others = followed.main_switches, self._threads.switching(identity)
            if others is not None and asked is not None and forced is not None:
                fields[_VOLUNTARY], fields[_INVOLUNTARY] = asked + others[0], forced + others[1]
            seen.watch(now_s, self._threads.blocked(identity))

    def confined(self, places: Iterable[CgroupPath]) -> tuple[Cgroup, ...]:
        """The control groups of these places."""
        return self._confined.read(places, self._clock())


def _limits(quota: Quota | None, allowed: int | None) -> Values:
    """The CPUs that an affinity and a quota leave; unknown with either of them."""
    if quota is None:
        return {"allowed_cpus": None if allowed is None else float(allowed)}
    known = [cpus for cpus in (allowed, quota.cores) if cpus is not None]
    return {
        "allowed_cpus": float(min(known)) if known and quota.known else None,
        "throttled_percent": quota.throttled_percent,
    }
