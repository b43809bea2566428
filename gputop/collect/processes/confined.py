"""The control groups of trainers: what confines a job that runs beside this monitor."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from gputop.collect.confinement import Confinement
from gputop.collect.gate import NoAnswer
from gputop.collect.hierarchy import Cgroups, mounted
from gputop.collect.kernel import Kernel
from gputop.collect.processes.cgroup import Place
from gputop.model import Cgroup

EVERY_S = 5.0
MOST = 64  # groups; a server has no more jobs than GPUs


class _Known:
    """One group, and what it was found to be."""

    def __init__(self, confinement: Confinement) -> None:
        self.confinement = confinement
        self.read_s = -inf
        self.latest: Cgroup | None = None


class Confined:
    """Each group is read once, however many processes are in it."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._cgroups: Cgroups | None = None
        self._known: dict[str, _Known] = {}

    def read(self, places: Iterable[Place], now_s: float) -> tuple[Cgroup, ...]:
        """The groups of these places by path, as of the last 5 s; one that is new is read at once."""
        wanted = {place.path: place for place in places}
        if self._cgroups is None:
            self._cgroups = mounted(self._kernel)
        self._known = {
            path: self._known.get(path) or _Known(Confinement(self._cgroups, wanted[path].membership, path))
            for path in sorted(wanted)[:MOST]
        }
        for known in self._known.values():
            if now_s - known.read_s >= EVERY_S:
                known.read_s = now_s
                try:
                    known.latest = known.confinement.read(now_s)
                except NoAnswer:
                    known.latest = None  # a group without limits would be a lie
        return tuple(known.latest for known in self._known.values() if known.latest is not None)
