"""The memory of a process that runs, sampled for some seconds: by the agent in it, else from outside.

What an agent says is as hostile as anything of its process: only numbers that make sense are taken.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator, Mapping
from threading import Event
from typing import TYPE_CHECKING, Any

from gputop.agent_client import Agent, Lost
from gputop.cli.line import Failure
from gputop.collect.files import slurp
from gputop.lab.memory import CENSUSES, LEAST_POINTS, LEAST_STEPS, LEAST_TENSOR_BYTES, Census, grown, growth
from gputop.safe.text import clean

if TYPE_CHECKING:
    from gputop.actions.target import Target
    from gputop.model import Frame, Process
    from gputop.source import Source

OUTSIDE_S = 30.0  # without steps it takes so long to see whether memory grows
_APART_S = 0.1
_ANSWERS_S = 30.0  # a census of many tensors, and the rest that the agent takes after it
_STEPS_S = 600.0  # the longest wait for a number of steps
_BETWEEN = 4  # samples between two censuses
_LATEST_S = 60.0  # the longest wait for samples enough, where less time was asked for
_MOST = 1 << 60
_DEVICE = ("allocated", "peak_allocated", "reserved", "peak_reserved", "inactive_split", "segments", "retries", "ooms")
_STATUS = {"rss": b"VmRSS", "peak": b"VmHWM", "shared": b"RssShmem", "anonymous": b"RssAnon"}


class Watched:
    """What was sampled so far; `result` is what it comes to, also where it ended early."""

    def __init__(self, process: Process, frame: Frame) -> None:
        self._process, self._frame = process, frame
        self._began_s = time.monotonic()
        self._seconds = 0.0
        self.samples = 0  # that the agent gave
        self._host: dict[str, int | None] = dict.fromkeys(_STATUS)
        self._driver: dict[str, int] = {}
        self._series: dict[tuple[str, str, int | None], list[tuple[float, int | None, float]]] = {}
        self._devices: dict[int, dict[str, Any]] = {}
        self._most: dict[int, tuple[int, int]] = {}  # of each device: most that was allocated, and what was split then
        self._steps: list[int] = []
        self._censuses: list[Census] = []
        self._facts: dict[str, Any] = {"torch": None, "cuda": None, "untold": None}

    @property
    def steps(self) -> int | None:
        """Optimizer steps since it is watched; None where nobody counts them."""
        return self._steps[-1] - self._steps[0] if self._steps else None

    def take(self, said: Mapping[str, Any]) -> None:
        """What the agent says, with what the kernel says at the same moment."""
        self._seconds, self.samples = time.monotonic() - self._began_s, self.samples + 1
        count = _whole(said.get("steps"))
        self._steps += [] if count is None else [count]
        self._facts["torch"], self._facts["cuda"] = _text(said.get("torch")), _text(said.get("cuda"))
        for one in _objects(said.get("devices")):
            numbers = {name: _whole(one.get(name)) for name in _DEVICE}
            device = _whole(one.get("device"))
            if device is None or numbers["allocated"] is None or numbers["reserved"] is None:
                continue
            full = {name: value or 0 for name, value in numbers.items()}
            self._devices[device] = {"device": device, **full}
            self._most[device] = max(self._most.get(device, (-1, 0)), (full["allocated"], full["inactive_split"]))
            for name in ("allocated", "reserved"):
                self._add(name, f"cuda:{device} {name}", device, full[name], count)
        self._kernel(count)
        if "tensors" in said:
            self._facts["untold"] = _text(said.get("untold"))
            told = [kind for one in _objects(said.get("tensors")) if (kind := _kind(one)) is not None]
            self._censuses.append((count, told, _whole(said.get("others")) or 0))

    def look(self, process: Process, frame: Frame, *, live: bool) -> None:
        """What shows from outside."""
        self._seconds = time.monotonic() - self._began_s if live else frame.mono_s - self._frame.mono_s
        self._process, self._frame = process, frame
        for share in process.gpus:
            gpu = frame.by_uuid.get(share.uuid)
            if share.vram_bytes is not None and gpu is not None:
                self._add("driver", f"GPU {gpu.index}", gpu.index, share.vram_bytes, None)
        if live:
            self._kernel(None)
        elif process.rss_bytes is not None:
            self._host["rss"] = process.rss_bytes

    def _kernel(self, count: int | None) -> None:
        found = status(self._process.pid)
        if found["rss"] is not None:
            self._host = found
        if found["anonymous"] is not None:
            self._add("host", "host", None, found["anonymous"], count)

    def _add(self, kind: str, name: str, device: int | str | None, value: int, count: int | None) -> None:
        number = device if isinstance(device, int) else None
        self._series.setdefault((kind, name, number), []).append((self._seconds, count, float(value)))

    def result(self) -> dict[str, Any]:
        """All of it, as one plain object."""
        steps = self.steps if self._steps and self._steps[-1] else None  # a server that answers makes none
        long_enough = self._seconds >= OUTSIDE_S if steps is None else steps >= LEAST_STEPS
        rows = []
        for (kind, name, device), series in self._series.items():
            points = [(second if steps is None else float(count or 0), value) for second, count, value in series]
            least = LEAST_TENSOR_BYTES if kind in ("allocated", "reserved") else None
            row = growth(points) if least is None else growth(points, least)
            if not long_enough:
                row |= {"each": None, "noise": None, "grows": None}
            rows.append({"name": name, "kind": kind, "device": device, **row})
        devices = [{**one, "split": self._most[number][1]} for number, one in sorted(self._devices.items())]
        told = grown(self._censuses) if self._censuses and not self._facts["untold"] else None
        return {
            **self._facts,
            "seconds": round(self._seconds, 3),
            "steps": steps,
            "rows": rows,
            "devices": devices,
            "host": self._host,
            "driver": list(_by_driver(self._process, self._frame)),
            "tensors": told,
        }


def inside(
    agent: Agent, target: Target, watched: Watched, seconds: float, steps: int | None, *, tensors: bool
) -> Iterator[Watched]:
    """Ask the agent again and again, for so many seconds or steps; each time what there is."""
    began_s, censuses, since = time.monotonic(), 0, 0
    limit_s = seconds if steps is None else _STEPS_S
    while True:
        passed_s = time.monotonic() - began_s
        done = min(1.0, passed_s / limit_s) if steps is None else min(1.0, (watched.steps or 0) / steps)
        # at the beginning, at the end, and in between; the agent rests after each
        census = tensors and done >= censuses / CENSUSES and (since >= _BETWEEN or not censuses)
        said = agent.answer("memory", _ANSWERS_S, tensors=census)
        if "error" in said:
            raise Failure(f"the agent in {target.pid} does not tell of memory: it is of an older gputop")
        told = said.get("memory")
        if not isinstance(told, dict):
            raise Lost("the agent says what cannot be understood")
        censuses, since = censuses + census, 0 if census else since + 1
        watched.take(told)
        yield watched
        enough = watched.samples >= LEAST_POINTS and (censuses > CENSUSES or not tensors)
        if passed_s >= max(limit_s, _LATEST_S) or (done >= 1.0 and enough):
            return
        if target.ended():
            raise Lost("it has ended")
        time.sleep(_APART_S)


def outside(source: Source, watched: Watched, process: Process, seconds: float, *, live: bool) -> Iterator[Watched]:
    """Look at it for so many seconds; each time what there is."""
    first_s: float | None = None
    for frame in source.frames(Event()):
        first_s = frame.mono_s if first_s is None else first_s
        found = frame.by_identity.get(process.identity)
        if found is None or found.unseen is not None:
            raise Lost("it has ended")
        watched.look(found, frame, live=live)
        yield watched
        if frame.mono_s - first_s >= seconds:
            return


def show(watched: Watched, passed: float, whole: float, unit: str) -> None:
    """One line of a terminal that is written over."""
    if sys.stderr.isatty():
        steps = "" if watched.steps is None or unit == "steps" else f", {watched.steps} steps"
        sys.stderr.write(f"\r\x1b[Ksampling memory: {min(passed, whole):.0f} of {whole:.0f} {unit}{steps}")
        sys.stderr.flush()


def clear() -> None:
    """Take the line away."""
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()


def status(pid: int) -> dict[str, int | None]:
    """What the kernel says of the memory of a process, in bytes; None where it does not."""
    found: dict[str, int | None] = dict.fromkeys(_STATUS)
    try:
        raw = slurp(f"/proc/{pid}/status", 1 << 14)
    except OSError:
        return found
    lines = dict(line.split(b":", 1) for line in raw.splitlines() if b":" in line)
    for name, key in _STATUS.items():
        words = lines.get(key, b"").split()
        if words[1:] == [b"kB"] and words[0].isdigit():
            found[name] = int(words[0]) << 10
    return found


def _by_driver(process: Process, frame: Frame) -> Iterator[dict[str, Any]]:
    for share in process.gpus:
        gpu = frame.by_uuid.get(share.uuid)
        if gpu is not None:
            total, used = gpu.vram_total_bytes, gpu.vram_used_bytes
            free = None if total is None or used is None else max(0, total - used - (gpu.vram_reserved_bytes or 0))
            yield {"gpu": gpu.index, "used": share.vram_bytes, "total": total, "free": free}


def _kind(one: Mapping[str, Any]) -> dict[str, Any] | None:
    """A kind of tensors that makes sense."""
    count, size, shape = _whole(one.get("count")), _whole(one.get("bytes")), one.get("shape")
    if count is None or size is None or not isinstance(shape, list) or type(one.get("graph")) is not bool:
        return None
    sizes = [_whole(each) for each in shape[:8]]
    if None in sizes:
        return None
    words = {name: clean(str(one.get(name, "")), 24) for name in ("type", "dtype", "device")}
    return {**words, "shape": sizes, "graph": one["graph"], "count": count, "bytes": size}


def _objects(value: object) -> list[Mapping[str, Any]]:
    return [each for each in value[:256] if isinstance(each, dict)] if isinstance(value, list) else []


def _whole(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return int(value) if 0 <= value < _MOST else None


def _text(value: object) -> str | None:
    return clean(value, 200) if isinstance(value, str) and value else None
