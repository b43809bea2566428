"""The trees of control groups: where a process is, and the smallest limit of its group and all ancestors in sight.

Version 1 has one tree for each controller, version 2 one for all, a hybrid host both.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from gputop.collect import mountinfo
from gputop.collect.gate import NoAnswer
from gputop.collect.kernel import Kernel
from gputop.safe.text import decode

UNIFIED = ""  # the key of version 2 in a Membership
Membership = Mapping[str, str]  # controller to path

_UNLIMITED = 1 << 60  # version 1 says "no limit" as the largest page-aligned number
_UNDER_SYS = "/sys/"


class Group(NamedTuple):
    """One folder of a cgroup file system, as a name below /sys."""

    version: int
    name: str


class Limit(NamedTuple):
    """A limit and the group that sets it."""

    value: float
    group: Group


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
        for mount in mountinfo.parse(mounts):
            if mount.kind in ("cgroup", "cgroup2") and mount.path.startswith(_UNDER_SYS):
                version = 2 if mount.kind == "cgroup2" else 1
                hierarchy = _Hierarchy(version, mount.root, mount.path[len(_UNDER_SYS) :])
                for controller in (UNIFIED,) if version == 2 else mount.options:
                    self._hierarchies.setdefault(controller, []).append(hierarchy)

    def groups(self, of: Membership, controller: str) -> tuple[Group, ...]:
        """The group that rules a process and its ancestors, innermost first; nothing where it cannot be seen.

        In a namespace only the groups below its root are ancestors; a process outside of it (`0::/../..`) has none.
        """
        # a controller belongs to one version at a time: who is bound in version 1 has no files in version 2
        for key in (controller, UNIFIED):
            if key in of:
                for hierarchy in self._hierarchies.get(key, ()):
                    if found := _walk(hierarchy, of[key]):
                        return found
        return ()

    def cpu_quotas(self, groups: Iterable[Group]) -> tuple[Limit, ...]:
        """The CPU quotas that are set, in cores, innermost first."""
        return _set((self._cores(group), group) for group in groups)

    def memory_limits(self, groups: Iterable[Group]) -> tuple[Limit, ...]:
        """The memory limits that are set, in bytes, innermost first."""
        return _set((self._memory(group), group) for group in groups)

    def memory_used(self, group: Group) -> int | None:
        """Bytes that are charged to a group, page cache included; the root of version 2 does not tell."""
        return self._kernel.number(
            f"{group.name}/{'memory.current' if group.version == 2 else 'memory.usage_in_bytes'}"
        )

    def cpu_counts(self, group: Group) -> CpuCounts | None:
        """How often a quota ran out; None where no quota is counted."""
        stat = self._table(f"{group.name}/cpu.stat")
        if "nr_periods" not in stat or "nr_throttled" not in stat:
            return None
        nanoseconds = stat.get("throttled_time")  # version 1
        waited_us = stat.get("throttled_usec") if nanoseconds is None else nanoseconds // 1000
        return CpuCounts(stat["nr_periods"], stat["nr_throttled"], waited_us)

    def memory_events(self, group: Group) -> MemoryEvents:
        """What happened so far because of its memory limits."""
        if group.version == 2:
            found = self._table(f"{group.name}/memory.events").get
            return MemoryEvents(found("high"), found("max"), found("oom"), found("oom_kill"))
        hits = self._kernel.number(f"{group.name}/memory.failcnt")
        return MemoryEvents(None, hits, None, self._table(f"{group.name}/memory.oom_control").get("oom_kill"))

    def memory_parts(self, group: Group) -> MemoryParts:
        """What the memory of a group is used for, descendants included."""
        found = self._table(f"{group.name}/memory.stat").get
        if group.version == 2:
            refaults = found("workingset_refault_file", found("workingset_refault"))  # split in Linux 5.9
            return MemoryParts(found("anon"), found("file"), found("shmem"), refaults)
        return MemoryParts(found("total_rss"), found("total_cache"), found("total_shmem"), None)

    def pressure(self, group: Group, resource: str) -> bytes:
        """The text of its pressure file for cpu, memory or io; OSError where there is none, as in version 1."""
        return self._kernel.sys(f"{group.name}/{resource}.pressure")

    def _cores(self, group: Group) -> float | None:
        if group.version == 2:
            quota, _, period = (self._kernel.word(f"{group.name}/cpu.max") or "").partition(" ")
            try:
                return int(quota) / int(period)
            except (ValueError, ZeroDivisionError):
                return None
        quota_us = self._kernel.number(f"{group.name}/cpu.cfs_quota_us")
        period_us = self._kernel.number(f"{group.name}/cpu.cfs_period_us")
        return quota_us / period_us if quota_us and period_us and quota_us > 0 else None

    def _memory(self, group: Group) -> float | None:
        limit = self._kernel.number(f"{group.name}/{'memory.max' if group.version == 2 else 'memory.limit_in_bytes'}")
        return limit if limit is not None and limit < _UNLIMITED else None

    def _table(self, name: str) -> dict[str, int]:
        try:
            lines = self._kernel.sys(name).decode("ascii", "replace").splitlines()
        except NoAnswer:
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


def _walk(hierarchy: _Hierarchy, path: str) -> tuple[Group, ...]:
    """The group at `path` and its ancestors up to what is mounted."""
    if ".." in path.split("/") or ".." in hierarchy.root.split("/"):
        return ()
    root = hierarchy.root.rstrip("/")
    if not f"{path}/".startswith(f"{root}/"):
        return ()
    below = re.findall(r"[^/]+", path[len(root) :])
    return tuple(
        Group(hierarchy.version, "/".join((hierarchy.name, *below[:depth]))) for depth in range(len(below), -1, -1)
    )


def smallest(limits: Iterable[Limit]) -> Limit | None:
    """The one that counts; None without any."""
    return min(limits, key=lambda limit: limit.value, default=None)


def _set(limits: Iterable[tuple[float | None, Group]]) -> tuple[Limit, ...]:
    return tuple(Limit(value, group) for value, group in limits if value is not None)
