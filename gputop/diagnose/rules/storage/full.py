"""A rule on nearly full storage: /dev/shm, and the file system for checkpoints."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise, takewhile
from shlex import quote
from typing import NamedTuple

from gputop import num_workers
from gputop.diagnose.estimators import slope
from gputop.diagnose.exhaustion import in_steps, projection
from gputop.diagnose.finding import Evidence, Finding, Severity, Step
from gputop.diagnose.pauses import Pause, Pauses
from gputop.diagnose.rule import Level, rule
from gputop.diagnose.rules.storage.advice import on
from gputop.diagnose.rules.storage.checkpoints import settle
from gputop.diagnose.steadying import RANKS
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.view import View
from gputop.frozen_dataclass import frozen_dataclass
from gputop.history import Key
from gputop.labels import amount
from gputop.model import Host, Mount, Process
from gputop.units import ago_text, roughly, size

_MOST = 0.5  # of the checkpoint must have gone there
_LATELY_S = 120.0  # in which one has ended that is not recorded yet


class CheckpointStore(NamedTuple):
    """A file system, and the bytes of the last checkpoint."""

    mount: Mount
    last: float


def target(view: View, trainer: Trainer) -> CheckpointStore | None:
    """The checkpoints' file system, while mounted; None if no checkpoint was seen, or its location is unknown."""
    pauses, notes = view.pauses(trainer), view.notes(trainer)
    settle(view, trainer, pauses)
    newest = _newest(view, pauses, notes.get("start_s", -math.inf))
    if newest is not None and newest.written:  # a save of unknown size does not show how many more fit
        notes["start_s"] = newest.start_s
        path = _path(view, newest)
        if path is not None:
            notes["path"], notes["last"] = path, newest.written
    mounts = (mount for mount in view.frame.host.mounts if mount.path == notes.get("path"))
    return next((CheckpointStore(mount, notes["last"]) for mount in mounts), None)


def _newest(view: View, pauses: Pauses, after_s: float) -> Pause | None:
    """The last finished checkpoint of those that began after a time: work may have paused since."""
    now_s = view.frame.mono_s
    lately = takewhile(lambda one: one.start_s > after_s and one.end_s > now_s - _LATELY_S, reversed(pauses.known))
    return next((one for one in lately if one.settled and one.cause == "save"), None)


def _path(view: View, one: Pause) -> str | None:
    """The file server or disk with most writes since the pause began."""
    seconds = view.frame.mono_s - one.start_s + 1
    host = view.frame.host
    found = {m.path: _written(view, f"mount {m.path}", seconds) for m in host.mounts if m.network}
    for disk in host.disks:
        mounts = [mount for mount in host.mounts if on(mount, disk.name)]
        if len(mounts) == 1:  # ambiguous among several on one disk
            found[mounts[0].path] = _written(view, f"disk {disk.name}", seconds)
    path = max(found, key=lambda one: found[one], default=None)
    return path if path is not None and found[path] >= _MOST * one.written else None


def _written(view: View, key: str, seconds: float) -> float:
    return sum(value or 0.0 for value in view.history.values(key, "write_bytes_per_s", seconds))


_KEPT_S = 900.0  # as long as a trainer's writes are kept per second
_FREED = 0.3  # of the space used, freed again: old files are deleted as new ones come
_SLOWER = 0.5  # of the rate of the first half, kept in the second: less is a burst that ends
_PAUSES = 2.0  # usual intervals without another drop, after which it is over

_Changes = deque[tuple[float, float]]  # when it was seen, and free bytes since then


@frozen_dataclass(frozen=True, slots=True)
class Filling:
    """A file system with falling free space: number of drops, bytes, and seconds."""

    mount: Mount
    drops: int
    taken: float
    seconds: float
    since_s: float  # mono time of the first drop
    left: float

    @property
    def per_s(self) -> float:
        """Bytes/s."""
        return self.taken / self.seconds

    @property
    def left_s(self) -> float:
        """Seconds until nothing is left."""
        return self.left / self.per_s


def follow(view: View) -> Mapping[str, _Changes]:
    """Record the free space of every mount; return its changes by mount path."""
    notes, now_s = view.notes(view.frame.host), view.frame.mono_s
    before: Mapping[str, _Changes] = notes.get("free", {})
    after = {one.path: before.get(one.path, deque()) for one in view.frame.host.mounts if one.free_bytes is not None}
    for mount in view.frame.host.mounts:
        if mount.free_bytes is None:
            continue
        changes = after[mount.path]
        if not changes or changes[-1][1] != mount.free_bytes:
            changes.append((now_s, float(mount.free_bytes)))
        while len(changes) > 1 and changes[1][0] < now_s - _KEPT_S:
            changes.popleft()
    notes["free"] = after
    return after


