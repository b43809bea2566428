"""The GPU waits for the CPU: launches, input, synchronization, optimizer, checks."""

from __future__ import annotations

from collections.abc import Iterator

from gputop import num_workers
from gputop.phrases import percent
from gputop.severity import by_lost_share
from gputop.trace.breakdown import inside_us
from gputop.trace.intervals import union
from gputop.trace.names import FUSED, ActivityKind, SpanMeaning
from gputop.trace.verdict import (
    GPU_WAITS,
    STREAM_WAITS,
    Limits,
    TraceVerdict,
    TraceView,
    VerdictNumber,
    percentage,
    signature,
    stopped,
)


@signature(
    "T02",
    "launch-bound",
    "Is the GPU idle because kernels are launched too late?",
    host_wait=0.30,
    delay_us=20,
    kernel_us=20,
    per_step=200,
    launch_gap_ms=5,
    lost=0.20,
)
def launch_bound(view: TraceView, limit: Limits) -> Iterator[TraceVerdict]:
    """Hundreds of small kernels with an empty queue; small kernels alone are in every trace.

    A gap of many milliseconds is not launch overhead, whatever surrounds it.
    """
    found = view.found
    wait, delay, middle = found.share(found.idle.stream_host_us), found.launching.delay_p50_us, found.median_us
    kernels = found.kernel_count / view.steps
    if delay is None or middle is None or wait < limit["host_wait"] or kernels < limit["per_step"]:
        return
    if delay >= limit["delay_us"] or middle >= limit["kernel_us"]:
        return
    short = sum(end - start for start, end in found.gaps if end - start <= 1000 * limit["launch_gap_ms"])
    lost = found.share(min(found.idle.host_us, short))
    if lost < limit["lost"]:
        return
    yield TraceVerdict(
        severity=by_lost_share(lost),
        headline=f"launch-bound, {kernels:.0f} small kernels per step and an empty launch queue",
        numbers=(
            percentage(STREAM_WAITS, wait, "the time", limit["host_wait"], "healthy_to"),
            percentage(GPU_WAITS, found.share(found.idle.host_us), "the time"),
            VerdictNumber(
                text="launch delay, median", value=delay, unit="us", limit=limit["delay_us"], sense="flagged_below"
            ),
            VerdictNumber(
                text="kernel, median", value=middle, unit="us", limit=limit["kernel_us"], sense="flagged_below"
            ),
            VerdictNumber(text="kernels per step", value=kernels, limit=limit["per_step"], sense="flagged_from"),
        ),
        steps=(
            "Fuse kernels with torch.compile(model): several hundred per step often become fewer than fifty.",
            'Use torch.compile(model, mode="reduce-overhead") or CUDA graphs where shapes are fixed.',
            "Raise the batch size, and set foreach=True or fused=True in the optimizer.",
        ),
        lost_share=lost,
        idle=2 * short >= found.gaps.total,
    )


@signature("T03", "input-bound", "Does the step wait for its DataLoader?", gpu=False, share=0.05, gap=0.60)
def input_bound(view: TraceView, limit: Limits) -> Iterator[TraceVerdict]:
    """The main thread waits for a batch, and the GPU for the main thread."""
    found, data = view.found, view.host(SpanMeaning.DATA)
    share = found.share(data)
    if share < limit["share"]:
        return
    idle = found.gaps.shared(data).total
    if found.of_gpu and (not len(found.gaps) or idle < limit["gap"] * found.gaps.total):
        return
    alone = view.loads_itself
    numbers = [percentage("step waits for data", share, "the time", limit["share"], "healthy_to")]
    if found.of_gpu:
        part = idle / found.gaps.total
        numbers.append(percentage("data wait", part, "the GPU's idle time", limit["gap"], "flagged_from"))
    lost = found.share(idle) if found.of_gpu else share
    yield TraceVerdict(
        severity=by_lost_share(lost, "warn" if alone else "crit"),
        headline=f"dataloader-bound, {'main process loads' if alone else 'step waits for'} data "
        f"{percent(share)} of the time",
        numbers=tuple(numbers),
        steps=(
            num_workers.IN_WORKERS if alone else num_workers.MORE,
            "Set pin_memory=True, persistent_workers=True and prefetch_factor=4.",
            "Decode and augment on the GPU, or preprocess once; gputop diagnose separates storage from CPU.",
        ),
        lost_share=lost,
        idle=found.of_gpu,
    )


