"""A rule about device memory that is nearly used up."""

from __future__ import annotations

from collections.abc import Iterator

from gputop import pytorch, units
from gputop.diagnose.finding import Evidence, Finding, Severity, Step
from gputop.diagnose.memory.holders import holders, named
from gputop.diagnose.memory.leaks import usable
from gputop.diagnose.rule import Level, rule
from gputop.diagnose.view import View
from gputop.model import Gpu

_PARTS = 5  # of the window


@rule(
    "gmem-nearly-full",
    "Is the memory of a GPU nearly used up?",
    level=Level.BESIDE,
    state="gpu full",
    short="FULL",
    number="R35",
    rows=(47, 67),
    needs=("vram_used_bytes", "vram_total_bytes"),
)
def gmem_nearly_full(view: View) -> Iterator[Finding]:
    """Full and still growing is a risk; full and calm is an allocator that keeps what it got, or a program's choice."""
    for gpu in view.gpus():
        if gpu.unified_memory or not view.knows(gpu, "vram_used_bytes", "vram_total_bytes"):
            continue
        most, used = usable(gpu) or 0.0, gpu.vram_used_bytes or 0
        if not most or not view.above(used / most, "info_share"):
            continue
        grown = _grown(view, gpu)
        near = used / most >= view.limit("warn_share") or most - used < view.limit("growth_ahead") * grown
        severity: Severity = "warn" if near and grown >= view.limit("least_growth_bytes") else "info"
        yield _full(view, gpu, used, most, grown, severity)


def _grown(view: View, gpu: Gpu) -> float:
    """Bytes above the least of the window, if it went higher more than once in it; else nothing.

    A program that takes its memory at once grows no more, and who goes up and down has been there before.
    """
    values = view.window(gpu, "vram_used_bytes").values
    size, least = len(values) // _PARTS, view.limit("least_growth_bytes") / _PARTS
    if not size:
        return 0.0
    before = view.window(gpu, "vram_used_bytes", view.limit("known_s")).values[: -len(values)]
    peaks = [max(before, default=0.0), *(max(values[-size * part :][:size]) for part in range(_PARTS, 0, -1))]
    rises = [part for part in range(2, len(peaks)) if peaks[part] - max(peaks[:part]) >= least]
    again = bool(rises) and rises[-1] - rises[0] >= 2  # one rise may lie in two parts
    return max(0.0, values[-1] - min(values)) if again else 0.0


def _full(view: View, gpu: Gpu, used: float, most: float, grown: float, severity: Severity) -> Finding:
    left = units.size(most - used)
    calm = Step(
        text=f"nothing, as long as it stays so: PyTorch, JAX and vLLM keep memory they do not need; {left} are left"
    )
    return view.found(
        gpu,
        severity,
        f"has {left} of memory left, and less by the minute" if severity == "warn" else "is nearly full, and calm",
        evidence=tuple(_figures(view, gpu, used, most, grown)),
        steps=(*(() if severity == "warn" else (calm,)), *_smaller(view, gpu)),
        confidence=0.8,
        grade="driver",
    )


def _figures(view: View, gpu: Gpu, used: float, most: float, grown: float) -> Iterator[Evidence]:
    share, seconds = 100 * used / most, view.limit("window_s")
    text = f"{units.size(used)} of {units.size(most)} in use ({share:.0f} %)"
    yield Evidence(text=text, value=share, unit="%", limit=100 * view.limit("info_share"))
    text = f"+{units.size(grown)} in {units.ago(seconds)}" if grown else f"no more than {units.ago(seconds)} ago"
    yield Evidence(text=text, value=grown, unit="B", limit=view.limit("least_growth_bytes"))
    held = sorted(holders(view).get(gpu.uuid, ()), key=lambda one: -(one[1].vram_bytes or 0))
    if held:
        names = [f"{named(process)} {units.size(share.vram_bytes)}" for process, share in held[:3]]
        yield Evidence(text=", ".join(names))


def _smaller(view: View, gpu: Gpu) -> Iterator[Step]:
    """The cheapest first: a setting, then what changes the program."""
    versions = [process.torch_version for process, _ in holders(view).get(gpu.uuid, ()) if process.torch_version]
    setting = pytorch.allocator("expandable_segments:True", versions[0] if versions else None)
    yield Step(text="Reduce fragmentation of PyTorch's cache", command=setting)
    yield Step(text="Halve the batch and accumulate twice as many steps: gradients stay the same")
    yield Step(
        text="Recompute activations instead of storing them",
        command="torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)",
    )
