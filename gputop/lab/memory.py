"""Memory of a training over time: samples, growth per step, and its confidence."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations, pairwise
from statistics import median
from typing import Any

from gputop.safe.text import clean

PARTS = 8
LEAST_POINTS = 2 * PARTS
LEAST_STEPS = LEAST_POINTS
LEAST_BYTES = 1 << 20  # least growth: less is allocator rounding
LEAST_TENSOR_BYTES = 64 << 10  # the same for a CUDA allocator, which is exact
LASTS = 0.3  # of the total slope, required of the second half: growth that levels off was warm-up
A_STEP = 0.5  # additional tensors of a kind per step for accumulation
CENSUSES = 4  # of live tensors, needed to detect it
_SPREAD = 1.4826  # from the median deviation to the standard one

# step; kinds reported; other kinds have no more tensors
Census = tuple[float | None, Sequence[Mapping[str, Any]], int]
Points = Sequence[tuple[float, float]]  # (step or second, bytes)


def growth(points: Points, least: float = LEAST_BYTES) -> dict[str, Any]:
    """First, last and maximum; growth per step with uncertainty; whether it grows, None if undecided."""
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
    """The minimum of each part of the samples, with its step; empty for too few samples."""
    if len(points) < LEAST_POINTS:
        return []
    edges = [len(points) * part // PARTS for part in range(PARTS + 1)]
    return [min(points[first:last], key=lambda point: point[1]) for first, last in pairwise(edges)]


def _slope(points: Points) -> float:
    """The median slope of all pairs, robust against outliers."""
    slopes = [(later - before) / (at - since) for (since, before), (at, later) in combinations(points, 2) if at > since]
    return median(slopes) if slopes else 0.0


def grown_tensors(censuses: Sequence[Census]) -> list[dict[str, Any]]:
    """Live tensors of the last census, each with the increase of its kind since the first.

    A kind `grows` if each census has at least one more per two steps. A single increase is not enough: within a step
    some kinds are more numerous. None with too few censuses.
    """
    if not censuses:
        return []
    known = [({_kind_key(one): one["count"] for one in kinds}, others) for _, kinds, others in censuses]
    found = []
    for one in censuses[-1][1]:
        counts = [then.get(_kind_key(one), others) for then, others in known]
        found.append(
            {**one, "more": counts[-1] - counts[0], "grows": _accumulates(counts, [at for at, *_ in censuses])}
        )
    return found


def _accumulates(counts: Sequence[int], steps: Sequence[float | None]) -> bool | None:
    known = [at for at in steps if at is not None]
    if len(known) < max(CENSUSES, len(counts)) or known[-1] - known[0] < LEAST_STEPS:
        return None
    pairs = zip(pairwise(counts), pairwise(known), strict=True)
    return all(now - before >= max(1.0, A_STEP * (at - since)) for (before, now), (since, at) in pairs)


def _kind_key(one: Mapping[str, Any]) -> tuple[Any, ...]:
    return one["type"], one["dtype"], tuple(one["shape"]), one["device"], one["graph"]


TIME_S = 30.0  # seconds needed to see growth without steps
_MOST = 1 << 60
_DEVICE = ("allocated", "peak_allocated", "reserved", "peak_reserved", "inactive_split", "segments", "retries", "ooms")
_HOST = ("rss", "peak", "shared", "anonymous")


class MemorySamples:
    """Samples so far. `peaks`: the peaks of each sample are of one step."""

    def __init__(self, *, peaks: bool = False) -> None:
        self.count = 0  # reported by the training itself
        self.seconds = 0.0
        self._peaks = peaks
        self._host: dict[str, int | None] = dict.fromkeys(_HOST)
        self._series: dict[tuple[str, str, int | None], list[tuple[float, int | None, float]]] = {}
        self._devices: dict[int, dict[str, Any]] = {}
        self._most: dict[int, tuple[int, int]] = {}  # per device: maximum allocated, and split blocks at that time
        self._steps: list[int] = []
        self._censuses: list[Census] = []
        self._facts: dict[str, Any] = {"torch": None, "cuda": None, "untold": None}

    @property
    def steps(self) -> int | None:
        """Optimizer steps since the first sample; None if not counted."""
        return self._steps[-1] - self._steps[0] if self._steps else None

    def take(self, said: Mapping[str, Any], host: Mapping[str, Any], seconds: float) -> None:
        """Add what a training reports about PyTorch, and the kernel about its process at that moment."""
        self.seconds, self.count = seconds, self.count + 1
        step = whole(said.get("steps"))
        self._steps += [] if step is None else [step]
        self._facts["torch"], self._facts["cuda"] = _text(said.get("torch")), _text(said.get("cuda"))
        for one in _objects(said.get("devices")):
            numbers = {name: whole(one.get(name)) for name in _DEVICE}
            device = whole(one.get("device"))
            if device is None or numbers["allocated"] is None or numbers["reserved"] is None:
                continue
            full = {name: value or 0 for name, value in numbers.items()}
            self._devices[device] = {"device": device, **full}
            self._most[device] = max(self._most.get(device, (-1, 0)), (full["allocated"], full["inactive_split"]))
            self._add("allocated", f"cuda:{device} allocated", device, full["allocated"], step)
            self._add("reserved", f"cuda:{device} reserved", device, full["reserved"], step)
            if self._peaks:
                self._add("peak", f"cuda:{device} peak of a step", device, full["peak_allocated"], step)
        self.take_host(host, step)
        if "tensors" in said:
            self._facts["untold"] = _text(said.get("untold"))
            kinds = [kind for one in _objects(said.get("tensors")) if (kind := _kind_row(one)) is not None]
            self._censuses.append((step, kinds, whole(said.get("others")) or 0))

    def take_host(self, host: Mapping[str, Any], step: int | None = None) -> None:
        """Add the kernel's values of the process."""
        found = {name: whole(host.get(name)) for name in _HOST}
        if found["rss"] is not None:
            self._host = found
        if found["anonymous"] is not None:
            self._add("host", "host", None, found["anonymous"], step)

    def take_driver(self, gpu: int | str, value: int) -> None:
        """Add the process's memory on a GPU as reported by the driver."""
        self._add("driver", f"GPU {gpu}", None, value, None)

    def _add(self, kind: str, name: str, device: int | None, value: int, step: int | None) -> None:
        self._series.setdefault((kind, name, device), []).append((self.seconds, step, float(value)))

    def result(self) -> dict[str, Any]:
        """All samples as one plain object."""
        steps = self.steps if self._steps and self._steps[-1] else None  # an answering server has none
        judged = self.seconds >= TIME_S if steps is None else steps >= LEAST_STEPS
        rows = []
        for (kind, name, device), series in self._series.items():
            points = [(second if steps is None else float(step or 0), value) for second, step, value in series]
            row = growth(points) if device is None else growth(points, LEAST_TENSOR_BYTES)
            row |= {} if judged else {"each": None, "noise": None, "grows": None}
            rows.append({"name": name, "kind": kind, "device": device, **row})
        return {
            **self._facts,
            "seconds": round(self.seconds, 3),
            "steps": steps,
            "rows": rows,
            "devices": [{**one, "split": self._most[number][1]} for number, one in sorted(self._devices.items())],
            "host": self._host,
            "tensors": grown_tensors(self._censuses) if self._censuses and not self._facts["untold"] else None,
        }


def _kind_row(one: Mapping[str, Any]) -> dict[str, Any] | None:
    """A kind of tensors, validated."""
    count, size, shape = whole(one.get("count")), whole(one.get("bytes")), one.get("shape")
    if count is None or size is None or not isinstance(shape, list) or type(one.get("graph")) is not bool:
        return None
    sizes = [whole(each) for each in shape[:8]]
    if None in sizes:
        return None
    words = {name: clean(str(one.get(name, "")), 24) for name in ("type", "dtype", "device")}
    return {**words, "shape": sizes, "graph": one["graph"], "count": count, "bytes": size}


def _objects(value: object) -> list[Mapping[str, Any]]:
    return [each for each in value[:256] if isinstance(each, dict)] if isinstance(value, list) else []


def whole(value: object) -> int | None:
    """A nonnegative integer; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return int(value) if 0 <= value < _MOST else None


def _text(value: object) -> str | None:
    return clean(value, 200) if isinstance(value, str) and value else None
