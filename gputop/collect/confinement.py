"""What confines some processes: limits of their control group and of its ancestors, and how hard they are hit."""

from __future__ import annotations

from math import inf
from typing import Any

from gputop.collect.growth import Ledger
from gputop.collect.hierarchy import Cgroups, Group, Limit, Membership, smallest
from gputop.collect.kernel import reason
from gputop.collect.stalls import RESOURCES, UNLOCK, Stalls
from gputop.model import Cgroup, Missing, metrics

FILLS = tuple(f"cgroup.{metric.name}" for metric in metrics(Cgroup))
LIMITS_EVERY_S = 30.0
PARTS_EVERY_S = 5.0  # the kernel adds up memory.stat over all CPUs when it is asked
_PERIODS, _THROTTLED, _WAITED = range(3)
_MICROSECOND = 1e-6
_NOT_HERE = "its part of the tree of control groups is not mounted here"


class Confinement:
    """The groups over one membership, read again and again."""

    def __init__(self, cgroups: Cgroups, membership: Membership, path: str) -> None:
        """`path` is the name the Cgroup gets."""
        self._cgroups, self._membership, self._path = cgroups, membership, path
        self._quotas: tuple[Limit, ...] = ()
        self._memory: Limit | None = None
        self._charged: Group | None = None
        self._limits_s = self._parts_s = -inf
        self._periods: Ledger[Group] = Ledger()
        self._events: Ledger[Group] = Ledger()
        self._refaults: Ledger[Group] = Ledger()
        self._stalls = Stalls()
        self._parts: dict[str, Any] = {}

    def read(self, now_s: float) -> Cgroup:
        """The limits as of the last 30 s, parts of the memory and pressure as of the last 5 s, the rest now."""
        if now_s - self._limits_s >= LIMITS_EVERY_S:
            self._find()
            self._limits_s = now_s  # last: who is interrupted by a file that hangs knows nothing
        if self._charged and now_s - self._parts_s >= PARTS_EVERY_S:
            self._parts = {**self._memory_parts(self._charged, now_s), **self._pressures(self._charged, now_s)}
            self._parts_s = now_s
        quota = smallest(self._quotas)
        return Cgroup(
            path=self._path,
            cpu_quota=quota.value if quota else None,
            memory_limit_bytes=int(self._memory.value) if self._memory else None,
            **self._throttling(now_s),
            **self._use(now_s),
            **self._parts,
        )

    def _find(self) -> None:
        cgroups, memory = self._cgroups, self._cgroups.groups(self._membership, "memory")
        self._quotas = cgroups.cpu_quotas(cgroups.groups(self._membership, "cpu"))
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

    def _memory_parts(self, charged: Group, now_s: float) -> dict[str, Any]:
        parts = self._cgroups.memory_parts(charged)
        growth = self._refaults.grown(now_s, {charged: (parts.refaults,)}).get(charged)
        return {
            "anonymous_bytes": parts.anonymous,
            "file_bytes": parts.file,
            "shared_bytes": parts.shared,
            "refaults_per_s": growth.per_s(0) if growth else None,
        }

    def _pressures(self, charged: Group, now_s: float) -> dict[str, Any]:
        try:
            files = {resource: self._cgroups.pressure(charged, resource) for resource in RESOURCES}
            found = self._stalls.pressures(now_s, files)
        except (OSError, ValueError, LookupError) as error:
            unlock = UNLOCK if charged.version == 2 else "version 1 of control groups has none"
            return {"missing": (Missing(metric="pressure", reason=reason(error), unlock=unlock),)}
        return {f"{resource}_pressure": pressure for resource, pressure in found.items()}
