"""A rule on host memory shortage: of the machine, or under a job's limit."""

from __future__ import annotations

from collections.abc import Iterator

from gputop import num_workers, units
from gputop.diagnose.finding import Evidence, Finding, Severity, Step
from gputop.diagnose.rule import Level, rule
from gputop.diagnose.rules.storage.sources import blocked, waiters
from gputop.diagnose.starvation import is_starved
from gputop.diagnose.steps import raise_container_limit
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.view import View
from gputop.labels import amount
from gputop.model import Cgroup, Host
from gputop.phrases import Sense


@rule(
    "memory-pressure",
    "Is host memory short?",
    level=Level.CAUSE,
    state="memory",
    short="MEM",
    needs=(),
    partly=("memory_total_bytes", "memory_available_bytes", "swap_in_per_s", "memory_pressure"),
    alone=True,
    lasting=True,
    of_host=True,
)
def memory_pressure(view: View) -> Iterator[Finding]:
    """Swapping, memory pressure, refaults of dropped pages, or a memory limit that is reached."""
    host = view.host()
    short = tuple(_machine(view, host)) if view.knows(host, "memory_total_bytes", "memory_available_bytes") else ()
    yield from short
    if not short:
        for trainer in view.trainers():
            if is_starved(view, trainer) and _waits_for_refaults(view, trainer):
                yield _thrash_finding(view, trainer)
    groups = {group.path: group for group in view.frame.cgroups if group.memory_limit_bytes}
    for trainer in view.trainers(cold=True):
        if (group := groups.get(trainer.process.cgroup or "")) is not None:
            yield from _limit_findings(view, trainer, group)


def _machine(view: View, host: Host) -> Iterator[Finding]:
    """The machine is short only if little is left; otherwise some control group swaps or waits."""
    swaps = [view.mean(host, name) for name in ("swap_in_per_s", "swap_out_per_s")]
    swapped = sum(known) if (known := [rate for rate in swaps if rate is not None]) else None
    some, full = view.mean(host, "memory_pressure"), view.mean(host, "memory_pressure_full")
    if swapped is None and some is None:
        view.knows(host, "swap_in_per_s", "memory_pressure")
        return
    total, left = host.memory_total_bytes or 1, host.memory_available_bytes or 0
    little = view.below(left / total, "left")
    waits = view.above(some, "pressure_percent") or view.above(full, "full_percent")
    if little and (waits or view.above(swapped, "pages_per_s")):
        severity: Severity = "crit" if (full or 0.0) >= view.limit("full_percent") else "warn"
        yield view.found(
            host,
            severity,
            f"host memory low, {units.size(left)} of {units.size(total)} left",
            evidence=tuple(_shortage_evidence(view, left, swapped, some, full)),
            steps=(*_fewer_loaders(view), *_STEPS),
            confidence=view.confidence(0.85, some, swapped),
        )


def _waits_for_refaults(view: View, trainer: Trainer) -> bool:
    """Whether it waits for storage while the machine refaults dropped pages: a computing trainer has lost nothing."""
    share = blocked(view, trainer)
    waits = share is not None and share >= view.limit("starved.blocked")
    return waits and view.above(view.mean("host", "refaults_per_s"), "refaults_per_s")


def _shortage_evidence(
    view: View, left: float, swapped: float | None, some: float | None, full: float | None
) -> Iterator[Evidence]:
    least = view.limit("left") * (view.frame.host.memory_total_bytes or 0)
    text = f"{units.size(left)} available without swapping"
    yield Evidence(text=text, value=left, unit="B", limit=least, sense="healthy_from")
    if swapped:
        text = f"swap traffic {swapped:.0f} pages/s"
        yield Evidence(text=text, value=swapped, unit="1/s", limit=view.limit("pages_per_s"), sense="healthy_to")
    if some:
        text = f"some tasks stalled on memory {some:.0f} % of the time"
        yield Evidence(text=text, value=some, unit="%", limit=view.limit("pressure_percent"), sense="healthy_to")
    if full:
        text = f"all tasks stalled on memory {full:.0f} % of the time"
        yield Evidence(text=text, value=full, unit="%", limit=view.limit("full_percent"), sense="healthy_to")


def _thrash_finding(view: View, trainer: Trainer) -> Finding:
    again, cached = view.mean("host", "refaults_per_s") or 0.0, view.frame.host.memory_cached_bytes
    share, least = 100 * (blocked(view, trainer) or 0.0), 100 * view.limit("starved.blocked")
    return view.found(
        trainer,
        "warn",
        f"page cache thrashing, dataset larger than the cache ({units.size(cached)})",
        evidence=(
            Evidence(
                text=f"{again:.0f} pages/s read again on this machine soon after eviction from the page cache",
                value=again,
                unit="1/s",
                limit=view.limit("refaults_per_s"),
                sense="healthy_to",
            ),
            Evidence(
                text=f"{waiters(trainer)} for storage {share:.0f} % of the time",
                value=share,
                unit="%",
                limit=least,
                sense="healthy_to",
            ),
        ),
        steps=(
            Step(text="Read larger files in order, or a smaller copy of the data: what is read once needs no cache"),
            Step(text="Copy the data to a local NVMe disk, which is fast without a cache"),
            *_fewer_loaders(view, trainer),
        ),
        confidence=0.7,
    )


