"""Copies from the CPU to the GPU: from pageable memory, in the way of kernels, of what could be made on the GPU."""

from __future__ import annotations

from collections.abc import Iterator

from gputop.severity import by_lost_share
from gputop.trace.breakdown import inside_us
from gputop.trace.names import PAGEABLE, Kind
from gputop.trace.verdict import Limits, Number, Verdict, View, signature

_PIN = "DataLoader(pin_memory=True) and batch.to(device, non_blocking=True): the one is no use without the other."


@signature("T05", "pageable-copies", "Are batches copied from pageable memory?", step_mb=1.0, part=0.5, least_mb=0.1)
def pageable(view: View, limit: Limits) -> Iterator[Verdict]:
    """The driver copies pageable memory twice, and the CPU waits meanwhile; some kB are a number read or set."""
    activity, kinds = view.trace.activity, view.trace.activity.names.meanings
    slow_mb = all_mb = 0.0
    for index in view.found.inside:
        name, took = activity.name[index], activity.took[index]
        if kinds[name] == Kind.TO_DEVICE:
            part = inside_us(activity, index, view.found.window) / took if took else 1.0
            moved_mb = part * activity.size[index] / 1e6 / view.steps
            all_mb += moved_mb
            slow_mb += moved_mb if PAGEABLE.search(activity.names.texts[name]) else 0.0
    part = slow_mb / all_mb if all_mb else 0.0
    if slow_mb < limit["step_mb"] and (part < limit["part"] or slow_mb < limit["least_mb"]):
        return
    yield Verdict(
        severity="warn",
        headline=f"{slow_mb:.3g} MB a step are copied to the GPU from pageable memory.",
        numbers=(
            Number(text="from pageable memory a step", value=slow_mb, unit="MB", limit=limit["step_mb"]),
            Number(text="of all that is copied to the GPU", value=100 * part, unit="%", limit=100 * limit["part"]),
        ),
        steps=(_PIN,),
    )


@signature("T07", "copies-in-the-way", "Do copies to the GPU stand in the way of kernels?", share=0.05)
def in_the_way(view: View, limit: Limits) -> Iterator[Verdict]:
    """Copies while nothing computes."""
    found = view.found
    alone = found.share(found.to_device.total - found.to_device.shared(found.compute).total)
    if alone < limit["share"]:
        return
    yield Verdict(
        severity=by_lost_share(alone),
        headline=f"{alone:.0%} of the time the GPU does nothing but receive data.",
        numbers=(Number(text="copies that no kernel hides", value=100 * alone, unit="%", limit=100 * limit["share"]),),
        steps=(
            _PIN,
            "Copy the next batch on a stream of its own meanwhile; send uint8, convert on the GPU.",
        ),
        lost_share=alone,
    )


@signature("T17", "made-on-cpu", "Are tensors made on the CPU and then copied?", per_step=1)
def made_on_cpu(view: View, limit: Limits) -> Iterator[Verdict]:
    """torch.zeros(...).to("cuda"): a fill on the CPU, then aten::to with a copy (PyTorch's ExtraCUDACopy pattern)."""
    found, activity, made = view.found, view.trace.activity, view.trace.host.made
    copies = sum(
        1
        for index in found.inside
        if activity.names.meanings[activity.name[index]] == Kind.TO_DEVICE
        and found.launch_of[index] >= 0
        and made.holds(view.trace.calls.start[found.launch_of[index]])
    )
    if copies / view.steps < limit["per_step"]:
        return
    yield Verdict(
        severity="info",
        headline=f"Tensors are made on the CPU and then copied to the GPU, {copies / view.steps:.0f} a step.",
        numbers=(Number(text="such copies a step", value=copies / view.steps, limit=limit["per_step"]),),
        steps=('Make them where they are used: torch.zeros(..., device="cuda").',),
    )
