"""What the step meter replies: the steps of the last seconds in a few numbers, and the newest ones one by one."""

from __future__ import annotations

import math
import time
from bisect import bisect_right
from typing import Any

from .meter import Meter

_WINDOW_S, _WINDOW = 30.0, 512  # of the last seconds, at most that number of steps
_LEAST = 5  # steps, also where they are older
_SINGLE = 120  # steps that are sent one by one, at most
_SLOW, _SLOW_SENT = 2.0, 16  # times the median; the number of slow steps that are sent
_DIGITS = 6


def steps(meter: Meter | None, since: int = 0) -> dict[str, Any]:
    """The reply; `since`: the number of steps that the client has received one by one. Times are seconds.

    Means and percentiles are of the steps without an evaluation; an unknown number is None. It takes some
    tenths of a millisecond, in which the program cannot run.
    """
    if meter is None:
        return {"on": False, "why": "it was disabled when the job was started"}
    now_s, ring = time.time(), meter.ring
    for _ in range(9):  # the single steps are the last of `count`: by that ranks are compared step by step
        count, single = ring.count, ring.last(_SINGLE, since)
        if count == ring.count:
            break
    columns = ring.last(_WINDOW)
    ended = columns[0]
    found: dict[str, Any] = {
        "on": not meter.off,
        "why": meter.off,
        "count": count,
        "cost": round(meter.cost, _DIGITS),
        "ago_s": round(now_s - ended[-1], 3) if ended else None,
        "steps": [[_known(value) for value in step] for step in zip(*single)],
    }
    first = min(bisect_right(ended, now_s - _WINDOW_S), max(0, len(ended) - _LEAST))
    window = [column[first:] for column in columns]
    other = window[-1]
    if any(other):
        found["evaluated_s"] = round(sum(took for took, held in zip(window[1], other) if held), _DIGITS)
        window = [[value for value, held in zip(column, other) if not held] for column in window]
    else:
        found["evaluated_s"] = 0.0
    return {**found, **_numbers(window)} if window[0] else found


def _known(value: float) -> float | None:
    return None if math.isnan(value) else round(value, _DIGITS)


def _numbers(columns: list[list[float]]) -> dict[str, Any]:
    ended, took, waited, optimizer, samples, batches, _ = columns
    count, total_s, ordered = len(took), sum(took), sorted(took)
    fetched, learned = sum(batches), sum(samples)
    middle_s = ordered[count // 2]
    slow = count - bisect_right(ordered, _SLOW * middle_s)
    return {
        "window": count,
        "step_s": round(total_s / count, _DIGITS),
        "median_s": round(middle_s, _DIGITS),
        "p90_s": round(ordered[int(0.9 * (count - 1))], _DIGITS),
        "longest_s": round(ordered[-1], _DIGITS),
        "slow": slow,
        "slow_steps": _slow(ended, took, waited, optimizer, _SLOW * middle_s) if slow else [],
        "wait_s": round(sum(waited) / count, _DIGITS) if fetched else None,  # unknown without a DataLoader
        "optimizer_s": _known(sum(optimizer) / count),
        "samples_per_s": round(learned / total_s, 3) if total_s and learned else None,
        "batches": round(fetched / count, 3) if fetched else None,  # a step
    }


def _slow(
    ended: list[float], took: list[float], waited: list[float], optimizer: list[float], least_s: float
) -> list[list[Any]]:
    """The newest steps that took longer than this: when each ended, how long it took, and the part that grew most."""
    optimizer = [_known(value) or 0.0 for value in optimizer]
    rest = [whole - wait - optimizes for whole, wait, optimizes in zip(took, waited, optimizer)]
    parts = {"data": waited, "optimizer": optimizer, "rest": rest}
    usual = {name: sorted(column)[len(column) // 2] for name, column in parts.items()}
    places = [place for place, whole in enumerate(took) if whole > least_s][-_SLOW_SENT:]
    return [
        [round(ended[at], 3), round(took[at], _DIGITS), max(parts, key=lambda name: parts[name][at] - usual[name])]
        for at in places
    ]