def filling(view: View, trainer: Trainer, changes: Mapping[str, _Changes]) -> Filling | None:
    """The file system that this trainer fills within ten minutes, after several drops of its free space."""
    found = [one for mount in view.frame.host.mounts if (one := _falling_space(view, mount, changes.get(mount.path)))]
    mine = [one for one in found if _writes(view, trainer, one) >= view.limit("exhaustion.share") * one.taken]
    return min(mine, key=lambda one: one.left_s, default=None)


def _falling_space(view: View, mount: Mount, changes: _Changes | None) -> Filling | None:
    if changes is None or len(changes) < 2 or mount.free_bytes is None:
        return None
    steps = [(at_s, before - after) for (_, before), (at_s, after) in pairwise(changes)]
    drops = [(at_s, taken) for at_s, taken in steps if taken > 0]
    freed = -sum(taken for _, taken in steps if taken < 0)
    if len(drops) < view.limit("shm-nearly-full.least_drops") or freed >= _FREED * sum(taken for _, taken in drops):
        return None
    times = [at_s for at_s, _ in drops]
    seconds, taken = times[-1] - times[0], sum(taken for _, taken in drops[1:])
    if (
        seconds < view.limit("shm-nearly-full.drops_s")
        or view.frame.mono_s - times[-1] > _PAUSES * seconds / (len(drops) - 1) + 1
    ):
        return None
    half = times[0] + seconds / 2
    if sum(taken for at_s, taken in drops if at_s > half) < _SLOWER * taken / 2:
        return None
    one = Filling(mount, len(drops), taken, seconds, times[0], float(mount.free_bytes))
    least_s, sure = view.limit("shm-nearly-full.few_drops_left_s"), len(drops) >= view.limit("shm-nearly-full.drops")
    return one if one.left_s <= (view.limit("exhaustion.urgent_s") if sure else least_s) else None


def _writes(view: View, trainer: Trainer, one: Filling) -> float:
    """Bytes it wrote since the first drop, and shortly before: the page cache delays them."""
    seconds = view.frame.mono_s - one.since_s + 1
    names = ("write_chars_per_s", "write_bytes_per_s")
    return max(sum(value or 0.0 for value in view.history.values(trainer.key, name, seconds)) for name in names)


_STORES = ("raylet", "plasma_store", "ray::", "gcs_server")  # they keep objects in shared memory by design
_GIB = 1024.0**3
_GOOD_SIZE = 16 * _GIB
_DOCKER = 64 * 1024.0**2
_INSIDE = "in its container: df -h /dev/shm"
_LEFT = Step(text="List the files in /dev/shm", command="ls -lS /dev/shm")


@rule(
    "shm-nearly-full",
    "Is /dev/shm or the checkpoint file system nearly full?",
    level=Level.BESIDE,
    crit_level=Level.HARDWARE,
    state="shm full",
    needs=(),
    partly=("shm_total_bytes", "shm_used_bytes"),
    alone=True,
)
def shm_nearly_full(view: View) -> Iterator[Finding]:
    """Workers pass batches through /dev/shm and crash when it is full; a checkpoint that does not fit is lost."""
    host = view.host()
    if host.shm_total_bytes and view.vectors():
        yield from _shm_findings(view, host, float(host.shm_total_bytes), "host")
    changes = follow(view)
    for trainer in view.trainers(cold=True):
        process = trainer.process
        own = process.shm_total_bytes not in (None, 0, host.shm_total_bytes)  # not the machine's
        if process.container and process.shm_total_bytes is None:
            given = any(one.metric == "shm_total_bytes" for one in process.missing)
            view.knows(process, "shm_total_bytes", "shm_used_bytes", unlock=None if given else _INSIDE)
        place = target(view, trainer)
        fills = filling(view, trainer, changes)
        known = [
            *(_shm_findings(view, trainer, float(process.shm_total_bytes or 0), process.identity) if own else ()),
            *(_no_space_findings(view, trainer, place) if place is not None and not own else ()),
            *((_filling_finding(view, trainer, fills),) if fills is not None else ()),
        ]
        if known:
            yield max(known, key=lambda one: RANKS[one.severity])


