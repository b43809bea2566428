"""Rules on memory leaks: on the GPU, and on the host."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from gputop import units
from gputop.diagnose.estimators import leak
from gputop.diagnose.exhaustion import (
    Exhaustion,
    OtherExhaustion,
    Projection,
    exhaustions,
    in_steps,
    other_exhaustion,
    projection,
)
from gputop.diagnose.finding import Evidence, Finding, Severity, Step
from gputop.diagnose.rule import Level, rule
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.view import View
from gputop.frozen_dataclass import frozen_dataclass
from gputop.history import COARSE_S
from gputop.labels import amount
from gputop.model import Cgroup, Gpu, Identity, Missing

SHORT_S, LONG_S = (300.0, 900.0), (3600.0, 14_400.0)
_EVERY_S, _LONG_EVERY_S = 15.0, 120.0  # a 15 s mean is kept for hours
_PERSISTS = 0.1  # of the window: growth that has just ended passes the test for about as long
_FAIR = 0.5  # of its share, by which the first third and the last sixth must grow: else it began or ended within


@frozen_dataclass(frozen=True, slots=True)
class LeakWindow:
    """A leak: its window and rate, bytes added per third, and the least that counts."""

    window_s: float
    per_s: float
    thirds: tuple[float, float, float]
    least: float

    @property
    def total(self) -> float:
        """Bytes."""
        return sum(self.thirds)


@dataclass(slots=True)
class _Watched:
    """Leak tests of one trainer: time of the next one, and leaks found, by window, each with its start."""

    next_s: float
    long_s: float
    leaks: dict[float, tuple[float, LeakWindow]] = field(default_factory=dict)


def growing(view: View, metric: str, capacity: Callable[[Trainer], float | None]) -> Mapping[Identity, LeakWindow]:
    """Trainers with a leak of this `TrainerTree` metric for long enough, relative to its capacity in bytes.

    Tests those that are due; the longest window with a leak counts.
    """
    now_s, notes = view.frame.mono_s, view.notes(view.frame.host)
    before: Mapping[Identity, _Watched] = notes.get("watched", {})
    trainers = [one for one in view.vectors() if one.gpus]
    watched = {one.identity: before.get(one.identity) or _Watched(now_s, now_s) for one in trainers}
    notes["watched"] = watched
    due = [one for one in trainers if watched[one.identity].next_s <= now_s]
    for trainer in sorted(due, key=lambda one: watched[one.identity].next_s)[: round(view.stands_for_s)]:
        watched[trainer.identity].next_s = now_s + _EVERY_S
        if (most := capacity(trainer)) is not None:
            _test(view, trainer, metric, most, watched[trainer.identity])
    return {identity: growth for identity, one in watched.items() if (growth := _lasting_leak(one, now_s))}


def _lasting_leak(one: _Watched, now_s: float) -> LeakWindow | None:
    for window_s, (since_s, growth) in sorted(one.leaks.items(), reverse=True):
        if now_s - since_s >= _PERSISTS * window_s:
            return growth
    return None


def change(values: Sequence[float | None]) -> float | None:
    """Difference between the first and the last known value."""
    known = [value for value in values if value is not None]
    return known[-1] - known[0] if len(known) > 1 else None


def _test(view: View, trainer: Trainer, metric: str, capacity: float, one: _Watched) -> None:
    now_s = view.frame.mono_s
    windows: tuple[float, ...] = SHORT_S
    if now_s >= one.long_s:
        one.long_s, windows = now_s + _LONG_EVERY_S, SHORT_S + LONG_S
    values = view.past(trainer, metric, windows[-1])
    for window_s in windows:
        growth = (
            _leak(values[-round(window_s / COARSE_S) :], window_s, capacity) if _past_startup(view, trainer) else None
        )
        if growth is None:
            one.leaks.pop(window_s, None)
        else:
            one.leaks[window_s] = one.leaks[window_s][0] if window_s in one.leaks else now_s, growth


def _past_startup(view: View, trainer: Trainer) -> bool:
    """Whether it is past startup, in which every program grows, and has worked unless that is unknown."""
    started = trainer.warm or trainer.duty is None
    return started and (trainer.context_s or 0.0) >= view.limit("start_s")


def _leak(values: list[float | None], window_s: float, capacity: float) -> LeakWindow | None:
    """The leak test, with growth from the first third until now."""
    if values[-1] is None or len(values) * COARSE_S < window_s:
        return None
    found = leak(values, COARSE_S, capacity)
    if found is None or found.thirds[0] < _FAIR * found.thirds[1]:
        return None
    sixth = change(values[-len(values) // 6 - 1 :])
    fair = found.per_s * window_s / 6
    return LeakWindow(window_s, *found) if sixth is not None and sixth >= _FAIR * fair else None


@rule(
    "gmem-leak",
    "Does the GPU memory of a program grow without bound?",
    level=Level.BESIDE,
    crit_level=Level.HARDWARE,
    state="vram leak",
    short="LEAK",
    confirmed_by=("memory-growth",),
    needs=("vram_bytes", "vram_total_bytes"),
)
def gmem_leak(view: View) -> Iterator[Finding]:
    """Steady growth in each third of a window that begins after program startup."""
    grown = growing(view, "vram_bytes", _installed)
    cards = _filling(view)
    for trainer in view.trainers(cold=True):
        if trainer.gpus and any(share.vram_bytes is None for share in trainer.process.gpus):
            view.abstain(trainer, Missing(metric="vram_bytes", reason="unsupported"))
            continue
        if trainer.gpus and _installed(trainer) is None:
            view.knows(trainer.gpus[0], "vram_total_bytes")
            continue
        if (fast := _gpu_filled_by(view, trainer, cards)) is not None:
            yield _gmem_soon(view, trainer, *fast)
            continue
        growth = grown.get(trainer.identity)
        if growth is None:
            continue
        left_s = _until_full(trainer, growth)
        # minutes of growth are reported only if memory is soon full
        if growth.window_s > SHORT_S[0] or (left_s is not None and left_s <= view.limit("urgent_s")):
            yield _gmem(view, trainer, growth, left_s)


def usable(gpu: Gpu) -> float | None:
    """Bytes of device memory available to programs."""
    return None if gpu.vram_total_bytes is None else gpu.vram_total_bytes - (gpu.vram_reserved_bytes or 0)


def _installed(trainer: Trainer) -> float | None:
    known = [gpu.vram_total_bytes for gpu in trainer.gpus if gpu.vram_total_bytes]
    return float(sum(known)) if known else None


def _until_full(trainer: Trainer, growth: LeakWindow) -> float | None:
    """Seconds until its GPU is full; None with several GPUs, as it is unknown which one grows."""
    if len(trainer.gpus) != 1:
        return None
    (gpu,) = trainer.gpus
    most = usable(gpu)
    return None if most is None or gpu.vram_used_bytes is None else max(0.0, most - gpu.vram_used_bytes) / growth.per_s


def _filling(view: View) -> dict[str, tuple[Gpu, Projection]]:
    """GPUs whose memory is exhausted within ten minutes, by uuid."""
    found: dict[str, tuple[Gpu, Projection]] = {}
    for gpu in view.gpus():
        most = usable(gpu)
        if most is None or gpu.vram_used_bytes is None or gpu.unified_memory:
            continue
        uuid, left = gpu.uuid, most - gpu.vram_used_bytes
        one = projection(view, lambda s, uuid=uuid: view.history.values(uuid, "vram_used_bytes", s), left)  # type: ignore[misc]
        if one is not None:
            found[uuid] = gpu, one
    return found


def _gpu_filled_by(
    view: View, trainer: Trainer, cards: dict[str, tuple[Gpu, Projection]]
) -> tuple[Gpu, Projection] | None:
    """The first of its GPUs to fill up, if this trainer fills it, and not during startup."""
    mine = sorted((cards[uuid] for uuid in trainer.uuids if uuid in cards), key=lambda one: one[1].left_s)
    if not mine or not in_steps(view, trainer) or trainer.compiling:
        return None
    gpu, found = mine[0]
    if trainer.peers:  # memory per GPU is only known in total
        held = view.history.values(trainer.identity, "vram_bytes", found.window_s)
        if (change(held) or 0.0) < view.limit("exhaustion.share") * found.grown:
            return None
    return gpu, found


def _gmem_soon(view: View, trainer: Trainer, gpu: Gpu, found: Projection) -> Finding:
    rate = units.size(found.per_s)
    return view.found(
        trainer,
        "crit",
        f"out of GPU memory in about {units.roughly(found.left_s)}, growing by {rate}/s",
        evidence=tuple(_projected(view, found, f"of GPU {gpu.index} ({units.size(usable(gpu))})")),
        steps=_KEPT,
        confidence=0.75,
    )


def _gmem(view: View, trainer: Trainer, growth: LeakWindow, left_s: float | None) -> Finding:
    hourly = units.size(growth.per_s * 3600)
    evidence = [*_growth(growth)]
    if left_s is not None:
        (gpu,) = trainer.gpus
        left = growth.per_s * left_s
        text = f"{units.size(left)} of GPU {gpu.index} left"
        evidence.append(Evidence(text=text, value=left, unit="B"))
    return view.found(
        trainer,
        "warn",
        f"GPU memory growing by {hourly} per hour"
        if left_s is None
        else f"GPU memory growing by {hourly} per hour, full in about {units.roughly(left_s)}",
        evidence=tuple(evidence),
        steps=_KEPT,
        confidence=0.75,
    )


_KEPT = (
    Step(
        text="Add up losses without their graph: a kept loss keeps its whole graph",
        command="total += loss.detach()",
    ),
    Step(text="Keep no outputs in lists; keep what is needed as x.detach().cpu()"),
    Step(
        text="Find what allocates it: record some steps, then open the file at pytorch.org/memory_viz",
        command="torch.cuda.memory._record_memory_history(); torch.cuda.memory._dump_snapshot('memory.pickle')",
    ),
    Step(text="Do not rely on torch.cuda.empty_cache(): it cannot free memory in use"),
)


def _growth(growth: LeakWindow) -> Iterator[Evidence]:
    thirds = ", ".join(f"+{units.size(third)}" for third in growth.thirds)
    whole, third = (units.ago_text(growth.window_s / parts) for parts in (1, 3))
    text = f"+{units.size(growth.total)} in {whole}, {thirds} per {third}"
    yield Evidence(text=text, value=growth.total, unit="B", limit=growth.least, sense="flagged_above")


class MemoryLimit(NamedTuple):
    """Host memory a program may use: bytes in total and left, and the origin of the limit."""

    total: float
    left: float
    of: str


@rule(
    "host-memory-leak",
    "Does the host memory of a program grow without bound?",
    level=Level.BESIDE,
    crit_level=Level.HARDWARE,
    state="host leak",
    short="LEAK",
    needs=("pss_bytes",),
    of_host=True,
)
def host_memory_leak(view: View) -> Iterator[Finding]:
    """Steady growth of the program with its loaders, which reduces what the machine or its limit has left."""
    groups = {group.path: group for group in view.frame.cgroups}
    notes = view.notes(view.frame.host)
    soon = {one.trainer.identity: one for one in exhaustions(view, groups, notes)}
    if (others := other_exhaustion(view, list(soon.values()), notes)) is not None:
        yield _others_finding(view, others)
    grown = growing(
        view, "pss_bytes", lambda trainer: room.total if (room := _memory_limit(view, trainer, groups)) else None
    )
    for trainer in view.trainers(cold=True):
        if (urgently := soon.get(trainer.identity)) is not None:
            yield _host_soon_finding(view, urgently)
            continue
        refused = [one for one in trainer.process.missing if one.metric == "pss_bytes"]
        if refused:  # only too early: nothing to report
            view.abstain(trainer, *refused)
            continue
        growth = grown.get(trainer.identity)
        room = _memory_limit(view, trainer, groups) if growth else None
        if growth is None or room is None or not _is_unreclaimable(view, trainer, growth):
            continue
        left_s = room.left / growth.per_s
        fast = view.above(growth.per_s * 600 / room.total, "share_in_10_min")
        if growth.window_s > SHORT_S[0] or left_s <= view.limit("crit_s"):
            severity, read = _severity(view, left_s, fast), _bytes_read(view, trainer, growth)
            if severity == "crit" and read is not None:
                severity = "warn"  # the data may end before the memory does
            if severity is not None:
                yield _host_finding(view, trainer, growth, room, left_s, severity, read)


def _host_soon_finding(view: View, found: Exhaustion) -> Finding:
    """Minutes are left: critical, unless it may be a load that ends before."""
    trainer, left_s, per_s = found.trainer, found.projection.left_s, found.projection.per_s
    in_loaders = trainer.loaders > 0 and found.growth.loaders >= view.limit("loaders_share") * found.growth.total
    sure = (found.in_steps or not trainer.gpus) and not found.keeps_data
    nearly = found.pool.left <= view.limit("exhaustion.nearly") * found.pool.total
    where = f" in its {amount(trainer.loaders, 'worker')}" if in_loaders else ""
    caches = "; may be caching its data" if found.keeps_data else ""
    evidence = [*_projected(view, found.projection, f"{found.pool.of} ({units.size(found.pool.total)})")]
    own = f"its processes grew by {units.size(found.growth.total)} of that"
    loaders = f", its workers by {units.size(found.growth.loaders)}" if trainer.loaders else ""
    least = view.limit("exhaustion.share") * found.projection.grown
    grown = found.growth.total
    evidence.append(Evidence(text=own + loaders, value=grown, unit="B", limit=least, sense="flagged_above"))
    if found.keeps_data:
        text = f"they read {units.size(found.growth.read)} in that time"
        evidence.append(Evidence(text=text, value=found.growth.read, unit="B"))
    if not found.in_steps and trainer.gpus:
        evidence.append(Evidence(text="its GPU is idle: it may still be loading data"))
    room = MemoryLimit(found.pool.total, found.pool.left, found.pool.of)
    return view.found(
        trainer,
        "crit" if sure or nearly else "warn",
        f"out of host memory in about {units.roughly(left_s)}, growing by {units.size(per_s)}/s{where}{caches}",
        evidence=tuple(evidence),
        steps=(*_cached(room, found.growth.read if found.keeps_data else None), *(_LOADERS if in_loaders else _MAIN)),
        confidence=0.75 if sure else 0.6,
    )


def _others_finding(view: View, found: OtherExhaustion) -> Finding:
    """No trainer uses it, but all trainers lose their work if the kernel starts killing."""
    process, nearly = found.process, found.pool.left <= view.limit("exhaustion.nearly") * found.pool.total
    text = "no visible process grows as much: tmpfs, or another container"
    steps = [Step(text="Check what is stored in tmpfs", command="df -h -t tmpfs; ls -lS /dev/shm")]
    if process is not None:
        user = f" ({process.user})" if process.user else ""
        text = f"{process.name or 'a program'}{user} grew by {units.size(found.grown)} since tracking began"
        steps = [Step(text=f"Ask {f'user {process.user}' if process.user else 'its owner'} to limit or stop it")]
    return view.found(
        view.host(),
        "crit" if nearly else "warn",
        f"out of host memory in about {units.roughly(found.projection.left_s)}, not due to a trainer",
        evidence=(
            *_projected(view, found.projection, f"{found.pool.of} ({units.size(found.pool.total)})"),
            Evidence(text=text, value=found.grown, unit="B"),
        ),
        steps=tuple(steps),
        confidence=0.7,
    )


def _projected(view: View, found: Projection, of: str) -> Iterator[Evidence]:
    """The rate, what is left, and when it is exhausted."""
    text = f"+{units.size(found.grown)} in {units.ago_text(found.window_s)} at a steady {units.size(found.per_s)}/s"
    yield Evidence(text=text, value=found.per_s, unit="B/s")
    urgent_s = view.limit("exhaustion.urgent_s")
    text = f"{units.size(found.left)} {of} left, full in about {units.roughly(found.left_s)}"
    yield Evidence(text=text, value=found.left_s, unit="s", limit=urgent_s, sense="healthy_from")


def _memory_limit(view: View, trainer: Trainer, groups: dict[str, Cgroup]) -> MemoryLimit | None:
    group, host = groups.get(trainer.process.cgroup or ""), view.frame.host
    if group and group.memory_limit_bytes and group.anonymous_bytes is not None:
        taken = group.anonymous_bytes + (group.shared_bytes or 0)
        left = max(0.0, group.memory_limit_bytes - taken)
        return MemoryLimit(float(group.memory_limit_bytes), left, "of its memory limit")
    if host.memory_total_bytes and host.memory_available_bytes is not None:
        return MemoryLimit(float(host.memory_total_bytes), float(host.memory_available_bytes), "of host memory")
    return None


def _is_unreclaimable(view: View, trainer: Trainer, growth: LeakWindow) -> bool:
    """Whether that memory is not reclaimable: mapped files count for a process, too."""
    least = view.limit("gone_share") * growth.total
    available = change(view.past("host", "memory_available_bytes", growth.window_s))
    charged = change(view.past(f"cgroup {trainer.process.cgroup}", "anonymous_bytes", growth.window_s))
    return (available is not None and -available >= least) or (charged is not None and charged >= least)


def _severity(view: View, left_s: float, fast: bool) -> Severity | None:
    if left_s <= view.limit("crit_s"):
        return "crit"
    return "warn" if left_s <= view.limit("warn_s") else "info" if fast else None


def _bytes_read(view: View, trainer: Trainer, growth: LeakWindow) -> float | None:
    """Bytes read over the same time, if about as many as the growth: it may keep what it reads."""
    names = ("read_bytes_per_s", "read_chars_per_s")
    read = max(COARSE_S * sum(one or 0.0 for one in view.past(trainer, name, growth.window_s)) for name in names)
    least, most = view.limit("kept_least") * growth.total, view.limit("kept_most") * growth.total
    return read if least <= read <= most else None


def _host_finding(
    view: View,
    trainer: Trainer,
    growth: LeakWindow,
    room: MemoryLimit,
    left_s: float,
    severity: Severity,
    read: float | None,
) -> Finding:
    hourly = units.size(growth.per_s * 3600)
    loaders = change(view.past(trainer, "loader_pss_bytes", growth.window_s)) or 0.0
    in_loaders = trainer.loaders > 0 and loaders >= view.limit("loaders_share") * growth.total
    where = f" in its {amount(trainer.loaders, 'worker')}" if in_loaders else ""
    left = Evidence(
        text=f"{units.size(room.left)} {room.of} left, full in about {units.roughly(left_s)}",
        value=left_s,
        unit="s",
        limit=view.limit("warn_s"),
        sense="healthy_from",
    )
    caches = "" if read is None else "; may be caching its data"
    reads = () if read is None else (Evidence(text=f"it read {units.size(read)} in that time", value=read, unit="B"),)
    share = Evidence(text=f"its workers grew by {units.size(loaders)} of {units.size(growth.total)}", value=loaders)
    return view.found(
        trainer,
        severity,
        f"out of host memory in about {units.roughly(left_s)}, growing by {hourly} per hour{where}{caches}",
        evidence=(*_growth(growth), left, *reads, *((share,) if trainer.loaders else ())),
        steps=(*_cached(room, read), *(_LOADERS if in_loaders else _MAIN)),
        confidence=0.6,
    )


def _cached(room: MemoryLimit, read: float | None) -> Iterator[Step]:
    if read is not None:
        yield Step(
            text="Check whether it caches its dataset: growth then ends with the first epoch, "
            f"if the rest fits the {units.size(room.left)} left"
        )


_LOADERS = (
    Step(
        text="Keep the dataset index as one NumPy array or Arrow table: "
        "reference counts make forked workers copy every object of a list or dict they read",
        command="self.paths = numpy.array(paths)  # instead of a list",
    ),
    Step(text="Until then, restart the workers every epoch", command="DataLoader(..., persistent_workers=False)"),
    Step(text="Bound caches in __getitem__: each worker has its own"),
)
_MAIN = (
    Step(text="Keep numbers of each step, not tensors", command="losses.append(loss.item())"),
    Step(text="Check for lists of outputs, logged images and metrics that are never reset"),
    Step(
        text="Find the lines that allocate it",
        command="tracemalloc.start(); tracemalloc.take_snapshot().statistics('lineno')[:10]",
    ),
)
