"""Kernel properties: a dominant few, full precision, memory-bound, small grids, memory layout."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gputop.severity import by_lost_share
from gputop.trace.names import CAST, CASTING, COPY, FULL_PRECISION, GEMM, LAYOUT, STREAMING, TENSOR, ActivityKind
from gputop.trace.operators import OperatorShape
from gputop.trace.verdict import Limits, TraceVerdict, TraceView, VerdictNumber, signature

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
        headline=f"Casts between float types (aten::to) take {share:.0%} of the {where}.",
        numbers=(
            VerdictNumber(text=f"casts, of the {where}", value=100 * share, unit="%", limit=100 * limit["share"]),
        ),
        steps=(
            "Enter torch.autocast once around the whole forward pass: its cache of cast weights ends with it.",
            "Or keep the weights in bfloat16: model.to(torch.bfloat16), or MixedPrecision of FSDP.",
            "torch.compile(model) fuses the casts that are left into the kernels beside them.",
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


@signature("T01", "few-operators", "Do a few kernels take most of the time?", share=0.60, top=3, others=10)
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
    steps += [f"Look at {entry.name} {entry.dims}".rstrip() for entry in ops if not _misaligned(entry)]
    yield TraceVerdict(
        severity="warn" if odd else "info",
        headline=f"{len(top)} kernels take {share:.0%} of the compute time"
        + (", some of them for shapes that tensor cores cannot use well." if odd else "."),
        numbers=(
            VerdictNumber(
                text=f"the {len(top)} longest kernels", value=100 * share, unit="%", limit=100 * limit["share"]
            ),
            *(
                VerdictNumber(text=entry.name[:60], value=100 * entry.took_us / found.compute_us, unit="%")
                for entry in top
            ),
        ),
        steps=tuple(steps) or ("Record shapes: profile(record_shapes=True) says which layer it is.",),
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
    return f"pad {', '.join(map(str, odd[:4]))} to a multiple of {needed}, better of 64." if odd else ""


def _compute_share(view: TraceView, names: re.Pattern[str], but: re.Pattern[str] | None = None) -> float:
    """Share (0-1) of compute kernel time in kernels with such names."""
    found = view.found
    took = sum(
        entry.took_us
        for entry in found.kernels
        if entry.kind == ActivityKind.COMPUTE and names.search(entry.name) and not (but and but.search(entry.name))
    )
    return took / found.compute_us if found.compute_us else 0.0


@signature("T04", "full-precision", "Do matrix products run in full precision?", share=0.20)
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
        headline=f"Matrix products run in full precision, {full:.0%} of their time; the tensor cores are idle.",
        numbers=(
            VerdictNumber(text="fp32 of the matrix products", value=100 * full, unit="%", limit=100 * limit["share"]),
            VerdictNumber(text="matrix products of the compute time", value=100 * gemm, unit="%"),
        ),
        steps=(
            ('torch.set_float32_matmul_precision("high") for TF32, or torch.autocast("cuda", dtype=torch.bfloat16).',)
            if newer
            else ('torch.autocast("cuda", dtype=torch.float16) with torch.amp.GradScaler.',)
        ),
    )


@signature(
    "T11",
    "memory-bound-kernels",
    "Do kernels that only move data take most of the time?",
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
        headline=f"{share:.0%} of the compute time goes into kernels that mostly move data.",
        numbers=(
            VerdictNumber(text="elementwise, norms, copies", value=100 * share, unit="%", limit=100 * limit["share"]),
        ),
        steps=(
            "torch.compile(model) fuses them.",
            "scaled_dot_product_attention, fused norms and losses; bfloat16 halves what is moved.",
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
        headline=f"The GPU is busy {busy:.0%} of the time, but its kernels fill only {found.filled:.0%} of it.",
        numbers=(
            VerdictNumber(
                text="estimated SM efficiency", value=100 * found.filled, unit="%", limit=100 * limit["filled"]
            ),
            VerdictNumber(text="GPU computes", value=100 * busy, unit="%", limit=100 * limit["busy"]),
        ),
        steps=("A larger batch; torch.compile; several small jobs on one GPU (MPS or MIG).",),
        lost_share=busy - found.filled,
    )


@signature("T19", "layout", "Is time spent on changing the layout of images?", share=0.05)
def layout(view: TraceView, limit: Limits) -> Iterator[TraceVerdict]:
    """Tensor cores need NHWC: cuDNN converts NCHW before and after."""
    share = _compute_share(view, LAYOUT)
    if share < limit["share"]:
        return
    yield TraceVerdict(
        severity="warn",
        headline=f"{share:.0%} of the compute time changes the layout of images from NCHW to NHWC and back.",
        numbers=(VerdictNumber(text="layout kernels", value=100 * share, unit="%", limit=100 * limit["share"]),),
        steps=(
            "model.to(memory_format=torch.channels_last), and the batch too.",
            "Conv2d(bias=False) before a BatchNorm.",
        ),
        lost_share=share * view.found.share(view.found.compute),
    )