def _limit_findings(view: View, trainer: Trainer, group: Cgroup) -> Iterator[Finding]:
    """A job at its own limit; a limit reached by page cache alone works as intended."""
    about, limit = f"cgroup {group.path}", group.memory_limit_bytes or 1
    killed, own_limit = _recent_kills(view, trainer, group)
    some, full = view.mean(about, "memory_pressure"), view.mean(about, "memory_pressure_full")
    used, own = view.mean(about, "memory_used_bytes"), view.mean(about, "anonymous_bytes")
    hits = view.mean(about, "limit_hits_per_s")
    firm = None if own is None else (own + (group.shared_bytes or 0)) / limit
    hit = view.above(None if used is None else used / limit, "limit_share") and view.above(hits, "hits_per_s")
    waits = view.above(some, "pressure_percent") or view.above(full, "full_percent")
    if not killed and not waits and not (hit and view.above(firm, "own_share")):
        return
    were = "was" if killed == 1 else "were"
    senses: tuple[Sense, ...] = ("flagged_above", "flagged_above", "healthy_to", "healthy_to", "healthy_to")
    evidence = [Evidence(text=text, value=value, unit=unit, limit=most, sense=sense)
                for sense, (text, value, unit, most) in zip(senses, (
        (f"{units.size(used)} of {units.size(limit)} in use", used, "B", float(limit)),
        (f"{units.size(own)} of that anonymous, not page cache", own, "B", view.limit("own_share") * limit),
        (f"memory limit hit {hits or 0:.1f} times per second", hits, "1/s", view.limit("hits_per_s")),
        (f"some tasks stalled on memory {some or 0:.0f} % of the time", some, "%", view.limit("pressure_percent")),
        (f"{killed} of its processes {were} OOM-killed", float(killed), "", 0.0),
    ), strict=True) if value]  # fmt: skip
    yield view.found(
        trainer,
        "crit" if killed or (full or 0.0) >= view.limit("full_percent") else "warn",
        _headline(limit, killed, own_limit),
        evidence=tuple(evidence),
        steps=(
            *_fewer_loaders(view, trainer),
            _LOOK if killed and not own_limit else _raise(view, trainer, limit),
            *_STEPS[:1],
        ),
        confidence=view.confidence(0.85, some),
    )


def _headline(limit: int, killed: int, own_limit: bool) -> str:
    if not killed:
        return f"memory limit of {units.size(limit)} reached"
    why = "its memory limit reached" if own_limit else "host or parent cgroup out of memory"
    return f"{amount(killed, 'process')} OOM-killed, {why}"


def _recent_kills(view: View, trainer: Trainer, group: Cgroup) -> tuple[int, bool]:
    """Recent OOM kills, and whether at this limit; earlier ones are history.

    The kernel also counts kills for a shortage of the machine or of a parent group.
    """
    notes, now_s, kills, ooms = view.notes(trainer), view.frame.mono_s, group.oom_kills, group.oom_count
    if kills is None:
        return 0, False
    # control groups v1 do not count failed reclaims: the limit must have been hit at least
    if (group.limit_hits_per_s or 0.0) > 0 if ooms is None else ooms > notes.get("ooms", ooms):
        notes["hit_s"] = now_s
    if ooms is not None:
        notes["ooms"] = ooms
    first = notes.setdefault("kills", kills)
    if kills > notes.get("newest", first):
        notes["killed_s"], notes["own"] = now_s, now_s - notes.get("hit_s", -1e9) <= view.limit("window_s")
    notes["newest"] = kills
    late = now_s - notes.get("killed_s", -1e9) >= view.limit("killed_s")
    return (0, False) if late else (kills - first, notes["own"])


def _fewer_loaders(view: View, trainer: Trainer | None = None) -> Iterator[Step]:
    """Fewer loaders, if they use most of it."""
    trainers = [trainer] if trainer else view.vectors()
    loaders = sum(one.loaders for one in trainers)
    most = max((one.loaders for one in trainers), default=0)
    weights = [view.mean(one.key, "loader_pss_bytes", 60) for one in trainers]
    held = sum(weight for weight in weights if weight is not None)
    if most > 1:
        text = f"Use fewer workers, or prefetch less: {amount(loaders, 'worker')}"
        text += f" hold {units.size(held)}" if held else " running"
        yield Step(text=text, command=f"DataLoader(..., num_workers={num_workers.fewer(most)}, prefetch_factor=2)")


def _raise(view: View, trainer: Trainer, limit: int) -> Step:
    process, wanted = trainer.process, round(1.5 * limit / 2**30) or 1
    if process.slurm_job:
        return Step(text=f"Request {wanted}G from Slurm", command=f"#SBATCH --mem={wanted}G")
    if process.container:
        text, setting = f"Raise the memory limit of its container to {wanted}G, if available", f"--memory {wanted}g"
        return raise_container_limit(
            view, process, text, f"{setting} --memory-swap {wanted}g", f"set resources.limits.memory: {wanted}Gi"
        )
    return Step(text=f"Raise MemoryMax of its unit, or memory.max of {process.cgroup or 'its group'}, to {wanted}G")


_LOOK = Step(
    text="Check what ran out of memory: the kernel log names the cgroup, or none if it was the host",
    command="sudo dmesg | grep -E 'oom-kill|Killed process'",
    needs_root=True,
)
_STEPS = (
    Step(text="Map the dataset instead of loading it: numpy.load(..., mmap_mode='r'), Arrow, safetensors"),
    Step(text="Pin no more memory than the GPU needs: pinned memory cannot be swapped (/dev/shm can, slowly)"),
)
