"""Control groups: the tree, the smallest limit above a process, pressure, and how hard a limit is hit."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from math import inf
from typing import Any, NamedTuple

from gputop.collect import filesystems
from gputop.collect.kernel_files import Kernel, reason
from gputop.collect.lane import LaneSilent
from gputop.collect.rates import Growth, Ledger
from gputop.model import Cgroup, Missing, Pressure, metrics
from gputop.safe.text import decode

UNIFIED = ""  # the key of version 2 in a Membership
Membership = Mapping[str, str]  # controller to path

_UNLIMITED = 1 << 60  # version 1 says "no limit" as the largest page-aligned number
_UNDER_SYS = "/sys/"
_CPUSET = ("cpuset.cpus.effective",)
_CPUSET_OLD = ("cpuset.effective_cpus", "cpuset.cpus")


class CgroupFolder(NamedTuple):
    """One folder of a cgroup file system, as a name below /sys."""

    version: int
    name: str


class CgroupLimit(NamedTuple):
    """A limit and the group that sets it."""

    value: float
    group: CgroupFolder


class CpuCounts(NamedTuple):
    """Periods of a CPU quota so far, those in which it ran out, and the time all its CPUs waited for the next one."""

    periods: int
    throttled: int
    waited_us: int | None


class MemoryEvents(NamedTuple):
    """How often a group was slowed down at memory.high, hit its limit, was out of memory, lost a process to that."""

    slowed: int | None
    limit_hits: int | None
    out_of_memory: int | None
    kills: int | None


class MemoryParts(NamedTuple):
    """Bytes of programs, of page cache with shared memory, of shared memory; file pages dropped too early so far."""

    anonymous: int | None
    file: int | None
    shared: int | None
    refaults: int | None


class _Hierarchy(NamedTuple):
    version: int
    root: str  # the group that its mount point shows
    name: str


def membership(raw: bytes) -> Membership:
    """The text of /proc/PID/cgroup as controller to path; cleaned, `name=systemd` and the like left out."""
    found: dict[str, str] = {}
    for line in raw.split(b"\n"):  # not splitlines: a name may hold a carriage return
        _, _, rest = line.partition(b":")
        controllers, colon, path = rest.partition(b":")
        if colon:
            for controller in decode(controllers).split(","):
                if not controller.startswith("name="):
                    found[controller] = decode(path)
    return found


def called(of: Membership) -> str | None:
    """The path by which to call the group of a process: that of what limits its memory, else its CPUs.

    A path of version 2 on a host where version 1 has the controllers limits nothing, and may be the same for all jobs.
    """
    paths = (of.get(key, "") for key in ("memory", "cpu", UNIFIED))
    return next((path for path in paths if path.strip("/.")), None)


class Cgroups:
    """The cgroup file systems as they are mounted here."""

    def __init__(self, kernel: Kernel, mounts: bytes) -> None:
        """`mounts` is the text of /proc/self/mountinfo."""
        self._kernel = kernel
        self._hierarchies: dict[str, list[_Hierarchy]] = {}
        for mount in filesystems.parse_mountinfo(mounts):
            if mount.kind in ("cgroup", "cgroup2") and mount.path.startswith(_UNDER_SYS):
                version = 2 if mount.kind == "cgroup2" else 1
                hierarchy = _Hierarchy(version, mount.root, mount.path[len(_UNDER_SYS) :])
                for controller in (UNIFIED,) if version == 2 else mount.options:
                    self._hierarchies.setdefault(controller, []).append(hierarchy)

    def groups(self, of: Membership, controller: str) -> tuple[CgroupFolder, ...]:
        """The group that rules a process and its ancestors, innermost first; nothing where it cannot be seen.

        In a namespace only the groups below its root are ancestors; a process outside of it (`0::/../..`) has none.
        """
        # a controller belongs to one version at a time: one bound in version 1 has no files in version 2
        for key in (controller, UNIFIED):
            if key in of:
                for hierarchy in self._hierarchies.get(key, ()):
                    if found := _walk(hierarchy, of[key]):
                        return found
        return ()

    def cpu_quotas(self, groups: Iterable[CgroupFolder]) -> tuple[CgroupLimit, ...]:
        """The CPU quotas that are set, in cores, innermost first."""
        return _set((self._cores(group), group) for group in groups)

    def cpuset(self, groups: Iterable[CgroupFolder]) -> str | None:
        """The CPUs that the innermost group with a cpuset may use, as a list of ranges; none if no group says."""
        for group in groups:
            names = _CPUSET if group.version == 2 else _CPUSET_OLD
            if found := next(filter(None, (self._kernel.word(f"{group.name}/{name}") for name in names)), None):
                return found
        return None

    def memory_limits(self, groups: Iterable[CgroupFolder]) -> tuple[CgroupLimit, ...]:
        """The memory limits that are set, in bytes, innermost first."""
        return _set((self._memory(group), group) for group in groups)

    def memory_used(self, group: CgroupFolder) -> int | None:
        """Bytes that are charged to a group, page cache included; the root of version 2 has no such file."""
        return self._kernel.number(
            f"{group.name}/{'memory.current' if group.version == 2 else 'memory.usage_in_bytes'}"
        )

    def cpu_counts(self, group: CgroupFolder) -> CpuCounts | None:
        """How often a quota ran out; None where no quota is counted."""
        stat = self._table(f"{group.name}/cpu.stat")
        if "nr_periods" not in stat or "nr_throttled" not in stat:
            return None
        nanoseconds = stat.get("throttled_time")  # version 1
        waited_us = stat.get("throttled_usec") if nanoseconds is None else nanoseconds // 1000
        return CpuCounts(stat["nr_periods"], stat["nr_throttled"], waited_us)

    def memory_events(self, group: CgroupFolder) -> MemoryEvents:
        """What happened so far because of its memory limits."""
        if group.version == 2:
            found = self._table(f"{group.name}/memory.events").get
            return MemoryEvents(found("high"), found("max"), found("oom"), found("oom_kill"))
        hits = self._kernel.number(f"{group.name}/memory.failcnt")
        return MemoryEvents(None, hits, None, self._table(f"{group.name}/memory.oom_control").get("oom_kill"))

    def memory_parts(self, group: CgroupFolder) -> MemoryParts:
        """What the memory of a group is used for, descendants included."""
        found = self._table(f"{group.name}/memory.stat").get
        if group.version == 2:
            refaults = found("workingset_refault_file", found("workingset_refault"))  # split in Linux 5.9
            return MemoryParts(found("anon"), found("file"), found("shmem"), refaults)
        return MemoryParts(found("total_rss"), found("total_cache"), found("total_shmem"), None)

    def pressure(self, group: CgroupFolder, resource: str) -> bytes:
        """The text of its pressure file for cpu, memory or io; OSError where there is none, as in version 1."""
        return self._kernel.sys(f"{group.name}/{resource}.pressure")

    def _cores(self, group: CgroupFolder) -> float | None:
        if group.version == 2:
            quota, _, period = (self._kernel.word(f"{group.name}/cpu.max") or "").partition(" ")
            try:
                return int(quota) / int(period)
            except (ValueError, ZeroDivisionError):
                return None
        quota_us = self._kernel.number(f"{group.name}/cpu.cfs_quota_us")
        period_us = self._kernel.number(f"{group.name}/cpu.cfs_period_us")
        return quota_us / period_us if quota_us and period_us and quota_us > 0 else None

    def _memory(self, group: CgroupFolder) -> float | None:
        limit = self._kernel.number(f"{group.name}/{'memory.max' if group.version == 2 else 'memory.limit_in_bytes'}")
        return limit if limit is not None and limit < _UNLIMITED else None

    def _table(self, name: str) -> dict[str, int]:
        try:
            lines = self._kernel.sys(name).decode("ascii", "replace").splitlines()
        except LaneSilent:
            raise
        except OSError:
            return {}
        return {key: int(value) for key, _, value in (line.partition(" ") for line in lines) if value.isdecimal()}


def mounted(kernel: Kernel) -> Cgroups:
    """The cgroup file systems of this machine; none where the mount table cannot be read."""
    try:
        return Cgroups(kernel, kernel.proc("self/mountinfo"))
    except OSError:
        return Cgroups(kernel, b"")


def _walk(hierarchy: _Hierarchy, path: str) -> tuple[CgroupFolder, ...]:
    """The group at `path` and its ancestors up to what is mounted."""
    if ".." in path.split("/") or ".." in hierarchy.root.split("/"):
        return ()
    root = hierarchy.root.rstrip("/")
    if not f"{path}/".startswith(f"{root}/"):
        return ()
    below = re.findall(r"[^/]+", path[len(root) :])
    return tuple(
        CgroupFolder(hierarchy.version, "/".join((hierarchy.name, *below[:depth])))
        for depth in range(len(below), -1, -1)
    )


def smallest(limits: Iterable[CgroupLimit]) -> CgroupLimit | None:
    """The one that counts; None without any."""
    return min(limits, key=lambda limit: limit.value, default=None)


def _set(limits: Iterable[tuple[float | None, CgroupFolder]]) -> tuple[CgroupLimit, ...]:
    return tuple(CgroupLimit(value, group) for value, group in limits if value is not None)


RESOURCES = ("cpu", "memory", "io")
UNLOCK = "boot with psi=1"
_MICROSECOND = 1e-6


class Stalls:
    """The last sample of the files of one machine or one control group."""

    def __init__(self) -> None:
        self._stalled: Ledger[tuple[str, str]] = Ledger()

    def pressures(self, now_s: float, files: Mapping[str, bytes]) -> dict[str, Pressure]:
        """The pressure of each resource, from the text of its file; ValueError or KeyError for text that is none."""
        lines = {resource: _lines(raw) for resource, raw in files.items()}
        totals = {(resource, kind): (total,) for resource in lines for kind, (total, _) in lines[resource].items()}
        grown = self._stalled.grown(now_s, totals)
        return {
            resource: Pressure(
                some_percent=_share(grown.get((resource, "some"))),
                full_percent=_share(grown.get((resource, "full"))),
                some_avg10_percent=found["some"][1],
            )
            for resource, found in lines.items()
        }


def _lines(raw: bytes) -> dict[str, tuple[int, float]]:
    """`some avg10=0.33 avg60=0.76 avg300=0.35 total=5089576`: its total in us and its average, by kind."""
    found = {}
    for line in raw.decode("ascii", "replace").splitlines():
        kind, *pairs = line.split()
        values = dict(pair.split("=", 1) for pair in pairs)
        found[kind] = int(values["total"]), float(values["avg10"])
    return found


def _share(growth: Growth | None) -> float | None:
    return growth.percent(0, _MICROSECOND) if growth else None


FILLS = tuple(f"cgroup.{metric.name}" for metric in metrics(Cgroup))
LIMITS_EVERY_S = 30.0
PARTS_EVERY_S = 5.0  # the kernel adds up memory.stat over all CPUs when it is asked
_PERIODS, _THROTTLED, _WAITED = range(3)
_NOT_HERE = "its part of the cgroup hierarchy is not mounted here"


class Confinement:
    """The groups over one membership, read again and again."""

    def __init__(self, cgroups: Cgroups, membership: Membership, path: str) -> None:
        """`path` is the name the Cgroup gets."""
        self._cgroups, self._membership, self._path = cgroups, membership, path
        self._quotas: tuple[CgroupLimit, ...] = ()
        self._memory: CgroupLimit | None = None
        self._cpus: str | None = None
        self._charged: CgroupFolder | None = None
        self._limits_s = self._parts_s = -inf
        self._periods: Ledger[CgroupFolder] = Ledger()
        self._events: Ledger[CgroupFolder] = Ledger()
        self._refaults: Ledger[CgroupFolder] = Ledger()
        self._stalls = Stalls()
        self._parts: dict[str, Any] = {}

    def read(self, now_s: float) -> Cgroup:
        """The limits as of the last 30 s, parts of the memory and pressure as of the last 5 s, the rest now."""
        if now_s - self._limits_s >= LIMITS_EVERY_S:
            self._find()
            self._limits_s = now_s  # last: a reader that a hanging file interrupts knows nothing
        if self._charged and now_s - self._parts_s >= PARTS_EVERY_S:
            self._parts = {**self._memory_parts(self._charged, now_s), **self._pressures(self._charged, now_s)}
            self._parts_s = now_s
        quota = smallest(self._quotas)
        return Cgroup(
            path=self._path,
            cpus=self._cpus,
            cpu_quota=quota.value if quota else None,
            memory_limit_bytes=int(self._memory.value) if self._memory else None,
            **self._throttling(now_s),
            **self._use(now_s),
            **self._parts,
        )

    def _find(self) -> None:
        cgroups, memory = self._cgroups, self._cgroups.groups(self._membership, "memory")
        self._quotas = cgroups.cpu_quotas(cgroups.groups(self._membership, "cpu"))
        self._cpus = cgroups.cpuset(cgroups.groups(self._membership, "cpuset"))
        self._memory = smallest(cgroups.memory_limits(memory))
        # use and limit must be of one group, or their ratio means nothing
        charged = self._memory.group if self._memory else next(iter(memory), None)
        if charged != self._charged:
            self._charged, self._parts, self._parts_s, self._stalls = charged, {}, -inf, Stalls()
        if charged is None:
            self._parts = {"missing": (Missing(metric="memory_used_bytes", reason="absent", unlock=_NOT_HERE),)}

    def _throttling(self, now_s: float) -> dict[str, Any]:
        """Of the quota that ran out most: a group may be stopped by one of its ancestors, for what others use."""
        counts = {quota.group: self._cgroups.cpu_counts(quota.group) for quota in self._quotas}
        grown = self._periods.grown(now_s, {group: count for group, count in counts.items() if count}).values()
        shares = [100 * share for growth in grown if (share := growth.mean(_THROTTLED, _PERIODS)) is not None]
        waited = [per_s * _MICROSECOND for growth in grown if (per_s := growth.per_s(_WAITED)) is not None]
        return {
            "throttled_percent": min(100.0, max(shares)) if shares else None,
            "throttled_cpus": max(waited, default=None),
        }

    def _use(self, now_s: float) -> dict[str, Any]:
        if self._charged is None:
            return {}
        events = self._cgroups.memory_events(self._charged)
        growth = self._events.grown(now_s, {self._charged: (events.slowed, events.limit_hits)}).get(self._charged)
        return {
            "memory_used_bytes": self._cgroups.memory_used(self._charged),
            "slowed_per_s": growth.per_s(0) if growth else None,
            "limit_hits_per_s": growth.per_s(1) if growth else None,
            "oom_count": events.out_of_memory,
            "oom_kills": events.kills,
        }

    def _memory_parts(self, charged: CgroupFolder, now_s: float) -> dict[str, Any]:
        parts = self._cgroups.memory_parts(charged)
        growth = self._refaults.grown(now_s, {charged: (parts.refaults,)}).get(charged)
        return {
            "anonymous_bytes": parts.anonymous,
            "file_bytes": parts.file,
            "shared_bytes": parts.shared,
            "refaults_per_s": growth.per_s(0) if growth else None,
        }

    def _pressures(self, charged: CgroupFolder, now_s: float) -> dict[str, Any]:
        try:
            files = {resource: self._cgroups.pressure(charged, resource) for resource in RESOURCES}
            found = self._stalls.pressures(now_s, files)
        except (OSError, ValueError, LookupError) as error:
            unlock = UNLOCK if charged.version == 2 else "not available with cgroup v1"
            return {"missing": (Missing(metric="pressure", reason=reason(error), unlock=unlock),)}
        return {f"{resource}_pressure": pressure for resource, pressure in found.items()}
