"""Kernel properties: a dominant few, full precision, memory-bound, small grids, memory layout."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gputop.phrases import percent
from gputop.severity import by_lost_share
from gputop.trace.names import CAST, CASTING, COPY, FULL_PRECISION, GEMM, LAYOUT, STREAMING, TENSOR, ActivityKind
from gputop.trace.operators import OperatorShape
from gputop.trace.verdict import Limits, TraceVerdict, TraceView, percentage, signature

_FLOATS = ("bfloat16", "float8", "half", "double", "float")  # Kineto's names in lower case


@signature("T23", "casts", "Is time spent on casts between float types?", gpu=False, share=0.15)
def casts(view: TraceView, limit: Limits) -> Iterator[TraceVerdict]:
    """Kernels that convert between float types; without a GPU, the operators that do, by time."""
    found, of_gpu = view.found, view.found.of_gpu
    share = _on_gpu(view) if of_gpu else _on_cpu(view)
    if share < limit["share"]:
        return
    lost = share * found.share(found.compute) if of_gpu else share
    where = "GPU compute time" if of_gpu else "step"
    yield TraceVerdict(
        severity=by_lost_share(lost),
        headline=f"casts between float types (aten::to), {percent(share)} of the {where}",
        numbers=(percentage("casts", share, f"the {where}", limit["share"], "flagged_from"),),
        steps=(
            "Enter torch.autocast once around the whole forward pass: its weight cache is dropped on exit.",
            "Keep the weights in bfloat16: model.to(torch.bfloat16), or FSDP MixedPrecision.",
            "Fuse the remaining casts into adjacent kernels with torch.compile(model).",
        ),
        lost_share=lost,
    )


def _on_gpu(view: TraceView) -> float:
    """Share of compute time: by operator types if shapes were recorded, else by kernel names."""
    found = view.found
    if not found.compute_us:
        return 0.0
    by_type = sum(
        entry.gpu_us
        for entry in view.shaped
        if entry.name in CASTING and entry.kind == ActivityKind.COMPUTE and _changes(entry.types)
    )
    by_name = sum(
        entry.took_us for entry in found.kernels if entry.kind == ActivityKind.COMPUTE and CAST.search(entry.name)
    )
    return max(by_type, by_name) / found.compute_us


def _changes(types: str) -> bool:
    """Whether the first two inputs have different float types, as destination and source of aten::copy_."""
    named = [next((kind for kind in _FLOATS if kind in part.lower()), "") for part in types.split(",")[:2]]
    return len(named) == 2 and all(named) and named[0] != named[1]


def _on_cpu(view: TraceView) -> float:
    """Share of the window in outermost conversion operators, without a device to copy to.

    A copy alone is no conversion: aten::addmm starts with one of its bias, as many others do.
    """
    host, span_us = view.trace.host, view.found.window.span_us
    times = {name: us for name, us in zip(host.names.texts, host.total_us, strict=False) if name in CASTING - {COPY}}
    return min(1.0, max(times.values(), default=0.0) / span_us) if span_us else 0.0


_MATRIX = re.compile(r"\[([0-9, ]+)\]")
_BY_TYPE = (("Half", 8), ("BFloat16", 8), ("Float8", 16), ("char", 16))  # required multiples of dims


@signature("T01", "few-operators", "Do a few kernels dominate the compute time?", share=0.60, top=3, others=10)
def few_operators(view: TraceView, limit: Limits) -> Iterator[TraceVerdict]:
    """Where to look first; shapes that prevent tensor core use are named."""
    found = view.found
    compute = [entry for entry in found.kernels if entry.kind == ActivityKind.COMPUTE]
    top = compute[: int(limit["top"])]
    share = sum(entry.took_us for entry in top) / found.compute_us if found.compute_us else 0.0
    if share < limit["share"] or len(compute) < limit["others"]:
        return
    names = [entry.name for entry in top]
    ops = [entry for entry in view.shaped if entry.kernel in names][: len(top)]
    odd = [(entry, fault) for entry in ops if (fault := _misaligned(entry))]
    steps = [f"{entry.name} {entry.dims}: {fault}" for entry, fault in odd]
    steps += [f"Optimize {entry.name} {entry.dims}".rstrip() for entry in ops if not _misaligned(entry)]
    yield TraceVerdict(
        severity="warn" if odd else "info",
        headline=f"{len(top)} dominant kernels, {percent(share)} of the compute time"
        + (", shapes misaligned for tensor cores" if odd else ""),
        numbers=(
            percentage(f"the {len(top)} longest kernels", share, "compute time", limit["share"], "flagged_from"),
            *(percentage(entry.name[:60], entry.took_us / found.compute_us, "") for entry in top),
        ),
        steps=tuple(steps) or ("Record shapes to find the layers: profile(record_shapes=True).",),
    )


def _misaligned(entry: OperatorShape) -> str:
    """The misaligned dims of a matrix product for its type; empty if there are none."""
    needed = next((size for name, size in _BY_TYPE if name in entry.types), 0)
    if not needed or not GEMM.search(entry.kernel):
        return ""
    odd: list[int] = []
    for matrix in _MATRIX.findall(entry.dims):
        dims = [int(part) for part in matrix.split(",") if part.strip()]
        odd += [dim for dim in dims[-2:] if len(dims) > 1 and dim > needed and dim % needed and dim not in odd]
    return f"pad {', '.join(map(str, odd[:4]))} to a multiple of {needed}, preferably 64." if odd else ""


def _compute_share(view: TraceView, names: re.Pattern[str], but: re.Pattern[str] | None = None) -> float:
    """Share (0-1) of compute kernel time in kernels with such names."""
    found = view.found
    took = sum(
        entry.took_us
        for entry in found.kernels
        if entry.kind == ActivityKind.COMPUTE and names.search(entry.name) and not (but and but.search(entry.name))
    )
    return took / found.compute_us if found.compute_us else 0.0


@signature("T04", "full-precision", "Do matrix products run in fp32?", share=0.20)
def full_precision(view: TraceView, limit: Limits) -> Iterator[TraceVerdict]:
    """Names of fp32 kernels, and none on tensor cores."""
    gemm = _compute_share(view, GEMM)
    if not gemm:
        return
    full = min(1.0, _compute_share(view, FULL_PRECISION) / gemm)
    if full < limit["share"] or _compute_share(view, TENSOR):
        return
    device = next((entry for entry in view.trace.devices if entry.index == view.found.device), None)
    if device and device.capability and device.capability < (7, 0):
        return
    newer = not device or device.capability >= (8, 0)
    yield TraceVerdict(
        severity="warn",
        headline=f"matrix products in fp32 for {percent(full)} of their time, tensor cores unused",
        numbers=(
            percentage("fp32", full, "matrix product time", limit["share"], "flagged_from"),
            percentage("matrix products", gemm, "compute time"),
        ),
        steps=(
            ('Set torch.set_float32_matmul_precision("high"), or use torch.autocast("cuda", dtype=torch.bfloat16).',)
            if newer
            else ('Use torch.autocast("cuda", dtype=torch.float16) with torch.amp.GradScaler.',)
        ),
    )


@signature(
    "T11",
    "memory-bound-kernels",
    "Do memory-bound kernels take most of the compute time?",
    share=0.50,
    warn=0.65,
    busy=0.8,
)
def memory_bound(view: TraceView, limit: Limits) -> Iterator[TraceVerdict]:
    """Elementwise kernels, reductions, norms, softmax and copies move as much data as they compute."""
    share = _compute_share(view, STREAMING, but=GEMM)
    if share < limit["share"]:
        return
    busy = view.found.share(view.found.busy)
    yield TraceVerdict(
        severity="warn" if share >= limit["warn"] and busy >= limit["busy"] else "info",
        headline=f"memory-bound kernels, {percent(share)} of the compute time",
        numbers=(percentage("elementwise, norms, copies", share, "compute time", limit["share"], "flagged_from"),),
        steps=(
            "Fuse them with torch.compile(model).",
            "Use scaled_dot_product_attention, fused norms and losses; bfloat16 halves the memory traffic.",
        ),
    )


@signature("T15", "small-grids", "Are the kernels too small for the GPU?", filled=0.40, busy=0.80)
def small_grids(view: TraceView, limit: Limits) -> Iterator[TraceVerdict]:
    """Estimated SM efficiency of the TensorBoard plugin: blocks per SM, at most 1, weighted by time."""
    found = view.found
    busy = found.share(found.compute)
    if found.filled is None or busy < limit["busy"] or found.filled >= limit["filled"]:
        return
    yield TraceVerdict(
        severity="warn",
        headline=f"high utilization, low SM efficiency, small kernels fill {percent(found.filled)} of the GPU",
        numbers=(
            percentage("SM efficiency (estimated)", found.filled, "", limit["filled"], "healthy_from"),
            percentage("GPU computing", busy, "the time", limit["busy"], "flagged_from"),
        ),
        steps=("Raise the batch size, use torch.compile, or run several small jobs on one GPU (MPS or MIG).",),
        lost_share=busy - found.filled,
    )


@signature("T19", "layout", "Is time spent on image layout conversion?", share=0.05)
def layout(view: TraceView, limit: Limits) -> Iterator[TraceVerdict]:
    """Tensor cores need NHWC: cuDNN converts NCHW before and after."""
    share = _compute_share(view, LAYOUT)
    if share < limit["share"]:
        return
    yield TraceVerdict(
        severity="warn",
        headline=f"layout conversion between NCHW and NHWC, {percent(share)} of the compute time",
        numbers=(percentage("layout kernels", share, "compute time", limit["share"], "flagged_from"),),
        steps=(
            "Convert model and batch to channels_last: model.to(memory_format=torch.channels_last).",
            "Set bias=False in a Conv2d that precedes a BatchNorm.",
        ),
        lost_share=share * view.found.share(view.found.compute),
    )
