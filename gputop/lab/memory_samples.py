"""Samples of the memory of a training: taken in as they come, and what they come to at any time.

What a process says of itself is hostile: only numbers that make sense are taken.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from gputop.lab.memory import LEAST_STEPS, LEAST_TENSOR_BYTES, Census, grown, growth
from gputop.safe.text import clean

TIME_S = 30.0  # without steps it takes so long to see whether memory grows
_MOST = 1 << 60
_DEVICE = ("allocated", "peak_allocated", "reserved", "peak_reserved", "inactive_split", "segments", "retries", "ooms")
_HOST = ("rss", "peak", "shared", "anonymous")


class Samples:
    """What was sampled so far. `peaks`: each sample's peaks are those of one step."""

    def __init__(self, *, peaks: bool = False) -> None:
        self.count = 0  # that a training gave itself
        self.seconds = 0.0
        self._peaks = peaks
        self._host: dict[str, int | None] = dict.fromkeys(_HOST)
        self._series: dict[tuple[str, str, int | None], list[tuple[float, int | None, float]]] = {}
        self._devices: dict[int, dict[str, Any]] = {}
        self._most: dict[int, tuple[int, int]] = {}  # of each device: most that was allocated, and what was split then
        self._steps: list[int] = []
        self._censuses: list[Census] = []
        self._facts: dict[str, Any] = {"torch": None, "cuda": None, "untold": None}

    @property
    def steps(self) -> int | None:
        """Optimizer steps since the first sample; None where nobody counts them."""
        return self._steps[-1] - self._steps[0] if self._steps else None

    def take(self, said: Mapping[str, Any], host: Mapping[str, Any], seconds: float) -> None:
        """What a training says of PyTorch, and the kernel of its process at the same moment."""
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
            told = [kind for one in _objects(said.get("tensors")) if (kind := _kind(one)) is not None]
            self._censuses.append((step, told, whole(said.get("others")) or 0))

    def take_host(self, host: Mapping[str, Any], step: int | None = None) -> None:
        """What the kernel says of the process."""
        found = {name: whole(host.get(name)) for name in _HOST}
        if found["rss"] is not None:
            self._host = found
        if found["anonymous"] is not None:
            self._add("host", "host", None, found["anonymous"], step)

    def take_driver(self, gpu: int | str, value: int) -> None:
        """What the driver says that the process holds of a GPU."""
        self._add("driver", f"GPU {gpu}", None, value, None)

    def _add(self, kind: str, name: str, device: int | None, value: int, step: int | None) -> None:
        self._series.setdefault((kind, name, device), []).append((self.seconds, step, float(value)))

    def result(self) -> dict[str, Any]:
        """All of it, as one plain object."""
        steps = self.steps if self._steps and self._steps[-1] else None  # a server that answers makes none
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
            "tensors": grown(self._censuses) if self._censuses and not self._facts["untold"] else None,
        }


def _kind(one: Mapping[str, Any]) -> dict[str, Any] | None:
    """A kind of tensors that makes sense."""
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
    """A number of bytes or of things; None where it is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return int(value) if 0 <= value < _MOST else None


def _text(value: object) -> str | None:
    return clean(value, 200) if isinstance(value, str) and value else None
