"""Where a process belongs by its cgroup: container, pod, Slurm job, the CPU quota over it; what confines trainers."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import field
from math import inf

from gputop.collect.cgroups import (
    UNIFIED,
    CgroupFolder,
    Cgroups,
    Confinement,
    Membership,
    called,
    membership,
    mounted,
    smallest,
)
from gputop.collect.kernel_files import Kernel
from gputop.collect.lane import LaneSilent
from gputop.collect.rates import Counters
from gputop.frozen_dataclass import frozen_dataclass
from gputop.model import Cgroup
from gputop.safe.text import decode

QUOTA_AGE_S = 10.0  # a quota is read again after this
MOST_PATHS = 512

_HEX_ID = re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")  # docker, containerd, cri-o, podman, kubepods
_NAMED = re.compile(r"/(?:lxc/|lxc\.payload[./]|machine\.slice/machine-|machine\.slice/systemd-nspawn@)([^/]+)")
# job_4711, or from Slurm 26.05 on its SLUID: "s" and 13 digits of Crockford's base 32, unless CgroupJobIdPaths=yes
_SLURM = re.compile(
    r"/[^/]*slurm[^/]*/(?:(?:uid_\d+/)?job_(\d+)|(s[0-9A-F][0-9A-HJKMNP-TV-Z]{12}))(?:/step_([a-z0-9.+]{1,20}))?(?:/|$)"
)
# pod1a2b3c4d-..., in kubepods-burstable-pod1a2b3c4d_....slice with systemd; a static pod has a hash instead of a UID.
# Not of podman, whose pods are libpod_pod_ and 64 digits
_POD = re.compile(r"[/-]pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(?:\.slice)?(?:/|$)")


@frozen_dataclass(frozen=True, slots=True)
class CgroupPath:
    """What /proc/PID/cgroup says."""

    path: str = "/"  # of what limits it, or of the group with the most metrics
    container: str | None = None  # short id or name
    slurm_job: str | None = None  # its number, or its SLUID
    slurm_step: str | None = None  # 0, batch, extern, interactive
    pod: str | None = None  # UID; its name and namespace are in no file of the node's kernel
    membership: Membership = field(default_factory=dict)


def place(raw: bytes) -> CgroupPath:
    """The place of a process from the text of its cgroup file."""
    lines = [decode(line).split(":", 2) for line in raw.split(b"\n")]
    paths = [line[2] for line in sorted(lines, key=lambda line: line[0] != "0") if len(line) == 3]
    of = membership(raw)
    slurm = next(filter(None, map(_SLURM.search, paths)), None)
    pod = next(filter(None, map(_POD.search, paths)), None)
    return CgroupPath(
        path=called(of) or next((path for path in paths if path.strip("/.")), paths[0] if paths else "/"),
        container=next(filter(None, map(_container, paths)), None),
        slurm_job=(slurm[1] or slurm[2]) if slurm else None,
        slurm_step=slurm[3] if slurm else None,
        pod=pod[1].replace("_", "-") if pod else None,
        membership=of,
    )


def slurm_job(of_group: str | None, number: str | None, sluid: str | None) -> str | None:
    """The Slurm job of a process by its cgroup and by what its environment has as SLURM_JOB_ID and SLURM_JOB_SLUID.

    The cgroup counts: an environment may be another job's, or invented. But people know a job by its number,
    and where the cgroup has the SLUID alone the environment shows it.
    """
    number = number if number and number.isascii() and number.isdigit() else None
    if of_group is None:
        return number
    known = number is not None and not of_group.isdigit() and sluid in (of_group, None)
    return number if known else of_group


def _container(path: str) -> str | None:
    ids = _HEX_ID.findall(path)
    if ids:
        return str(ids[-1][:12])
    named = _NAMED.search(path)
    if named is None:
        return None
    return named[1].removesuffix(".scope").removesuffix(".service").replace("\\x2d", "-") or None


@frozen_dataclass(frozen=True, slots=True)
class Quota:
    """The CPU quota over a process: cores, the smallest of all ancestors, and how often one of them ran out."""

    cores: float | None = None
    throttled_percent: float | None = None
    known: bool = True  # False: its files do not answer


class _Over:
    """The quotas over one path."""

    def __init__(self) -> None:
        self.known_s, self.asked_s = -inf, -inf
        self.periods: dict[CgroupFolder, Counters] = {}  # of each group that has a quota
        self.quota = Quota()


class Quotas:
    """CPU quotas by path, each read once for all processes it is over."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._cgroups: Cgroups | None = None
        self._over: dict[str | None, _Over] = {}

    def over(self, place: CgroupPath, now_s: float) -> Quota:
        """The quota over a place; unknown where its part of the tree is not mounted here."""
        if self._cgroups is None:
            self._cgroups = mounted(self._kernel)
        path = place.membership.get("cpu", place.membership.get(UNIFIED))
        if path not in self._over and len(self._over) >= MOST_PATHS:
            self._over.clear()
        over = self._over.setdefault(path, _Over())
        try:
            self._look(self._cgroups, over, place, now_s)
        except LaneSilent:
            over.known_s, over.quota = -inf, Quota(known=False)  # asked again in time: that costs nothing
        return over.quota

    def _look(self, cgroups: Cgroups, over: _Over, place: CgroupPath, now_s: float) -> None:
        if now_s - over.known_s >= QUOTA_AGE_S:
            groups = cgroups.groups(place.membership, "cpu")
            limits = cgroups.cpu_quotas(groups)
            over.periods = {limit.group: over.periods.get(limit.group, Counters()) for limit in limits}
            least = smallest(limits)
            # nothing runs out where nothing is limited, as far as can be seen
            over.quota = (
                Quota(least.value, over.quota.throttled_percent) if least else Quota(None, 0.0 if groups else None)
            )
            over.known_s = now_s  # last: a reader that a hanging file interrupts knows nothing
        if over.periods and now_s > over.asked_s:
            over.asked_s = now_s
            over.quota = Quota(over.quota.cores, self._throttled(cgroups, over, now_s))

    def _throttled(self, cgroups: Cgroups, over: _Over, now_s: float) -> float | None:
        """The largest share of periods in which a quota ran out; the last one where no period has passed since."""
        shares = []
        for group, counters in over.periods.items():
            counts = cgroups.cpu_counts(group)
            grown = None if counts is None else counters.grown(now_s, counts)
            periods, throttled, _ = (None, None, None) if grown is None else grown[1]
            if periods is not None and throttled is not None:
                shares.append(min(100.0, 100 * throttled / periods) if periods else 0.0)
        return max(shares, default=over.quota.throttled_percent)


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

    def read(self, places: Iterable[CgroupPath], now_s: float) -> tuple[Cgroup, ...]:
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
                except LaneSilent:
                    known.latest = None  # a group without limits would be a lie
        return tuple(known.latest for known in self._known.values() if known.latest is not None)
