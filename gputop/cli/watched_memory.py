"""The memory of a process that runs, sampled for some seconds: by the agent in it, else from outside."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from threading import Event
from typing import TYPE_CHECKING, Any

from gputop.agent_client import Agent, Lost
from gputop.cli.line import Failure
from gputop.collect.files import slurp
from gputop.lab.memory import CENSUSES, LEAST_POINTS
from gputop.lab.memory_samples import Samples

if TYPE_CHECKING:
    from gputop.actions.target import Target
    from gputop.model import Frame, Process
    from gputop.source import Source

_APART_S = 0.1
_ANSWERS_S = 30.0  # a census of many tensors, and the rest that the agent takes after it
_STEPS_S = 600.0  # the longest wait for a number of steps
_BETWEEN = 4  # samples between two censuses
_LATEST_S = 60.0  # the longest wait for samples enough, where less time was asked for
_STATUS = {"rss": b"VmRSS", "peak": b"VmHWM", "shared": b"RssShmem", "anonymous": b"RssAnon"}


class Watched(Samples):
    """The samples of a process that runs."""

    def __init__(self, process: Process, frame: Frame) -> None:
        super().__init__()
        self._process, self._frame = process, frame
        self._began_s, self._first_s = time.monotonic(), frame.mono_s

    def hear(self, said: Any) -> None:
        """What its agent says."""
        self.take(said, status(self._process.pid), time.monotonic() - self._began_s)

    def look(self, process: Process, frame: Frame, *, live: bool) -> None:
        """What shows from outside."""
        self.seconds = time.monotonic() - self._began_s if live else frame.mono_s - self._first_s
        self._process, self._frame = process, frame
        for share in process.gpus:
            gpu = frame.by_uuid.get(share.uuid)
            if share.vram_bytes is not None and gpu is not None:
                self.take_driver(gpu.index, share.vram_bytes)
        self.take_host(status(process.pid) if live else {"rss": process.rss_bytes})

    def result(self) -> dict[str, Any]:
        """All of it, as one plain object."""
        return {**super().result(), "driver": list(_by_driver(self._process, self._frame))}


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
        watched.hear(told)
        yield watched
        enough = watched.count >= LEAST_POINTS and (censuses > CENSUSES or not tensors)
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
