"""Several GPUs: exposed communication, outdated parallelism, a late rank."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from gputop.phrases import percent
from gputop.severity import by_lost_share
from gputop.trace.names import SpanMeaning
from gputop.trace.verdict import Limits, TraceVerdict, TraceView, VerdictNumber, percentage, signature


@signature("T08", "exposed-communication", "Is communication exposed?", share=0.10, overlap=0.50)
def exposed(view: TraceView, limit: Limits) -> Iterator[TraceVerdict]:
    """Communication while nothing computes; exposure does not prove that it delayed the step."""
    found = view.found
    share, overlap = found.exposed, found.overlap
    if share < limit["share"] or overlap is None:
        return
    yield TraceVerdict(
        severity=by_lost_share(share),
        headline=f"exposed communication, {percent(share)} of the time without compute",
        numbers=(
            percentage("exposed communication", share, "the time", limit["share"], "healthy_to"),
            percentage("overlapped with compute", overlap, "communication", limit["overlap"], "healthy_from"),
        ),
        steps=(
            "Compare the traces of all ranks: the one with the shortest collectives is late, the others wait for it.",
            "With DDP, use no_sync() while accumulating and a bf16 hook; try smaller bucket_cap_mb for more overlap.",
            "With FSDP, set forward_prefetch=True and backward_prefetch.",
        ),
        lost_share=share,
    )


@signature("T12", "data-parallel", "Does the model use nn.DataParallel?", devices=2)
def data_parallel(view: TraceView, limit: Limits) -> Iterator[TraceVerdict]:
    """One process copies the model to all GPUs in every step."""
    host, window = view.trace.host, view.found.window
    used = [
        number
        for number, name in enumerate(host.names.texts)
        if name.endswith("DataParallel.forward") and "Distributed" not in name
    ]
    # a region has a time: before the steps it says nothing about them
    outside = all(
        number in host.regions
        and not any(at < window.end and at + took > window.start for at, took, _ in host.regions[number])
        for number in used
    )
    if not used or outside or view.found.devices < limit["devices"]:
        return
    yield TraceVerdict(
        severity="warn",
        headline=f"nn.DataParallel, one process replicates the model to {view.found.devices} GPUs every step",
        numbers=(
            VerdictNumber(
                text="GPUs in the trace", value=view.found.devices, limit=limit["devices"], sense="flagged_from"
            ),
        ),
        steps=(
            "Use DistributedDataParallel with torchrun --nproc-per-node=gpu; batch size and num_workers are per rank.",
        ),
    )


@signature("T13", "gloo", "Do GPUs communicate through the CPU (gloo)?", share=0.01)
def gloo(view: TraceView, limit: Limits) -> Iterator[TraceVerdict]:
    """Gloo moves GPU tensors through CPU memory."""
    names = view.trace.host.names.texts
    spoken = any(name.startswith("gloo:") for name in names) and not len(view.found.comm)
    spoken = (
        spoken and view.found.share(view.host(SpanMeaning.COMM)) >= limit["share"]
    )  # not a mere barrier at the start
    if not spoken and not (view.trace.backend == "gloo" and (view.trace.ranks or 1) > 1):
        return
    yield TraceVerdict(
        severity="warn",
        headline="gloo backend, GPU ranks communicate through the CPU",
        steps=('Use NCCL: torch.distributed.init_process_group("nccl").',),
    )


@signature("T20", "straggler", "Is one rank a straggler?", gpu=False, spread=0.10, steps=2)
def straggler(view: TraceView, limit: Limits) -> Iterator[TraceVerdict]:
    """Collectives end together: the rank with the least time in them came last. Durations need no common clock."""
    if len(view.ranks) < 2 or view.ranks[0] is not view:
        return
    if not all(each.trace.whole and each.all_ranks for each in view.ranks):
        return
    times = [_waits(each) for each in view.ranks]
    steps = min(len(each) for each in times)
    if steps < limit["steps"]:
        return
    waits = [median(each[-steps:]) for each in times]
    late = min(range(len(waits)), key=waits.__getitem__)
    window = view.ranks[late].found.window
    others = median(waits[:late] + waits[late + 1 :])
    spread = (others - waits[late]) / (window.span_us / len(window.steps))
    if spread < limit["spread"]:
        return
    known = view.ranks[late].trace.rank
    rank = late if known is None else known
    clocks = ", GPU clocks" if view.ranks[late].found.of_gpu else ""
    yield TraceVerdict(
        severity="warn",
        all_ranks=True,
        headline=f"straggler, other ranks wait for rank {rank} {percent(spread)} of each step",
        numbers=(percentage("other ranks wait", spread, "a step", limit["spread"], "healthy_to"),),
        steps=(f"Check that rank's trace: data loading, CPU cores{clocks}; run gputop diagnose on its host.",),
        lost_share=min(1.0, spread),
    )


def _waits(view: TraceView) -> list[float]:
    """Time per step in collectives: of the GPU, or without one of the CPU (gloo)."""
    comm = view.found.comm if len(view.trace.activity) else view.host(SpanMeaning.COMM)
    return [comm.within(step.start, step.end).total for step in view.found.window.steps] if len(comm) else []