@signature(
    "T06",
    "sync",
    "Does the CPU synchronize with the GPU often?",
    per_step=5,
    time=0.10,
    idle=0.05,
    least=0.01,
    many=100,
    blocked=0.30,
)
def sync(view: TraceView, limit: Limits) -> Iterator[TraceVerdict]:
    """Synchronization with idle time: waiting is harmless while the GPU is busy."""
    found, calls = view.found, view.trace.calls
    host = view.trace.host
    # a number is read by a blocking copy, without a synchronization call
    waits = union(calls.wait_start + host.reads, calls.wait_took + host.read_took)
    waits = waits.within(found.window.start, found.window.end)
    reads = view.inside(host.reads) / view.steps
    count = max(reads, view.inside(calls.wait_start) / view.steps)
    time = found.share(waits)
    starved = found.share(found.idle.stream_host_us)
    explained = found.share(stopped(view, waits))
    if count < limit["per_step"] and time < limit["time"]:
        return
    queued = found.share(found.idle.other_us)  # idle although something is launched
    depends = reads >= limit["many"] and queued >= limit["blocked"]
    if explained < limit["idle"] and (starved < limit["idle"] or time < limit["least"]) and not depends:
        return
    state = f"GPU idle {percent(queued)} of the time with work queued" if depends else "GPU queue empty afterwards"
    yield TraceVerdict(
        severity="warn" if explained >= limit["idle"] else "info",
        headline=f"GPU synchronization {count:.0f} times per step, {state}",
        numbers=(
            VerdictNumber(text="waits per step", value=count, limit=limit["per_step"], sense="flagged_from"),
            VerdictNumber(text="values read back per step (item, nonzero)", value=reads),
            percentage("CPU waits for the GPU", time, "the time", limit["time"], "flagged_from"),
            percentage("GPU idle because of it", explained, "the time", limit["idle"], "healthy_to"),
            percentage(STREAM_WAITS, starved, "the time", limit["idle"], "healthy_to"),
        ),
        steps=(
            "Read loss.item() every 50 steps; keep running sums as tensors; avoid tensors in if conditions.",
            'Find each line that waits with torch.cuda.set_sync_debug_mode("warn").',
        ),
        lost_share=explained,
        idle=True,
    )


@signature("T10", "unfused-optimizer", "Does the optimizer launch many small kernels?", share=0.10, kernels=50)
def unfused_optimizer(view: TraceView, limit: Limits) -> Iterator[TraceVerdict]:
    """One kernel per parameter and operation where one fused kernel would do.

    The cost is its GPU time plus the idle time in it: a CPU that runs ahead loses nothing.
    """
    found, activity, spans = view.found, view.trace.activity, view.host(SpanMeaning.OPTIMIZER)
    if not len(spans):
        return
    count, gpu_us = 0, 0.0
    for index in found.inside:
        call = found.launch_of[index]
        if call >= 0 and activity.names.meanings[activity.name[index]] == ActivityKind.COMPUTE:
            if not spans.covers(view.trace.calls.start[call]):
                continue
            if FUSED.search(activity.names.texts[activity.name[index]]):
                return
            count, gpu_us = count + 1, gpu_us + inside_us(activity, index, found.window)
    share, kernels = found.share(gpu_us + found.gaps.shared(spans).total), count / view.steps
    if share < limit["share"] or kernels <= limit["kernels"]:
        return
    yield TraceVerdict(
        severity="warn",
        headline=f"unfused optimizer, {percent(share)} of the time in {kernels:.0f} small kernels per step",
        numbers=(
            percentage("optimizer", share, "the time", limit["share"], "flagged_from"),
            VerdictNumber(
                text="optimizer kernels per step", value=kernels, limit=limit["kernels"], sense="flagged_above"
            ),
        ),
        steps=("Set fused=True, as in AdamW(..., fused=True), or foreach=True where it is not supported.",),
        lost_share=share,
        idle=2 * found.gaps.shared(spans).total >= found.gaps.total,
    )


@signature("T14", "anomaly-mode", "Is every gradient checked for NaN?", gpu=False, part=0.5, functions=10)
def anomaly_mode(view: TraceView, limit: Limits) -> Iterator[TraceVerdict]:
    """torch.autograd.detect_anomaly checks the result of each backward function."""
    host = view.trace.host
    if host.functions < limit["functions"] or host.nan_checks < limit["part"] * host.functions:
        return
    yield TraceVerdict(
        severity="warn",
        headline="anomaly mode on, NaN checks about double the backward time",
        numbers=(
            VerdictNumber(
                text="NaN checks per backward function",
                value=host.nan_checks / host.functions,
                limit=limit["part"],
                sense="flagged_from",
            ),
        ),
        steps=("Enable torch.autograd.detect_anomaly() only to find a NaN, then turn it off.",),
    )


@signature("T18", "zero-grad", "Are gradients set to zero one by one?", gpu=False, each=10)
def zero_grad(view: TraceView, limit: Limits) -> Iterator[TraceVerdict]:
    """zero_grad(set_to_none=False) writes every gradient, and backward then adds instead of setting."""
    host, found, spans = view.trace.host, view.found, view.host(SpanMeaning.ZERO_GRAD)
    starts = [start for start, _, _ in host.spans[SpanMeaning.ZERO_GRAD]]
    calls = view.inside(starts) if host.counted else len(starts)
    if not calls or host.zeroed / calls < limit["each"]:
        return
    yield TraceVerdict(
        severity="info",
        headline=f"gradients zeroed one by one, {host.zeroed / calls:.0f} per zero_grad() call",
        numbers=(
            VerdictNumber(
                text="gradients zeroed per call", value=host.zeroed / calls, limit=limit["each"], sense="flagged_from"
            ),
        ),
        steps=("Call optimizer.zero_grad(set_to_none=True), the default since torch 2.0.",),
        lost_share=found.share(found.gaps.shared(spans) if found.of_gpu else spans),
    )
