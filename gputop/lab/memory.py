"""Whether memory grows from step to step, and how sure that is; what grew among the live tensors.

A step takes memory and gives most of it back. So what counts is the least of each part of the time: it stays where
nothing is kept, and rises with all that is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations, pairwise
from statistics import median
from typing import Any

PARTS = 8
LEAST_POINTS = 2 * PARTS
LEAST_STEPS = LEAST_POINTS
LEAST_BYTES = 1 << 20  # by which it has to grow: less is what allocators round to
LEAST_TENSOR_BYTES = 64 << 10  # the same, of a CUDA allocator, which counts exactly
LASTS = 0.3  # of the whole growth's slope, which the second half has to have: what levels off was a warm-up
A_STEP = 0.5  # more tensors of a kind, each step, for a kind that piles up
CENSUSES = 4  # of live tensors that it takes to say so
_SPREAD = 1.4826  # from the median deviation to the standard one

# after which step; the kinds that were told; of no other kind are there more
Census = tuple[float | None, Sequence[Mapping[str, Any]], int]
Points = Sequence[tuple[float, float]]  # a step or a second, and bytes


def growth(points: Points, least: float = LEAST_BYTES) -> dict[str, Any]:
    """First, last and most; the growth each step, with its uncertainty; whether it grows, None where nobody can say."""
    values = [value for _, value in points]
    found: dict[str, Any] = {"first": None, "last": None, "most": None, "each": None, "noise": None, "grows": None}
    if not values:
        return found
    found |= {"first": values[0], "last": values[-1], "most": max(values)}
    low = _lows(points)
    if not low or low[0][0] >= low[-1][0]:
        return found
    each, whole = _slope(low), low[-1][1] - low[0][1]
    offset = median(value - each * at for at, value in low)
    spread = _SPREAD * median(abs(value - offset - each * at) for at, value in low)
    middle = sum(at for at, _ in low) / len(low)
    noise = 2 * spread / sum((at - middle) ** 2 for at, _ in low) ** 0.5
    rises = sum(later > before for (_, before), (_, later) in pairwise(low))
    lasts = _slope(low[len(low) // 2 :]) >= LASTS * each
    grows = each > noise and whole >= least and rises >= len(low) - 2 and lasts
    return {**found, "each": each, "noise": noise, "grows": grows}


def _lows(points: Points) -> list[tuple[float, float]]:
    """The least of each part of the samples, with its step; none where they are too few for that."""
    if len(points) < LEAST_POINTS:
        return []
    edges = [len(points) * part // PARTS for part in range(PARTS + 1)]
    return [min(points[first:last], key=lambda point: point[1]) for first, last in pairwise(edges)]


def _slope(points: Points) -> float:
    """The median slope of all pairs, which no single one can move."""
    slopes = [(later - before) / (at - since) for (since, before), (at, later) in combinations(points, 2) if at > since]
    return median(slopes) if slopes else 0.0


def grown(censuses: Sequence[Census]) -> list[dict[str, Any]]:
    """The live tensors of the last census, each with how many more of its kind there are than at the first.

    A kind that piles up `grows`: from each census to the next by one in two steps or more. Once is not enough: in the
    middle of a step there are more of some kinds. None where there are too few censuses.
    """
    if not censuses:
        return []
    known = [({_kind(one): one["count"] for one in told}, others) for _, told, others in censuses]
    found = []
    for one in censuses[-1][1]:
        counts = [then.get(_kind(one), others) for then, others in known]
        found.append({**one, "more": counts[-1] - counts[0], "grows": _piles(counts, [at for at, *_ in censuses])})
    return found


def _piles(counts: Sequence[int], steps: Sequence[float | None]) -> bool | None:
    known = [at for at in steps if at is not None]
    if len(known) < max(CENSUSES, len(counts)) or known[-1] - known[0] < LEAST_STEPS:
        return None
    pairs = zip(pairwise(counts), pairwise(known), strict=True)
    return all(now - before >= max(1.0, A_STEP * (at - since)) for (before, now), (since, at) in pairs)


def _kind(one: Mapping[str, Any]) -> tuple[Any, ...]:
    return one["type"], one["dtype"], tuple(one["shape"]), one["device"], one["graph"]
