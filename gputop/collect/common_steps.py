"""The steps that all ranks of a job have made, one by one: in how many of them each was the last to have its data.

Ranks sum their gradients in each step, so the n-th step of one is the n-th of all, as long as their meters began with
the same one. Whether they did, the times at which steps end tell; where they do not agree, nothing is counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

KEPT, COMPARED = 120, 50  # steps of a rank that are kept; the newest common ones that are compared
_LEAST = 10  # of them
_LONGER = 0.1  # of a step, that a rank waits longer than each other: less is noise
_TOGETHER = 0.5  # of a step, within which the same one ends on all ranks


class OneStep(NamedTuple):
    """An optimizer step of a rank."""

    ended_s: float  # Unix seconds
    took_s: float
    waited_s: float  # for data
    other: bool  # it holds an evaluation


Numbered = Mapping[int, OneStep]  # by how many steps there were when it was made


def compared(ranks: Sequence[Numbered]) -> list[dict[str, Any]]:
    """For each rank the fields of its process: how often it was late, of how many steps, or why nobody can say."""
    common = sorted(set.intersection(*(set(one) for one in ranks)))
    made = [[rank[number] for rank in ranks] for number in common]
    rows = [row for row in made if not any(one.other for one in row)][-COMPARED:]
    if len(rows) < _LEAST:
        return [{"steps_apart": "too few steps that all ranks made are known"} for _ in ranks]
    step_s = median(one.took_s for row in rows for one in row)
    ends = [[one.ended_s for one in row] for row in rows]
    if median(max(each) - min(each) for each in ends) > _TOGETHER * step_s:
        return [{"steps_apart": "the steps of ranks do not end together"} for _ in ranks]
    late = [_late(row) for row in rows]
    return [{"late_step_count": late.count(place), "common_step_count": len(rows)} for place in range(len(ranks))]


def _late(row: Sequence[OneStep]) -> int | None:
    """The place of the rank for whose data the others waited in this step; None where no one was late alone."""
    *_, (second_s, _), (most_s, place) = sorted((one.waited_s, place) for place, one in enumerate(row))
    return place if most_s - second_s >= _LONGER * median(one.took_s for one in row) else None
