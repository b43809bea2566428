"""Where a process belongs by its cgroup: container, Slurm job, and the CPU quota over it. v1, v2 and both at once."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gputop.collect.files import slurp, slurp_all
from gputop.collect.rates import Counters
from gputop.collect.readings import fills
from gputop.safe.text import decode

QUOTA_FILLS = fills("allowed_cpus", "throttled_percent")
QUOTA_AGE_S = 10.0  # a quota is read again after this
MOST_GROUPS = 512

_HEX_ID = re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")  # docker, containerd, cri-o, podman, kubepods
_NAMED = re.compile(r"/(?:lxc/|lxc\.payload[./]|machine\.slice/machine-|machine\.slice/systemd-nspawn@)([^/]+)")
_SLURM = re.compile(r"/[^/]*slurm[^/]*/(?:uid_\d+/)?job_(\d+)(?:/|$)")


@dataclass(frozen=True, slots=True)
class Place:
    """What /proc/PID/cgroup says."""

    path: str = "/"  # the one that tells most
    container: str | None = None
    slurm_job: str | None = None
    unified: str | None = None  # path in the v2 tree
    cpu: str | None = None  # path in the v1 tree of the cpu controller


def place(raw: bytes) -> Place:
    """The place of a process from the text of its cgroup file."""
    unified, cpu = None, None
    paths: list[str] = []
    for line in raw.splitlines():
        number, _, rest = decode(line).partition(":")
        controllers, _, path = rest.partition(":")
        if not path:
            continue
        if number == "0" and not controllers:
            unified = path
            paths.insert(0, path)
        else:
            cpu = path if "cpu" in controllers.split(",") else cpu
            paths.append(path)
    return Place(
        path=next((path for path in paths if path.strip("/.")), paths[0] if paths else "/"),
        container=next(filter(None, map(_container, paths)), None),
        slurm_job=next((found[1] for found in map(_SLURM.search, paths) if found), None),
        unified=unified,
        cpu=cpu,
    )


def _container(path: str) -> str | None:
    ids = _HEX_ID.findall(path)
    if ids:
        return str(ids[-1][:12])
    named = _NAMED.search(path)
    if named is None:
        return None
    name = named[1].removesuffix(".scope").removesuffix(".service")
    return name.replace("\\x2d", "-") or None


@dataclass(frozen=True, slots=True)
class Limit:
    """The CPU quota over a process: cores, the smallest of all ancestors, and how often it ran out."""

    cpus: float | None = None
    throttled_percent: float | None = None


class _Group:
    """One folder of the cgroup tree with its quota; `limited` are it and its ancestors that have one."""

    def __init__(self) -> None:
        self.known_s = -QUOTA_AGE_S
        self.asked_s = 0.0
        self.limited: dict[str, Counters] = {}
        self.limit = Limit()


class Quotas:
    """CPU quotas by cgroup, each read once for all its processes."""

    def __init__(self, proc: str = "/proc") -> None:
        self._mountinfo = f"{proc}/self/mountinfo"
        self._trees: tuple[_Tree | None, _Tree | None] | None = None
        self._groups: dict[str, _Group] = {}

    def limit(self, place: Place, now_s: float) -> Limit:
        """The quota over a place; unknown where its part of the tree is not mounted here."""
        if self._trees is None:
            self._trees = _trees(self._mountinfo)
        unified, cpu = self._trees
        tree, path = (cpu, place.cpu) if cpu and place.cpu else (unified, place.unified)
        folder = tree.folder(path) if tree and path else None
        if tree is None or folder is None:
            return Limit()
        if len(self._groups) >= MOST_GROUPS and folder not in self._groups:
            self._groups.clear()
        group = self._groups.setdefault(folder, _Group())
        if now_s - group.known_s >= QUOTA_AGE_S:
            group.known_s = now_s
            quotas = tree.quotas(folder)
            group.limited = {at: group.limited.get(at, Counters()) for at in quotas}
            group.limit = Limit(min(quotas.values(), default=None), None if quotas else 0.0)
        if group.limited and now_s > group.asked_s:
            group.asked_s = now_s
            group.limit = Limit(group.limit.cpus, _throttled(group.limited, now_s, group.limit.throttled_percent))
        return group.limit


def _throttled(limited: dict[str, Counters], now_s: float, last: float | None) -> float | None:
    """The largest share of periods in which a quota ran out; the last one where none has passed since."""
    shares: list[float] = []
    for folder, counters in limited.items():
        try:
            words = slurp(f"{folder}/cpu.stat").split()
            found = dict(zip(words[::2], map(int, words[1::2]), strict=False))
        except (OSError, ValueError):
            continue
        grown = counters.grown(now_s, (found.get(b"nr_periods"), found.get(b"nr_throttled")))
        if grown is None:
            continue
        periods, throttled = grown[1]
        if periods is not None and throttled is not None:
            shares.append(min(100.0, 100 * throttled / periods) if periods else 0.0)
    return max(shares, default=last)


@dataclass(frozen=True, slots=True)
class _Tree:
    """One mounted cgroup hierarchy: the part of it below `root` stands at `mount`."""

    root: str
    mount: str
    unified: bool

    def folder(self, path: str) -> str | None:
        """Where a cgroup is found; None if it lies outside of what is mounted, as 0::/../.. does."""
        if ".." in path.split("/"):
            return None
        if self.root == "/":
            return (self.mount + path).rstrip("/")
        if path == self.root or path.startswith(f"{self.root}/"):
            return self.mount + path[len(self.root) :]
        return None

    def quotas(self, folder: str) -> dict[str, float]:
        """Quotas in cores of a folder and its ancestors, by folder."""
        found: dict[str, float] = {}
        while folder.startswith(self.mount):
            quota = self._quota(folder)
            if quota is not None:
                found[folder] = quota
            folder = folder.rpartition("/")[0]
        return found

    def _quota(self, folder: str) -> float | None:
        try:
            if self.unified:
                quota, period = slurp(f"{folder}/cpu.max", 128).split()
            else:
                quota, period = slurp(f"{folder}/cpu.cfs_quota_us", 128), slurp(f"{folder}/cpu.cfs_period_us", 128)
            cpus = int(quota) / int(period)
        except (OSError, ValueError, ZeroDivisionError):  # the root has no such file; `max` is no number
            return None
        return cpus if cpus > 0 else None


def _trees(mountinfo: str) -> tuple[_Tree | None, _Tree | None]:
    """The v2 hierarchy and the v1 hierarchy of the cpu controller, as far as they are mounted."""
    unified, cpu = None, None
    try:
        lines = slurp_all(mountinfo, 1 << 22).decode("utf-8", "surrogateescape").splitlines()
    except OSError:
        return None, None
    for text in lines:
        words = text.split()
        dash = words.index("-") if "-" in words else len(words)
        if len(words) < dash + 4 or dash < 6:
            continue
        root, mount, kind, options = words[3], words[4], words[dash + 1], words[dash + 3]
        if kind == "cgroup2":
            unified = unified or _Tree(root, mount, unified=True)
        elif kind == "cgroup" and "cpu" in options.split(","):
            cpu = cpu or _Tree(root, mount, unified=False)
    return unified, cpu
