"""Rules on a busy GPU: which units are active, and which of them is the limit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from gputop.diagnose.chip_activity import (
    BY_UNITS,
    DRAM_PEAK,
    dram_share,
    duty,
    partitioned,
    tensor_share,
    unit_activity,
)
from gputop.diagnose.finding import Evidence, Finding, Severity, Step
from gputop.diagnose.gpu_tracker import KEPT
from gputop.diagnose.pauses import Pause, Pauses
from gputop.diagnose.program_kind import may_use_torch, serves
from gputop.diagnose.rule import Level, rule
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.view import View
from gputop.model import Missing
from gputop.units import ago_text

_FUSED = {"tensorflow": "tf.function(step, jit_compile=True)", "jax": "jax.jit(step)"}


@rule(
    "mem-bw-bound",
    "Is a GPU bound by memory bandwidth?",
    level=Level.EFFICIENCY,
    state="memory-bound",
    short="MEM",
    confirmed_by=("memory-bound-kernels",),
    needs=("busy_percent", "dram_percent or memory_busy_percent"),
    partly=("tensor_percent", "power_watts"),
)
def mem_bw_bound(view: View) -> Iterator[Finding]:
    """Memory bandwidth near its peak with tensor cores nearly idle; on an otherwise idle GPU, possibly copies."""
    for trainer in view.trainers():
        busy = view.mean(trainer, "busy_percent")
        if not view.knows(trainer, "duty") or busy is None or trainer.peers or serves(trainer):
            continue
        if view.above(busy, "busy_percent"):
            moves = view.above(dram_share(trainer), "dram") and view.knows(trainer, "tensor")
            by_units = moves and view.below(tensor_share(trainer), "tensor")
            if by_units or (trainer.dram is None and _memory_bound_by_proxy(view, trainer)):
                yield _memory_bound_finding(view, trainer, busy, by_units)
        elif view.below(busy, "idle_percent"):
            moves = view.above(dram_share(trainer), "dram")
            if moves or (trainer.dram is None and _memory_mostly_in_use(view, trainer)):
                yield _copies_finding(view, trainer, busy)


def _memory_mostly_in_use(view: View, trainer: Trainer) -> bool:
    """The same by time with memory traffic, for GPUs that do not report bandwidth."""
    return view.knows(trainer, "memory_busy") and view.above(trainer.memory_busy, "idle_memory_busy")


def _memory_bound_by_proxy(view: View, trainer: Trainer) -> bool:
    """Memory-bound by proxy: time with traffic saturates early, so power must lie between waiting and computing."""
    return (
        not partitioned(trainer)
        and view.knows(trainer, "memory_busy", "power_share")
        and view.above(trainer.memory_busy, "memory_busy")
        and view.above(trainer.power_share, "power_share")
        and view.below(trainer.power_share, "most_power_share")
    )


def _traffic(view: View, trainer: Trainer) -> Evidence:
    if trainer.dram is not None:
        moved = 100 * trainer.dram
        text = f"memory bandwidth {moved:.0f} % of peak (achievable 80 %)"
        return Evidence(text=text, value=moved, unit="%", limit=80 * view.limit("dram"), sense="flagged_from")
    active = 100 * (trainer.memory_busy or 0.0)
    text = f"memory busy {active:.0f} % of the time (bandwidth unavailable)"
    return Evidence(text=text, value=active, unit="%", limit=100 * view.limit("memory_busy"), sense="flagged_from")


def _memory_bound_finding(view: View, trainer: Trainer, busy: float, by_units: bool) -> Finding:
    return view.found(
        trainer,
        "info",
        "memory-bound, device-memory bandwidth is the limit",
        evidence=(_traffic(view, trainer), duty(trainer, busy), *unit_activity(trainer, memory=False)),
        steps=tuple(_fewer_bytes(trainer)),
        confidence=0.8 if by_units else 0.5,
    )


def _fewer_bytes(trainer: Trainer) -> Iterator[Step]:
    """Steps that reduce memory traffic, in the terms of the framework if it is known."""
    fuse, torch = "Fuse elementwise operations to reduce memory traffic", may_use_torch(trainer)
    if torch:
        yield Step(text=fuse, command="model = torch.compile(model)")
        yield Step(text="Use a fused optimizer", command="torch.optim.AdamW(model.parameters(), fused=True)")
        yield Step(
            text="Use fused attention (FlashAttention)",
            command="torch.nn.functional.scaled_dot_product_attention(q, k, v)",
        )
    else:
        known = (_FUSED[name] for name in _FUSED if name in trainer.process.libraries)
        yield Step(text=fuse, command=next(known, None))
    yield Step(text=f"Use bfloat16 activations: half the bytes{'; channels_last for convolutions' if torch else ''}")


def _copies_finding(view: View, trainer: Trainer, busy: float) -> Finding:
    return view.found(
        trainer,
        "info",
        "high memory traffic with few kernels, possibly copies",
        evidence=(_traffic(view, trainer), duty(trainer, busy, view.limit("idle_percent"), "flagged_below")),
        steps=(Step(text="Take a torch trace and look for memcpy between host and device"),),
        confidence=0.4,
    )


_LAST, _MISSED = 6, 3  # pauses that show their interval; intervals without one, after which they are over
_RECUR = 2  # pauses
_LEAST_S = 60.0  # needed to report a share
_BIGGER = (
    Step(text="Optional: mixed precision if it is off, torch.compile, a larger batch"),
    Step(text="Scale out to more GPUs with DDP; batch size and num_workers are per rank: divide them or scale the LR"),
)


@rule(
    "gpu-bound-healthy",
    "Is the GPU itself the bottleneck, as it should be?",
    level=Level.HEALTHY,
    state="healthy",
    short="OK",
    needs=("busy_percent", "sm_active_percent or power_watts or memory_busy_percent"),
    partly=("sm_clock_mhz",),
)
def gpu_bound_healthy(view: View) -> Iterator[Finding]:
    """Busy without gaps, and a second metric confirms effective work."""
    for trainer in view.trainers():
        paused = view.pauses(trainer).current
        if paused is not None and paused.length_s >= view.limit("pause_s"):
            continue
        busy, sigma = _busy_between_pauses(view, trainer)
        if not view.knows(trainer, "duty") or not (view.above(busy, "busy_percent") or _surely_busy(view, trainer)):
            continue
        if sigma is not None and not view.below(sigma, "sigma"):
            continue
        cost = _pause_cost(view, trainer)
        if any((one.value or 0.0) >= view.limit("paused_percent") for one in cost):
            continue  # it stops again and again: not healthy, whatever it does in between
        if len(trainer.works_on) < len(trainer.gpus):
            continue  # it may intend to use them all
        if trainer.clock_share is not None and trainer.clock_share < view.limit("least_clock_share"):
            continue  # it is busy because it is slow
        kind = _kind(view, trainer)
        if kind is None:
            continue
        yield view.found(
            trainer,
            "info",
            f"healthy, {kind}",
            evidence=(
                duty(trainer, busy, view.limit("busy_percent")),
                *unit_activity(trainer, limits={"memory busy": view.limit("memory_busy")}),
                *cost,
            ),
            steps=_BIGGER,
            confidence=0.8 if trainer.sm is not None else 0.6 if trainer.power_share is not None else 0.5,
            healthy=True,
            lost_share=0.0,
        )


def _surely_busy(view: View, trainer: Trainer) -> bool:
    """Whether SM activity substitutes utilization and is high: GPU busy is at least that."""
    by = trainer.duty_by
    return by is not None and by.lower_bound and view.above(trainer.sm, "alone_sm")


def _busy_between_pauses(view: View, trainer: Trainer) -> tuple[float | None, float | None]:
    """Mean and standard deviation of GPU busy in percent, between its pauses if it has any."""
    pauses, window_s = view.pauses(trainer), view.limit("window_s")
    if not _real_pauses(view, trainer, max(window_s, KEPT * trainer.spacing_s)):
        return view.mean(trainer, "busy_percent"), None if trainer.shape is None else trainer.shape.sigma
    mean, sigma, known_s = pauses.between(window_s)
    return (mean, sigma) if known_s >= window_s / 2 else (view.mean(trainer, "busy_percent"), None)


def _real_pauses(view: View, trainer: Trainer, seconds: float) -> list[Pause]:
    """Its pauses, without the gaps between steps."""
    return [one for one in view.pauses(trainer).recent(seconds) if one.idle_s >= view.limit("checkpoint-stall.idle_s")]


def _pause_cost(view: View, trainer: Trainer) -> tuple[Evidence, ...]:
    """Cost of recurring pauses: over the last minutes or a longer time, whichever is worse.

    A single one, as after an epoch, does not matter.
    """
    limit, found = view.limit("paused_percent"), []
    for seconds, least in ((view.limit("paused_s"), _RECUR), (view.limit("often_s"), _RECUR + 1)):
        counted = _real_pauses(view, trainer, seconds)
        if len(counted) >= least and not _pauses_over(view, trainer, counted):
            lost, of_s = _lost_to_pauses(view.pauses(trainer), counted, seconds)
            text = f"{len(counted)} pauses, {100 * lost:.1f} % of GPU time lost in {ago_text(of_s)}"
            found.append(Evidence(text=text, value=100 * lost, unit="%", limit=limit, sense="healthy_to"))
    return tuple(sorted(found, key=lambda one: -(one.value or 0.0))[:1])


def _pauses_over(view: View, trainer: Trainer, counted: Sequence[Pause]) -> bool:
    """Whether pauses have stopped recurring: none for several times their usual interval."""
    ends = [one.end_s for one in counted[-_LAST:]]
    longest_s = max(later - earlier for earlier, later in pairwise(ends))
    since_s = (view.pauses(trainer).seen_s or 0.0) - ends[-1]
    return since_s > max(_MISSED * longest_s, view.limit("window_s"))


def _lost_to_pauses(pauses: Pauses, counted: Sequence[Pause], seconds: float) -> tuple[float, float]:
    """Share of GPU time lost to pauses, of the seconds since the first one (all tracked if only two)."""
    if len(counted) == _RECUR:
        return pauses.lost(counted, seconds), pauses.watched_s(seconds)
    of_s = max(_LEAST_S, (pauses.seen_s or 0.0) - counted[0].end_s)
    return sum(one.idle_s for one in counted[1:]) / of_s, of_s


def _kind(view: View, trainer: Trainer) -> str | None:
    """What limits the GPU; None if it is busy with low activity, or another rule covers it."""
    if trainer.sm is None:
        if trainer.power_share is None and trainer.memory_busy is not None:  # as on a vGPU
            return "steady memory traffic" if view.above(trainer.memory_busy, "memory_busy") else None
        known = view.knows(trainer, "power_share", "clock_share")
        by_power = view.above(trainer.power_share, "power_share") and view.above(trainer.clock_share, "clock_share")
        return "power near the limit" if known and by_power else None
    tensor, dram = tensor_share(trainer) or 0.0, dram_share(trainer) or 0.0
    in_fp32 = (trainer.fp32 or 0.0) >= view.limit("fp32") and (trainer.tensor or 0.0) < view.limit("no_tensor")
    by_memory = view.above(dram, "dram")
    if in_fp32 or (by_memory and tensor < view.limit("little_tensor")):
        return None
    if view.above(tensor, "compute"):
        return "compute-bound"
    if by_memory:
        return "memory-bound"
    return "mix of compute and memory" if view.above(tensor, "tensor") or view.above(trainer.sm, "sm") else None


# settings for TF32 and bfloat16 in other frameworks
_OTHERS = {
    "tensorflow": (
        "tf.config.experimental.enable_tensor_float_32_execution(True)",
        'tf.keras.mixed_precision.set_global_policy("mixed_bfloat16")',
    ),
    "jax": ('jax.config.update("jax_default_matmul_precision", "tensorfloat32")', "x.astype(jax.numpy.bfloat16)"),
}
_TORCH = ('torch.set_float32_matmul_precision("high")', 'with torch.autocast("cuda", dtype=torch.bfloat16):')


@rule(
    "tensor-cores-idle",
    "Does matrix math run in fp32, with the tensor cores idle?",
    level=Level.EFFICIENCY,
    state="fp32 math",
    short="FP32",
    confirmed_by=("full-precision",),
    needs=("busy_percent", "fp32_percent", "tensor_percent", "compute_capability"),
)
def tensor_cores_idle(view: View) -> Iterator[Finding]:
    """fp32 pipe active, tensor cores not, on a GPU that has them; fp64 programs are exempt."""
    for trainer in view.trainers():
        busy = view.mean(trainer, "busy_percent")
        if not view.knows(trainer, "duty") or not view.above(busy, "busy_percent"):
            continue
        if not _has_tensor_cores(view, trainer) or trainer.peers or serves(trainer):
            continue
        if not view.knows(trainer, "fp32", "tensor", unlock=BY_UNITS) or not view.above(trainer.fp32, "fp32"):
            continue
        double = [view.mean(gpu, "fp64_percent") or 0.0 for gpu in trainer.gpus]
        if max(double, default=0.0) > view.limit("fp64_percent"):
            continue
        if view.below(trainer.tensor, "tensor"):
            idle = (trainer.tensor or 0.0) < view.limit("idle_tensor")
            yield _fp32_finding(view, trainer, busy or 0.0, "warn" if idle else "info")


def _has_tensor_cores(view: View, trainer: Trainer) -> bool:
    known = bool(trainer.gpus) and all(view.knows(gpu, "compute_capability") for gpu in trainer.gpus)
    return known and all((gpu.compute_capability or (0, 0)) >= (7, 0) for gpu in trainer.gpus)


def _fp32_finding(view: View, trainer: Trainer, busy: float, severity: Severity) -> Finding:
    fp32, tensor = 100 * (trainer.fp32 or 0.0), 100 * (trainer.tensor or 0.0)
    return view.found(
        trainer,
        severity,
        "matrix math in fp32, tensor cores idle" if severity == "warn" else "much of the math in fp32",
        evidence=(
            Evidence(
                text=f"fp32 pipe activity {fp32:.0f} %",
                value=fp32,
                unit="%",
                limit=100 * view.limit("fp32"),
                sense="flagged_from",
            ),
            Evidence(
                text=f"tensor activity {tensor:.0f} %",
                value=tensor,
                unit="%",
                limit=100 * view.limit("tensor"),
                sense="healthy_from",
            ),
            duty(trainer, busy),
        ),
        steps=tuple(_steps(trainer)),
        confidence=0.8,
    )


def _steps(trainer: Trainer) -> Iterator[Step]:
    torch, libraries = may_use_torch(trainer), trainer.process.libraries
    others = next((_OTHERS[name] for name in _OTHERS if name in libraries), None)
    tf32, half = _TORCH if torch else others or (None, None)
    if torch or others:
        yield Step(text="Enable TF32: one line, almost the same results", command=tf32)
        yield Step(text="Use bfloat16 autocast: faster still, no GradScaler needed", command=half)
    else:
        yield Step(text="Use a lower precision if results allow it: TF32, mixed, bfloat16")
    yield Step(text="Use dimensions in multiples of 8, vocabularies in multiples of 64; avoid repeated casts")
    compiled = ", and bfloat16 with torch.compile" if torch else ""
    yield Step(
        text=f"Compare steps/s in fp32{',' if torch else ' and'} bfloat16{compiled}: "
        "below 20 % gain, the bottleneck is elsewhere"
    )


_RANKS = "a torch trace separates collective wait, which counts as busy, from small kernels"


@rule(
    "busy-not-effective",
    "Is a GPU busy with low SM activity?",
    level=Level.EFFICIENCY,
    state="little work",
    short="FEW",
    confirmed_by=("small-grids",),
    needs=("busy_percent", "sm_active_percent or power_watts"),
    partly=("memory_busy_percent", "sm_clock_mhz", "world_size", "facts"),
)
def busy_not_effective(view: View) -> Iterator[Finding]:
    """Kernels run all the time with few active SMs; without unit metrics, low power at the full SM clock."""
    for trainer in view.trainers():
        busy = view.mean(trainer, "busy_percent")
        if not view.knows(trainer, "duty") or not view.above(busy, "busy_percent"):
            continue
        if trainer.peers or serves(trainer):
            continue
        units = _severity(view, trainer)
        proxy = trainer.sm is None and not partitioned(trainer) and _draws_little(view, trainer)
        if units is None and not proxy:
            continue
        if not view.knows(trainer, "is_rank"):
            continue
        if trainer.is_rank and not view.fact(trainer, "small-grids"):
            view.abstain(trainer, Missing(metric="facts", reason="absent", unlock=_RANKS))
            continue
        yield view.found(
            trainer,
            units or "info",
            "high utilization, low SM activity" if units else "high utilization, low power",
            evidence=(
                duty(trainer, busy, view.limit("busy_percent")),
                *unit_activity(trainer, limits=_decided_limits(view, units)),
                *_clock(view, trainer),
            ),
            steps=_STEPS,
            confidence=0.75 if units else 0.5,
        )


def _severity(view: View, trainer: Trainer) -> Severity | None:
    """Severity by unit metrics: None if they are unavailable, or show enough activity."""
    if trainer.sm is not None and trainer.sm < view.limit("few_sm"):
        return "warn"
    tensor, dram = trainer.tensor, dram_share(trainer)
    little = view.below(trainer.sm, "sm") and view.below(tensor, "tensor") and view.below(dram, "dram")
    return "info" if little else None


def _decided_limits(view: View, severity: Severity | None) -> dict[str, float]:
    """Limits that the unit metrics fell below."""
    if severity == "warn":
        return {"SM activity": view.limit("few_sm")}
    limits = {"SM activity": view.limit("sm"), "tensor activity": view.limit("tensor")}
    return limits | {"memory bandwidth": DRAM_PEAK * view.limit("dram")} if severity else {}


def _draws_little(view: View, trainer: Trainer) -> bool:
    """By power: low power is common among busy GPUs, so memory must be idle and the clock high as well."""
    return (
        view.knows(trainer, "power_share", "memory_busy", "clock_share")
        and view.below(trainer.power_share, "power_share")
        and view.below(trainer.memory_busy, "memory_busy")
        and view.above(trainer.clock_share, "clock_share")
    )


def _clock(view: View, trainer: Trainer) -> Iterator[Evidence]:
    if trainer.sm is None and trainer.clock_share is not None:
        share, limit = min(100.0, 100 * trainer.clock_share), 100 * view.limit("clock_share")
        text = f"SM clock {share:.0f} % of maximum"
        yield Evidence(text=text, value=share, unit="%", limit=limit, sense="flagged_from")


_STEPS = (
    Step(text="Raise the work per kernel: a larger batch, or packed sequences"),
    Step(text="Fuse small kernels", command="model = torch.compile(model)"),
    Step(text="Launch them as CUDA graphs", command='model = torch.compile(model, mode="reduce-overhead")'),
    Step(text="In a trace, look for kernels with fewer blocks than the GPU has SMs"),
)
