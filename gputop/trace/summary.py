"""A trace as JSON: findings in the format of `gputop diagnose --json`, and the numbers."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any

from gputop.trace.diff import Difference, diff
from gputop.trace.names import SpanMeaning
from gputop.trace.operators import operators
from gputop.trace.report import startup_notes
from gputop.trace.verdict import TraceVerdict, TraceView, memory_peak, said_of

_ROWS = 20
_CURVE = 500  # points of the memory curve


def as_json(view: TraceView) -> dict[str, Any]:
    """One trace. Times are milliseconds, shares 0-1; null is unknown, as mostly in a partly read trace."""
    trace, found = view.trace, view.found
    return {
        "kind": "trace",
        "file": trace.name,
        "rank": trace.rank,
        "ranks": trace.ranks,
        "gpu": next((entry.name for entry in trace.devices if entry.index == found.device), None),
        "gpus": len(view.gpus) or found.devices,
        "findings": [finding(verdict) for verdict in said_of(view)],
        "window": {"ms": found.window.span_us / 1000, "steps": len(found.window.steps), "by": found.window.named},
        "gpu_time": _gpu(view) if found.of_gpu and trace.whole else None,
        "each_gpu": [{"index": one.device, **_gpu(one)} for one in view.gpus] if trace.whole else [],
        "phases": _phases(view) if trace.whole else [],
        "regions": _regions(view) if trace.whole else [],
        "steps": _steps(view) if trace.whole else [],
        "kernels": [
            {"name": each.name, "kind": each.kind.name.lower(), "count": each.count, "ms": each.took_us / 1000}
            for each in (found.kernels[:_ROWS] if trace.whole else ())
        ],
        "operators": [
            {"name": e.name, "count": e.count, "own_ms": e.self_us / 1000, "total_ms": e.total_us / 1000}
            for e in operators(trace, _ROWS)
        ],
        "shapes": [
            {"name": each.name, "dims": each.dims, "types": each.types, "gpu_ms": each.gpu_us / 1000}
            for each in (view.shaped[:_ROWS] if trace.whole else ())
        ],
        "memory": _memory(view),
        "whole": trace.whole,
        "notes": [*trace.problems, *(startup_notes(view) if trace.whole else ()), *trace.notes],
    }


def _phases(view: TraceView) -> list[dict[str, Any]]:
    gpu = view.found.of_gpu
    return [
        {"name": each.name, "cpu_ms": _ms(each.host_us), "gpu_ms": _ms(each.gpu_us) if gpu else None}
        for each in view.phases
    ]


def _regions(view: TraceView) -> list[dict[str, Any]]:
    gpu = view.found.of_gpu
    return [
        {
            "name": each.name,
            "count": each.count,
            "cpu_ms": _ms(each.host_us),
            "share": view.found.share(each.host_us),
            "gpu_ms": _ms(each.gpu_us) if gpu else None,
        }
        for each in view.regions
    ]


def _steps(view: TraceView) -> list[dict[str, Any]]:
    """GPU values are null if no GPU was traced."""
    gpu = view.found.of_gpu
    return [
        {
            "number": row.number,
            "ms": row.took_us / 1000,
            "busy": row.busy if gpu else None,
            "data": row.data,
            "kernels": row.kernels if gpu else None,
        }
        for row in view.rows
    ]


def compare(before: TraceView, after: TraceView) -> dict[str, Any]:
    """Differences between two traces, times in microseconds per step; empty if either was read in part."""
    whole = before.trace.whole and after.trace.whole
    if not whole:
        return {"kind": "diff", "before": before.trace.name, "after": after.trace.name, "whole": False}
    found = diff(before, after)

    def rows(changes: tuple[Difference, ...]) -> list[dict[str, Any]]:
        return [{"name": each.name, "before": each.before, "after": each.after, "unit": each.unit} for each in changes]

    return {
        "kind": "diff",
        "before": before.trace.name,
        "after": after.trace.name,
        "numbers": rows(found.numbers),
        "phases": rows(found.phases),
        "kernels": rows(found.kernels[:_ROWS]),
        "operators": rows(found.operators[:_ROWS]),
        "gone": list(found.removed_rules),
        "come": list(found.added_rules),
        "stay": list(found.kept_rules),
    }


def finding(verdict: TraceVerdict) -> dict[str, Any]:
    """A verdict with the field names of a finding."""
    return {
        "rule": verdict.rule,
        "severity": verdict.severity,
        "healthy": verdict.healthy,
        "grade": "profile",
        "headline": verdict.headline,
        "evidence": [
            {
                "text": f"{each.text}, of {each.of}" if each.of else each.text,
                "value": each.value,
                "unit": each.unit,
                "limit": each.limit,
            }
            for each in verdict.numbers
        ],
        "steps": [{"text": step} for step in verdict.steps],
        "lost_share": verdict.lost_share,
    }


def _ms(us: float | None) -> float | None:
    return None if us is None else us / 1000


def _gpu(view: TraceView) -> dict[str, Any]:
    found = view.found
    return {
        "busy": found.share(found.busy),
        "compute": found.share(found.compute),
        "communication": found.share(found.comm),
        "exposed_communication": found.exposed,
        "overlap": found.overlap,
        "idle_host": found.share(found.idle.host_us),
        "idle_kernel": found.share(found.idle.kernel_us),
        "idle_other": found.share(found.idle.other_us),
        "idle_unknown": found.share(found.idle.unknown_us),
        "host_wait": found.share(found.idle.stream_host_us),
        "launch_delay_p50_ms": _ms(found.launching.delay_p50_us),
        "launch_delay_p90_ms": _ms(found.launching.delay_p90_us),
        "queue_p50": found.launching.depth_p50,
        "queue_max": found.launching.depth_max,
        "kernels": found.kernel_count,
        "kernels_per_step": found.per_step,
        "kernel_p50_ms": _ms(found.median_us),
        "sm_efficiency": found.filled,
        "occupancy": found.occupancy,
    }


def _memory(view: TraceView) -> dict[str, Any] | None:
    memory, seen = view.trace.memory, view.found.window
    if not len(memory):
        return None
    first, last = 0, len(memory)
    if seen.steps:
        first, last = bisect_left(memory.at, seen.start), bisect_right(memory.at, seen.end)
    every = 1 + (last - first) // _CURVE
    peak, peak_reserved = memory_peak(view)
    return {
        "peak_bytes": peak,
        "peak_reserved_bytes": peak_reserved,
        "curve": [
            [memory.at[place] / 1000, memory.allocated[place], memory.reserved[place]]
            for place in range(first, last, every)
        ],
    }


def why_not_one_job(views: Sequence[TraceView]) -> str | None:
    """Why these are not ranks of one job, as a continuation of the file names; None if they may be.

    torch.profiler writes rank and world size; older traces have collectives, at least in one rank.
    """
    known = [view.trace.rank for view in views if view.trace.rank is not None]
    silent = [view for view in views if view.trace.rank is None and not _communicates(view)]
    if silent and (known or len(silent) == len(views)):
        return f"{silent[0].trace.name} names no rank and has no collectives"
    sizes = {view.trace.ranks for view in views if view.trace.ranks is not None}
    if len(sizes) > 1:
        return f"their world sizes differ: {min(sizes)} and {max(sizes)}"
    twice = [rank for rank in known if known.count(rank) > 1]
    return f"rank {twice[0]} occurs more than once" if twice else None


def _communicates(view: TraceView) -> bool:
    """Whether the GPU, or the CPU for it, communicates with other ranks."""
    return bool(len(view.found.comm) or len(view.host(SpanMeaning.COMM)))