def _shm_findings(view: View, thing: Host | Trainer, total: float, about: Key) -> Iterator[Finding]:
    """By the recent maximum: batches come and go, and loaders with each epoch."""
    used = view.history.known(about, "shm_used_bytes", view.limit("growth_s"))
    if not total or not used:
        return
    peak = max(used[-int(view.limit("window_s")) :])
    loaders = max(number for _, number in view.record(thing, _loaders(view, thing)))
    store, ample = _store(view), view.against.above(total - peak, "ample_bytes")
    soon_s = _soon_s(view, thing, total - used[-1], about)
    full_in_s = _full_in_s(view, total, used) if soon_s is None else soon_s
    nearly = view.above(peak / total, "used")
    if not nearly and full_in_s is None:
        return
    # NCCL has segments there; Slurm also gives ranks to independent programs
    ranks = any(one.is_rank and _in_step(one) for one in _users(view, thing))
    calm = not (loaders or ranks) or (ample and full_in_s is None)  # no process there is affected
    severity: Severity = "info" if calm else "warn"
    if not calm and (soon_s is not None or (not ample and peak / total >= view.limit("crit_used"))):
        severity = "crit"
    if store is not None:
        severity = "warn" if severity == "crit" else "info"
    limit = "crit_used" if severity == "crit" and soon_s is None else "used" if nearly else "growing_used"
    much = "nearly full" if nearly and not ample else "filling up"
    yield view.found(
        thing,
        severity,
        f"/dev/shm {100 * peak / total:.0f} % full, {size(total - peak)} left"
        if calm
        else f"/dev/shm {much}, {'workers may crash with a bus error' if loaders else 'NCCL may fail to start'}",
        evidence=tuple(_evidence(view, peak, total, loaders, full_in_s, limit, soon_s is not None))
        + tuple(_owner(store)),
        steps=tuple(_steps(view, thing, total)) if loaders and not calm else (_LEFT,),
        confidence=0.9,
    )


def _evidence(
    view: View, peak: float, total: float, loaders: int, full_in_s: float | None, limit: str, soon: bool
) -> Iterator[Evidence]:
    """`limit`: name of the limit that decided."""
    usual = " (Docker default)" if total == _DOCKER else ""
    workers = f", {amount(loaders, 'worker')}" if loaders else ""
    text = f"/dev/shm {100 * peak / total:.0f} % used: {size(peak)} of {size(total)}{usual}{workers}"
    yield Evidence(text=text, value=100 * peak / total, unit="%", limit=100 * view.limit(limit), sense="healthy_to")
    if full_in_s is not None:
        most = view.limit("exhaustion.urgent_s" if soon else "full_in_s")
        text = f"full in {ago_text(full_in_s)} at this rate"
        yield Evidence(text=text, value=full_in_s, unit="s", limit=most, sense="healthy_from")


def _owner(store: Process | None) -> Iterator[Evidence]:
    if store is not None:
        yield Evidence(text=f"{store.name} (pid {store.pid}) stores objects there by design")


def _loaders(view: View, thing: Host | Trainer) -> int:
    """Number of loaders that pass batches through it, as far as visible."""
    return sum(one.loaders for one in _users(view, thing))


def _in_step(one: Trainer) -> bool:
    return one.process.talks or (one.job is not None and one.job.steps)


def _users(view: View, thing: Host | Trainer) -> Sequence[Trainer]:
    """Trainers that use this /dev/shm: in a container with a hidden one it may not be the machine's."""
    if isinstance(thing, Trainer):
        return (thing,)
    theirs = ((one, one.process.shm_total_bytes, one.process.container) for one in view.vectors())
    return [one for one, total, apart in theirs if total == thing.shm_total_bytes or (total is None and not apart)]


def _full_in_s(view: View, total: float, used: Sequence[float]) -> float | None:
    """Seconds until full, if it is half full and grows steadily; the first batches of a run level off."""
    third = len(used) // 3
    if third < view.limit("growth_s") / 6 or used[-1] < view.limit("growing_used") * total:
        return None
    first, second, last = (sum(used[start : start + third]) / third for start in (0, third, 2 * third))
    per_s = slope(used, 1.0)
    if not per_s or per_s <= 0 or last - second < 0.5 * (second - first) or second <= first:
        return None
    seconds = max(0.0, total - used[-1]) / per_s
    return seconds if view.below(seconds, "full_in_s") else None


def _soon_s(view: View, thing: Host | Trainer, left: float, about: Key) -> float | None:
    """Seconds until full, if within minutes at a steady rate; None while files are copied there on purpose."""
    users = _users(view, thing)
    idle = not any(in_steps(view, one) for one in users)
    found = projection(view, lambda s: view.history.values(about, "shm_used_bytes", s), left, idle=idle)
    if found is None:
        return None
    theirs = {process.identity for one in view.vectors() for process in one.tree}
    least = view.limit("exhaustion.share") * found.per_s
    copies = any((one.write_chars_per_s or 0.0) >= least for one in view.frame.processes if one.identity not in theirs)
    return None if copies else found.left_s


def _store(view: View) -> Process | None:
    """A program that keeps its objects in shared memory by design."""
    processes = view.frame.processes
    return view.cached("store", lambda: next((one for one in processes if one.name.startswith(_STORES)), None))


