"""Rules on nearly full device memory, and on programs that take turns on one GPU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from shlex import quote

from gputop import pytorch, units
from gputop.diagnose.finding import Evidence, Finding, Severity, Step
from gputop.diagnose.rule import Level, rule
from gputop.diagnose.rules.memory.leaks import usable
from gputop.diagnose.steps import cuda_visible_devices, renumbers_gpus, visible_gpus
from gputop.diagnose.view import View
from gputop.model import Frame, Gpu, GpuShare, Identity, Missing, Process

Held = Sequence[tuple[Process, GpuShare]]


def holders(view: View) -> Mapping[str, Held]:
    """Processes named by the driver by GPU, each once; graphics contexts count only without a compute one."""
    return view.cached("holders", lambda: _holders(view.frame))


def _holders(frame: Frame) -> Mapping[str, Held]:
    found: dict[str, list[tuple[Process, GpuShare]]] = {}
    for process in frame.processes:
        if not process.gpus:
            continue
        mine: dict[str, GpuShare] = {}
        for share in process.gpus:
            other = mine.get(share.uuid)
            if other is None or _weight(share) > _weight(other):
                mine[share.uuid] = share
        for uuid, share in mine.items():
            found.setdefault(uuid, []).append((process, share))
    return found


def _weight(share: GpuShare) -> tuple[bool, int]:
    return share.kind != "graphics", share.vram_bytes or 0


def named(process: Process) -> str:
    """Name, owner and PID: `python (carol, pid 3310)`."""
    owner = f"{process.user}, " if process.user else ""
    return f"{process.name or 'a process'} ({owner}pid {process.pid})"


_PARTS = 5  # of the window


@rule(
    "gmem-nearly-full",
    "Is the memory of a GPU nearly full?",
    level=Level.BESIDE,
    state="gpu full",
    short="FULL",
    needs=("vram_used_bytes", "vram_total_bytes"),
)
def gmem_nearly_full(view: View) -> Iterator[Finding]:
    """Full and growing is a risk; full and stable is a caching allocator or a deliberate choice."""
    for gpu in view.gpus():
        if gpu.unified_memory or not view.knows(gpu, "vram_used_bytes", "vram_total_bytes"):
            continue
        most, used = usable(gpu) or 0.0, gpu.vram_used_bytes or 0
        if not most or not view.above(used / most, "info_share"):
            continue
        grown = _recent_growth(view, gpu)
        near = used / most >= view.limit("warn_share") or most - used < view.limit("growth_ahead") * grown
        severity: Severity = "warn" if near and grown >= view.limit("least_growth_bytes") else "info"
        yield _full_finding(view, gpu, used, most, grown, severity)


def _recent_growth(view: View, gpu: Gpu) -> float:
    """Bytes above the minimum of the window if it rose more than once; else 0.

    A single allocation does not continue, and use that goes up and down has been there before.
    """
    values = view.window(gpu, "vram_used_bytes").values
    size, least = len(values) // _PARTS, view.limit("least_growth_bytes") / _PARTS
    if not size:
        return 0.0
    before = view.window(gpu, "vram_used_bytes", view.limit("known_s")).values[: -len(values)]
    peaks = [max(before, default=0.0), *(max(values[-size * part :][:size]) for part in range(_PARTS, 0, -1))]
    rises = [part for part in range(2, len(peaks)) if peaks[part] - max(peaks[:part]) >= least]
    again = bool(rises) and rises[-1] - rises[0] >= 2  # one rise may span two parts
    return max(0.0, values[-1] - min(values)) if again else 0.0


def _full_finding(view: View, gpu: Gpu, used: float, most: float, grown: float, severity: Severity) -> Finding:
    left = units.size(most - used)
    calm = Step(text=f"Change nothing while it stays stable: PyTorch, JAX and vLLM cache unused memory; {left} left")
    return view.found(
        gpu,
        severity,
        f"memory nearly full and growing, {left} left" if severity == "warn" else "memory nearly full, stable",
        evidence=tuple(_figures(view, gpu, used, most, grown)),
        steps=(*(() if severity == "warn" else (calm,)), *_memory_steps(view, gpu)),
        confidence=0.8,
        grade="driver",
    )


def _figures(view: View, gpu: Gpu, used: float, most: float, grown: float) -> Iterator[Evidence]:
    share, seconds = 100 * used / most, view.limit("window_s")
    text = f"{units.size(used)} of {units.size(most)} in use ({share:.0f} %)"
    yield Evidence(text=text, value=share, unit="%", limit=100 * view.limit("info_share"), sense="flagged_above")
    text = (
        f"+{units.size(grown)} in {units.ago_text(seconds)}"
        if grown
        else f"no sustained growth in {units.ago_text(seconds)}"
    )
    yield Evidence(text=text, value=grown, unit="B", limit=view.limit("least_growth_bytes"), sense="flagged_above")
    held = sorted(holders(view).get(gpu.uuid, ()), key=lambda one: -(one[1].vram_bytes or 0))
    if held:
        names = [f"{named(process)} {units.size(share.vram_bytes)}" for process, share in held[:3]]
        yield Evidence(text=", ".join(names))


def _memory_steps(view: View, gpu: Gpu) -> Iterator[Step]:
    """Cheapest first: a setting, then program changes."""
    versions = [process.torch_version for process, _ in holders(view).get(gpu.uuid, ()) if process.torch_version]
    setting = pytorch.allocator("expandable_segments:True", versions[0] if versions else None)
    yield Step(text="Reduce fragmentation of PyTorch's cache", command=setting)
    yield Step(text="Halve the batch and accumulate twice as many steps: gradients stay the same")
    yield Step(
        text="Recompute activations instead of storing them",
        command="torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)",
    )


_MPS = "nvidia-cuda-mps"


@rule(
    "gpu-shared",
    "Is a GPU time-sliced between several programs?",
    level=Level.DEVICE,
    state="shared",
    short="2PRG",
    needs=("busy_percent",),
)
def gpu_shared(view: View) -> Iterator[Finding]:
    """Two or more jobs keep one GPU busy: without MPS they run in turns, not concurrently."""
    for gpu in view.gpus():
        tenants = view.tenants(gpu)
        if len(tenants) < 2:
            _remember_alone(view, gpu, tenants)
            continue
        held = [one for one in holders(view).get(gpu.uuid, ()) if one[1].kind != "graphics"]
        if any(process.name.startswith(_MPS) or share.kind == "mps" for process, share in held):
            continue
        if any(share.busy_percent is None for _, share in held):
            view.abstain(gpu, Missing(metric="busy_percent", reason="unsupported"))
            continue
        means = _means(view, gpu, held)
        active = [one for one in tenants if view.above(means.get(one.identity), "each_percent")]
        owners = {process.job or process.identity for process in active}
        if len(owners) > 1 and view.above(sum(means[one.identity] for one in active), "together_percent"):
            yield _shared_finding(view, gpu, active, means)


def _remember_alone(view: View, gpu: Gpu, tenants: Sequence[Process]) -> None:
    """Record the utilization that a program reaches alone on a GPU."""
    notes = view.notes(gpu)
    notes.pop("means", None)
    if tenants and (busy := view.mean(gpu, "busy_percent")) is not None:
        notes["alone"] = {tenants[0].identity: busy}


def _means(view: View, gpu: Gpu, held: Held) -> Mapping[Identity, float]:
    """GPU busy of each process over the window; without those that started within it."""
    before: dict[Identity, tuple[float, float]] = view.notes(gpu).get("means", {})
    now_s, look_s, window_s = view.frame.mono_s, view.stands_for_s, view.limit("window_s")
    fresh: dict[Identity, tuple[float, float]] = {}
    for process, share in held:
        busy = share.busy_percent or 0.0
        since_s, mean = before.get(process.identity, (now_s, busy))
        part = min(1.0, look_s / min(now_s - since_s + look_s, window_s))
        fresh[process.identity] = since_s, mean + (busy - mean) * part
    view.notes(gpu)["means"] = fresh
    return {identity: mean for identity, (since_s, mean) in fresh.items() if now_s - since_s >= window_s}


def _shared_finding(view: View, gpu: Gpu, active: Sequence[Process], means: Mapping[Identity, float]) -> Finding:
    alone: Mapping[Identity, float] = view.notes(gpu).get("alone", {})
    kept = [
        means[process.identity] / alone[process.identity] for process in active if alone.get(process.identity, 0.0) > 0
    ]
    slowed = bool(kept) and max(kept) <= view.limit("kept")
    evidence = [
        Evidence(
            text=f"{named(process)}, busy {means[process.identity]:.0f} %{_before_text(alone.get(process.identity))}",
            value=means[process.identity],
            unit="%",
            limit=view.limit("each_percent"),
            sense="flagged_above",
        )
        for process in sorted(active, key=lambda process: -means[process.identity])
    ]
    return view.found(
        gpu,
        "warn" if slowed else "info",
        f"time-sliced between {len(active)} programs",
        evidence=tuple(evidence[:6]),
        steps=(_free_gpu_step(view, active), *_mps_steps(gpu)),
        confidence=0.75,
        lost_share=1 - sum(kept) / len(kept) if slowed else None,
    )


def _before_text(percent: float | None) -> str:
    return "" if percent is None else f", {percent:.0f} % while alone"


def _free_gpu_step(view: View, active: Sequence[Process]) -> Step:
    """A free GPU for one of them, if it may use it: a container or a Slurm job has only some."""
    free = [one for one in view.frame.gpus if one.condition == "ok" and not view.tenants(one) and not one.mig_mode]
    if not free:
        return Step(text="Run one after the other, or agree on which GPUs each uses: none of this machine is free")
    for process in active:
        may = [one for one in visible_gpus(view, process) if one in free] if renumbers_gpus(process) else free
        if may:
            which = named(process) if any(map(renumbers_gpus, active)) else "one of them"
            command = f"export CUDA_VISIBLE_DEVICES={cuda_visible_devices(view, may[:1], [process])}"
            return Step(text=f"Start {which} on another GPU: {_are_free(may)}", command=command)
    return Step(text=f"Start one of them on another GPU, if assigned one: {_are_free(free)} on this machine")


def _are_free(gpus: Sequence[Gpu]) -> str:
    return f"{', '.join(gpu.index for gpu in gpus[:4])} {'is' if len(gpus) == 1 else 'are'} free"


def _mps_steps(gpu: Gpu) -> Iterator[Step]:
    yield Step(
        text="Run small programs of one user concurrently under MPS, started before them",
        command="nvidia-cuda-mps-control -d",
    )
    if gpu.architecture in ("ampere", "hopper", "blackwell"):
        yield Step(
            text="Partition the GPU with MIG, if supported; it must be idle for that",
            command=f"sudo nvidia-smi -i {quote(gpu.index)} -mig 1",
            needs_root=True,
            destroys=True,
        )
