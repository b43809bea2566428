"""The limits under which this monitor itself runs; in a container they are those of the job."""

from __future__ import annotations

import os
from math import inf
from typing import NamedTuple

from gputop.collect.hierarchy import UNIFIED, Cgroups, Group, Limit, membership, smallest
from gputop.collect.host.growth import Ledger
from gputop.collect.kernel import Kernel
from gputop.model import Cgroup, Host

_LIMITS_EVERY_S = 30.0
_PERIODS, _THROTTLED = range(2)


class _Rules(NamedTuple):
    """What rules over us."""

    path: str
    cgroups: Cgroups
    quotas: tuple[Limit, ...]
    memory: Limit | None
    charged: Group | None  # whose memory is counted


class Limits:
    """CPUs that may be used, memory that may be had, and how hard the limits are hit."""

    fills = (
        "cpus_allowed",
        "cgroup",
        "cgroup.cpu_quota",
        "cgroup.throttled_percent",
        "cgroup.memory_limit_bytes",
        "cgroup.memory_used_bytes",
        "cgroup.oom_kills",
    )
    every_s = 0.0

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._periods: Ledger[Group] = Ledger()
        self._rules: _Rules | None = None
        self._looked_s = -inf

    def read(self, now_s: float) -> Host:
        """The limits as of the last 30 s, their use now."""
        if self._rules is None or now_s - self._looked_s >= _LIMITS_EVERY_S:
            self._rules, self._looked_s = _find(self._kernel), now_s
        rules = self._rules
        cpus, quota = float(len(os.sched_getaffinity(0))), smallest(rules.quotas)
        return Host(
            cpus_allowed=min(cpus, quota.value) if quota else cpus,
            cgroup=Cgroup(
                path=rules.path,
                cpu_quota=quota.value if quota else None,
                throttled_percent=self._throttled_percent(rules, now_s),
                memory_limit_bytes=int(rules.memory.value) if rules.memory else None,
                memory_used_bytes=rules.cgroups.memory_used(rules.charged) if rules.charged else None,
                oom_kills=rules.cgroups.oom_kills(rules.charged) if rules.charged else None,
            ),
        )

    def _throttled_percent(self, rules: _Rules, now_s: float) -> float | None:
        """Of the quota that ran out most: a group may be stopped by one of its ancestors, for what others use."""
        periods = {quota.group: rules.cgroups.cpu_periods(quota.group) for quota in rules.quotas}
        grown = self._periods.grown(now_s, {group: counts for group, counts in periods.items() if counts})
        shares = (growth.mean(_THROTTLED, _PERIODS) for growth in grown.values())
        return max((min(100.0, 100 * share) for share in shares if share is not None), default=None)


def _find(kernel: Kernel) -> _Rules:
    own = membership(kernel.proc("self/cgroup"))
    cgroups = Cgroups(kernel, kernel.proc("self/mountinfo"))
    limit = smallest(cgroups.memory_limits(memory := cgroups.groups(own, "memory")))
    return _Rules(
        path=next((path for key in (UNIFIED, "memory", "cpu") if (path := own.get(key, "/")) != "/"), "/"),
        cgroups=cgroups,
        quotas=cgroups.cpu_quotas(cgroups.groups(own, "cpu")),
        memory=limit,
        # use and limit must be of one group, or their ratio means nothing
        charged=limit.group if limit else next(iter(memory), None),
    )