def _steps(view: View, thing: Host | Trainer, total: float) -> Iterator[Step]:
    more = _larger_size(view, thing, total)
    if isinstance(thing, Trainer) or total == _DOCKER:
        if more is not None:
            yield Step(text="Enlarge /dev/shm of the container", command=f"docker run --shm-size={more}g ...")
            yield Step(text="In Kubernetes, mount an emptyDir with medium Memory at /dev/shm")
        if not isinstance(thing, Trainer) or (view.frame.host.shm_total_bytes or math.inf) > total:
            yield Step(text="Share the host's /dev/shm with the container", command="docker run --ipc=host ...")
    else:
        yield _LEFT
        if more is not None:
            yield Step(text="Enlarge /dev/shm", command=f"sudo mount -o remount,size={more}G /dev/shm", needs_root=True)
    ranks = [one for one in _users(view, thing) if one.loaders]
    loaders = max((one.loaders for one in ranks), default=0)
    if loaders > 1:
        text = f"Lower num_workers{' per rank' if len(ranks) > 1 else ''} or prefetch_factor"
        yield Step(text=text, command=f"DataLoader(..., num_workers={num_workers.fewer(loaders)}, prefetch_factor=2)")


def _larger_size(view: View, thing: Host | Trainer, total: float) -> int | None:
    """GiB to set: double, at least a minimum and at most half of memory; None if that is no more."""
    host, path = view.frame.host, thing.process.cgroup if isinstance(thing, Trainer) else None
    limits = [group.memory_limit_bytes for group in view.frame.cgroups if path and group.path == path]
    memory = min((one for one in (host.memory_total_bytes, *limits) if one), default=None)
    if memory is None:
        return None
    more = int(min(max(_GOOD_SIZE, 2 * total), memory / 2) / _GIB)
    return more if more * _GIB > total else None


def _no_space_findings(view: View, trainer: Trainer, place: CheckpointStore) -> Iterator[Finding]:
    """The next checkpoints must fit beside the last one, which is deleted only afterwards.

    A small share of a large file system is still much space: it matters only if few checkpoints fit.
    """
    mount, last = place
    free, total = mount.free_bytes, mount.total_bytes
    if free is None or not total:
        return
    times = free / last
    none = view.below(times, "checkpoints")
    if not none and not (view.below(free / total, "free") and view.below(times, "few_checkpoints")):
        return
    yield view.found(
        trainer,
        "crit" if times < 1 else "warn",
        f"disk full, no space for checkpoints in {mount.path}"
        if none
        else f"disk nearly full, space for {amount(int(times), 'more checkpoint')} in {mount.path}",
        evidence=(
            Evidence(
                text=f"{size(free)} of {size(total)} free", value=100 * free / total, unit="%",
                limit=100 * view.limit("free"), sense="healthy_from",
            ),
            Evidence(
                text=f"last checkpoint {size(last)}", value=last, unit="B", limit=free, sense="healthy_to",
            ),
        ),
        steps=(
            _find_large_files(mount),
            Step(text="Keep only the last few checkpoints and the best"),
            Step(text="Or write them to a file system with more space"),
        ),
        confidence=0.9,
        state="disk full",
    )  # fmt: skip


def _filling_finding(view: View, trainer: Trainer, found: Filling) -> Finding:
    """Its writes fill the file system within minutes: the next checkpoints are lost, however many fit now."""
    urgent_s = view.limit("exhaustion.urgent_s")
    of = f"{size(found.left)} of {size(found.mount.total_bytes)} free"
    return view.found(
        trainer,
        "crit" if in_steps(view, trainer) or not trainer.gpus else "warn",
        f"{found.mount.path} full in about {roughly(found.left_s)}, writing {size(found.per_s)}/s",
        evidence=(
            Evidence(
                text=f"{of}, full in about {roughly(found.left_s)} (critical below {ago_text(urgent_s)})",
                value=found.left_s, unit="s", limit=urgent_s, sense="healthy_from",
            ),
            Evidence(
                text=f"{size(found.taken)} less free in {ago_text(found.seconds)}, in {amount(found.drops, 'step')}",
                value=found.taken, unit="B",
            ),
        ),
        steps=(
            Step(text="Keep only the last few checkpoints and the best"),
            Step(text="Or write them to a file system with more space"),
            _find_large_files(found.mount),
        ),
        confidence=0.8,
        state="disk full",
    )  # fmt: skip


def _find_large_files(mount: Mount) -> Step:
    """Find large files; a full scan is cheap on a local disk, but loads a shared server."""
    if mount.file_system == "lustre":
        command = f"lfs quota -h {quote(mount.path)}"
        return Step(text="Check your usage and quota", command=command)
    if mount.network:
        return Step(text="Check free space; the server has usage per user", command=f"df -h {quote(mount.path)}")
    return Step(
        text="Find the largest directories", command=f"du -xh --max-depth=2 {quote(mount.path)} | sort -h | tail"
    )
