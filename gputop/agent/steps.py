"""What the step meter says to who asks: the steps of the last seconds in a few numbers, and the newest ones singly."""

from __future__ import annotations

import time
from typing import Any

from .meter import Meter

_WINDOW_S = 30.0
_LEAST = 5  # steps, also where they are older
_SINGLE = 120  # steps that are told singly, at most
_SLOW = 2.0  # times the median
_DIGITS = 6


def steps(meter: Meter | None, since: int = 0) -> dict[str, Any]:
    """The reply; `since`: how many steps whoever asks has been told of singly. Times are seconds.

    Means and percentiles are of the steps without an evaluation; a number that nobody knows is None.
    """
    if meter is None:
        return {"on": False, "why": "it was switched off when the job was started"}
    now_s, ring = time.time(), meter.ring
    kept = ring.last()
    recent = [step for step in kept if step[0] > now_s - _WINDOW_S]
    window = recent if len(recent) >= _LEAST else kept[-_LEAST:]
    found: dict[str, Any] = {
        "on": not meter.off,
        "why": meter.off,
        "count": ring.count,
        "cost": round(meter.cost, _DIGITS),
        "ago_s": round(now_s - kept[-1][0], 3) if kept else None,
        "steps": [[round(value, _DIGITS) for value in step] for step in ring.last(_SINGLE, since)],
    }
    usual = [step for step in window if not step[-1]]
    if usual:
        found.update(_numbers(usual))
        found["evaluated_s"] = round(sum(step[1] for step in window if step[-1]), _DIGITS)
    return found


def _numbers(usual: list[tuple[float, ...]]) -> dict[str, Any]:
    _, took, waited, optimizer, samples, batches, _ = zip(*usual)
    total_s, ordered = sum(took), sorted(took)
    fed = any(batches)
    middle_s = ordered[len(ordered) // 2]
    return {
        "window": len(usual),
        "step_s": round(total_s / len(usual), _DIGITS),
        "median_s": round(middle_s, _DIGITS),
        "p90_s": round(ordered[int(0.9 * (len(ordered) - 1))], _DIGITS),
        "longest_s": round(ordered[-1], _DIGITS),
        "slow": sum(value > _SLOW * middle_s for value in took),
        "wait_s": round(sum(waited) / len(usual), _DIGITS) if fed else None,  # without a DataLoader nobody knows
        "optimizer_s": round(sum(optimizer) / len(usual), _DIGITS),
        "samples_per_s": round(sum(samples) / total_s, 3) if total_s and any(samples) else None,
        "batches": round(sum(batches) / len(usual), 3) if fed else None,  # a step
    }
