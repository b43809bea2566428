"""What this machine is: kernel, CPU model, time since boot; and the limits under which this monitor itself runs."""

from __future__ import annotations

import os
import re
from math import inf

from gputop.collect import cgroups
from gputop.collect.cgroups import Cgroups, Confinement, Membership, called, membership
from gputop.collect.kernel_files import Kernel
from gputop.model import Host, Missing
from gputop.safe.text import decode

# x86 and arm servers, POWER, s390; arm64 without DMI says nothing
_MODEL = re.compile(rb"^(?:model name|Model Name|cpu|Processor)\s*:\s*(.+)$", re.MULTILINE)


class Hardware:
    """Kernel release and CPU model: they do not change while it runs."""

    fills = ("kernel", "cpu_model")
    every_s = 3600.0

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def read(self, now_s: float) -> Host:  # noqa: ARG002
        """The names as the kernel has them."""
        match = _MODEL.search(self._kernel.proc("cpuinfo"))
        unknown = Missing(
            metric="cpu_model", reason="absent", unlock="this CPU architecture does not report a model name"
        )
        return Host(
            kernel=decode(self._kernel.proc("sys/kernel/osrelease").strip()),
            cpu_model=decode(re.sub(rb"\s+", b" ", match[1]).strip(), 80) if match else None,
            missing=() if match else (unknown,),
        )


class Uptime:
    """Time since boot, of the clock that counts a suspend too."""

    fills = ("uptime_s",)
    every_s = 0.0

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def read(self, now_s: float) -> Host:  # noqa: ARG002
        """Seconds since boot."""
        return Host(uptime_s=float(self._kernel.proc("uptime").split()[0]))


_LOOK_AGAIN_S = 30.0  # gputop may be moved to another group


class MachineLimits:
    """CPUs that may be used, memory that may be had, and how hard the limits are hit."""

    fills = ("cpus_allowed", "cgroup", *cgroups.FILLS)
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
