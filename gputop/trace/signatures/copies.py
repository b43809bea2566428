"""Copies: from pageable memory, unhidden by kernels, avoidable by creating data on the GPU; GPUs that only copy."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gputop import units
from gputop.frozen_dataclass import frozen_dataclass
from gputop.phrases import percent
from gputop.severity import by_lost_share
from gputop.trace.breakdown import inside_us
from gputop.trace.intervals import Spans
from gputop.trace.names import PAGEABLE, ActivityKind
from gputop.trace.verdict import Limits, TraceVerdict, TraceView, VerdictNumber, percentage, signature

_ENDS = re.compile(r"\((\w+) -> (\w+)\)")  # source and destination memory kinds
_ROUTES = 3  # named in a headline
_PIN = "Set pin_memory=True in the DataLoader and copy with non_blocking=True: both are needed."


@frozen_dataclass(frozen=True, slots=True)
class _Route:
    """Copies from one kind of memory to another: when, and how much if known."""

    text: str
    spans: Spans
    moved_bytes: float


@signature("T05", "pageable-copies", "Are batches copied from pageable memory?", step_mb=1.0, part=0.5, least_mb=0.1)
def pageable(view: TraceView, limit: Limits) -> Iterator[TraceVerdict]:
    """The driver copies pageable memory twice while the CPU waits; a few kB are just a number read or set."""
    activity, kinds = view.trace.activity, view.trace.activity.names.meanings
    slow_mb = all_mb = 0.0
    for index in view.found.inside:
        name = activity.name[index]
        if kinds[name] == ActivityKind.TO_DEVICE and activity.start[index] >= view.startup.ready_us:
            moved_mb = _moved(view, index) / 1e6 / view.steps
            all_mb += moved_mb
            slow_mb += moved_mb if PAGEABLE.search(activity.names.texts[name]) else 0.0
    part = slow_mb / all_mb if all_mb else 0.0
    if slow_mb < limit["step_mb"] and (part < limit["part"] or slow_mb < limit["least_mb"]):
        return
    yield TraceVerdict(
        severity="warn",
        headline=f"pageable host-to-device copies, {units.decimal(1e6 * slow_mb)} per step",
        numbers=(
            VerdictNumber(
                text="from pageable memory per step",
                value=slow_mb,
                unit="MB",
                limit=limit["step_mb"],
                sense="flagged_above",
            ),
            percentage("pageable", part, "bytes copied to the GPU", limit["part"], "flagged_above"),
        ),
        steps=(_PIN,),
    )


@signature("T07", "copies-in-the-way", "Do host-to-device copies delay kernels?", share=0.05)
def exposed_copies(view: TraceView, limit: Limits) -> Iterator[TraceVerdict]:
    """Copies while nothing computes."""
    found = view.found
    alone = found.share(found.to_device.total - found.to_device.shared(found.compute).total)
    if alone < limit["share"] or not found.kernel_count:
        return
    yield TraceVerdict(
        severity=by_lost_share(alone),
        headline=f"exposed host-to-device copies, {percent(alone)} of the time",
        numbers=(percentage("copies without a concurrent kernel", alone, "the time", limit["share"], "healthy_to"),),
        steps=(
            _PIN,
            "Prefetch the next batch on a separate CUDA stream; copy uint8 and convert on the GPU.",
        ),
        lost_share=alone,
    )


@signature("T26", "only-copies", "Does the GPU copy memory without running a kernel?")
def only_copies(view: TraceView, _: Limits) -> Iterator[TraceVerdict]:
    """No kernel ran: what the GPU does instead."""
    found = view.found
    if found.kernel_count or not len(found.busy):
        return
    routes = sorted(_routes(view), key=lambda one: (-one.spans.total, one.text))
    said = []
    for one in routes:
        size = f"{units.decimal(one.moved_bytes)} " if one.moved_bytes else ""
        said.append(f"{size}{one.text} {percent(found.share(one.spans))} of the time")
    others = len(routes) - _ROUTES
    more = f"; {others} other kind{'s' * (others > 1)}" if others > 0 else ""
    yield TraceVerdict(
        severity="warn",
        headline=f"no kernel ran, memory copies only, {'; '.join(said[:_ROUTES])}{more}",
        numbers=tuple(percentage(one.text, found.share(one.spans), "the time") for one in routes),
        steps=(
            'Check that the model and its input are on the GPU: model.to("cuda"), batch.to("cuda").',
            "Otherwise record later or for more steps: nothing was computed in this window.",
        ),
    )


@signature("T17", "made-on-cpu", "Are tensors created on the CPU and then copied?", per_step=1)
def made_on_cpu(view: TraceView, limit: Limits) -> Iterator[TraceVerdict]:
    """torch.zeros(...).to("cuda"): a CPU fill, then aten::to with a copy (PyTorch's ExtraCUDACopy pattern)."""
    found, activity, made = view.found, view.trace.activity, view.trace.host.made
    copies = sum(
        1
        for index in found.inside
        if activity.names.meanings[activity.name[index]] == ActivityKind.TO_DEVICE
        and activity.start[index] >= view.startup.ready_us
        and found.launch_of[index] >= 0
        and made.covers(view.trace.calls.start[found.launch_of[index]])
    )
    if copies / view.steps < limit["per_step"]:
        return
    yield TraceVerdict(
        severity="info",
        headline=f"tensors created on the CPU, {copies / view.steps:.0f} copies to the GPU per step",
        numbers=(
            VerdictNumber(
                text="copies of new tensors per step",
                value=copies / view.steps,
                limit=limit["per_step"],
                sense="flagged_from",
            ),
        ),
        steps=('Create them on the GPU: torch.zeros(..., device="cuda").',),
    )


def _routes(view: TraceView) -> Iterator[_Route]:
    """Copies and memsets in the window, by source and destination."""
    activity, seen = view.trace.activity, view.found.window
    spans, moved = dict[str, Spans](), dict[str, float]()
    for index in view.found.inside:
        name = activity.name[index]
        text = _route(activity.names.texts[name], activity.names.meanings[name])
        spans.setdefault(text, Spans()).add(*seen.clip(activity.start[index], activity.took[index]))
        moved[text] = moved.get(text, 0.0) + _moved(view, index)
    for text, each in spans.items():
        yield _Route(text, each, moved[text])


def _route(name: str, kind: int) -> str:
    """The route in a copy's name: `Memcpy HtoD (Pinned -> Device)`."""
    ends = _ENDS.search(name)
    host = f" ({ends[1 if kind == ActivityKind.TO_DEVICE else 2].lower()})" if ends else ""
    if kind == ActivityKind.TO_DEVICE:
        return f"host to device{host}"
    if kind == ActivityKind.TO_HOST:
        return f"device to host{host}"
    if kind == ActivityKind.SET:
        return "memset"
    return "GPU to GPU" if "PtoP" in name else "host to host" if "HtoH" in name else "within the GPU"


def _moved(view: TraceView, index: int) -> float:
    """Bytes that a copy moves within the window."""
    activity = view.trace.activity
    took = activity.took[index]
    return activity.size[index] * (inside_us(activity, index, view.found.window) / took if took else 1.0)
