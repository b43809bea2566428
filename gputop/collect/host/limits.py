"""The limits under which this monitor itself runs; in a container they are those of the job."""

from __future__ import annotations

import os
from math import inf

from gputop.collect import confinement
from gputop.collect.confinement import Confinement
from gputop.collect.hierarchy import Cgroups, Membership, called, membership
from gputop.collect.kernel import Kernel
from gputop.model import Host

_LOOK_AGAIN_S = 30.0  # somebody may move us to another group


class Limits:
    """CPUs that may be used, memory that may be had, and how hard the limits are hit."""

    fills = ("cpus_allowed", "cgroup", *confinement.FILLS)
    every_s = 0.0

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._own: Membership | None = None
        self._confinement: Confinement | None = None
        self._looked_s = -inf

    def read(self, now_s: float) -> Host:
        """The limits as of the last 30 s, their use now."""
        if self._confinement is None or now_s - self._looked_s >= _LOOK_AGAIN_S:
            self._confinement = self._found(self._confinement)
            self._looked_s = now_s
        cpus, cgroup = float(len(os.sched_getaffinity(0))), self._confinement.read(now_s)
        return Host(cpus_allowed=cpus if cgroup.cpu_quota is None else min(cpus, cgroup.cpu_quota), cgroup=cgroup)

    def _found(self, known: Confinement | None) -> Confinement:
        own = membership(self._kernel.proc("self/cgroup"))
        if known and own == self._own:
            return known
        self._own = own
        return Confinement(Cgroups(self._kernel, self._kernel.proc("self/mountinfo")), own, called(own) or "/")
