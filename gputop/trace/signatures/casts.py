"""Time that goes into changing the type of tensors, as under an autocast that does so again in every call."""

from __future__ import annotations

from collections.abc import Iterator

from gputop.severity import by_lost_share
from gputop.trace.names import CAST, CASTING, COPY, Kind
from gputop.trace.verdict import Limits, Number, Verdict, View, signature

_FLOATS = ("bfloat16", "float8", "half", "double", "float")  # as Kineto writes them, in small letters


@signature("T23", "casts", "Is time spent on casts between float types?", gpu=False, share=0.15)
def casts(view: View, limit: Limits) -> Iterator[Verdict]:
    """Kernels that copy from one float type to another; without a GPU the operators that do, by their time."""
    found, of_gpu = view.found, view.found.of_gpu
    share = _on_gpu(view) if of_gpu else _on_cpu(view)
    if share < limit["share"]:
        return
    lost = share * found.share(found.compute) if of_gpu else share
    where = "GPU compute time" if of_gpu else "step"
    yield Verdict(
        severity=by_lost_share(lost),
        headline=f"Casts between float types (aten::to) take {share:.0%} of the {where}.",
        numbers=(Number(text=f"casts, of the {where}", value=100 * share, unit="%", limit=100 * limit["share"]),),
        steps=(
            "Enter torch.autocast once around the whole forward pass: its cache of cast weights ends with it.",
            "Or keep the weights in bfloat16: model.to(torch.bfloat16), or MixedPrecision of FSDP.",
            "torch.compile(model) fuses the casts that are left into the kernels beside them.",
        ),
        lost_share=lost,
    )


def _on_gpu(view: View) -> float:
    """Share of the compute time: by the types of the operator where shapes were recorded, else by kernel names."""
    found = view.found
    if not found.compute_us:
        return 0.0
    by_type = sum(
        entry.gpu_us
        for entry in view.shaped
        if entry.name in CASTING and entry.kind == Kind.COMPUTE and _changes(entry.types)
    )
    by_name = sum(entry.took_us for entry in found.kernels if entry.kind == Kind.COMPUTE and CAST.search(entry.name))
    return max(by_type, by_name) / found.compute_us


def _changes(types: str) -> bool:
    """Whether the first two inputs are of two float types, as aten::copy_ has them: where to, and what."""
    named = [next((kind for kind in _FLOATS if kind in part.lower()), "") for part in types.split(",")[:2]]
    return len(named) == 2 and all(named) and named[0] != named[1]


def _on_cpu(view: View) -> float:
    """Share of the window that the outermost of these operators take, where no device is there to move to.

    A copy alone is no cast: aten::addmm begins with one of its bias, and so does much else.
    """
    host, span_us = view.trace.host, view.found.window.span_us
    times = {name: us for name, us in zip(host.names.texts, host.total_us, strict=False) if name in CASTING - {COPY}}
    return min(1.0, max(times.values(), default=0.0) / span_us) if span_us else 0.0
