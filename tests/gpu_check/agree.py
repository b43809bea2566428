"""Item 12: gputop's figures beside nvidia-smi's and the bare driver's, read at the same time."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from io import StringIO
from itertools import pairwise
from math import ceil
from typing import Any, NamedTuple

from gputop.units import size
from tests.gpu_check.check import Check, last
from tests.gpu_check.driver import MEMORY_V2, Driver, Gpu
from tests.gpu_check.records import Fact, Figures, Record, Skip, Verdict, measurement, middle

MIB = 1 << 20
MEAN_S = 6.0  # what gputop says of memory in use is the mean of five seconds
SAME_BYTES = 64 * MIB  # a process may allocate between two looks
NO_MEMORY = 1 << 50  # more than this is "not available"
Read = Callable[[Driver, Gpu], "float | None"]


def _call(name: str, *args: Any, part: str | None = None, scale: float = 1.0) -> Read:
    def read(driver: Driver, gpu: Gpu) -> float | None:
        value = driver.on(gpu, name, *args).value
        if value is None:
            return None
        return float(getattr(value, part) if part else value) * scale

    return read


def _field(number: int, scale: float) -> Read:
    """A field value: another way to the same figure than gputop's own."""

    def read(driver: Driver, gpu: Gpu) -> float | None:
        found = driver.fields(gpu, (number, 0))
        return float(found[0].value) * scale if found and found[0].value is not None else None

    return read


class Compared(NamedTuple):
    """One figure: gputop's name, nvidia-smi's, the driver's call, what may lie between them."""

    name: str
    query: str
    read: Read
    absolute: float  # tolerance in the unit
    relative: float = 0.0  # and as a share of the value
    scale: float = 1.0  # from nvidia-smi's unit

    def slack(self, value: float) -> float:
        """What may lie between two readings of this value."""
        return self.absolute + self.relative * abs(value)

    def text(self, value: float) -> str:
        """A value of it, short."""
        return size(value) if self.name.endswith("_bytes") else f"{value:g}"


_RATES = "nvmlDeviceGetUtilizationRates"
_MEMORY = "nvmlDeviceGetMemoryInfo"
COMPARED = (
    Compared("busy_percent", "utilization.gpu", _call(_RATES, part="gpu"), 15),
    Compared("memory_busy_percent", "utilization.memory", _call(_RATES, part="memory"), 15),
    Compared("vram_used_bytes", "memory.used", _call(_MEMORY, MEMORY_V2, part="used"), 64 * MIB, 0.01, MIB),
    Compared("vram_total_bytes", "memory.total", _call(_MEMORY, MEMORY_V2, part="total"), MIB, scale=MIB),
    Compared("temperature_celsius", "temperature.gpu", _call("nvmlDeviceGetTemperatureV", 0), 3),
    Compared("power_watts", "power.draw", _field(185, 1e-3), 10, 0.1),
    Compared("power_limit_watts", "enforced.power.limit", _call("nvmlDeviceGetEnforcedPowerLimit", scale=1e-3), 1),
    Compared("sm_clock_mhz", "clocks.sm", _call("nvmlDeviceGetClockInfo", 1), 30, 0.1),
    Compared("memory_clock_mhz", "clocks.mem", _call("nvmlDeviceGetClockInfo", 2), 5, 0.01),
    Compared("pcie_generation", "pcie.link.gen.current", _call("nvmlDeviceGetCurrPcieLinkGeneration"), 0),
    Compared("pcie_width", "pcie.link.width.current", _call("nvmlDeviceGetCurrPcieLinkWidth"), 0),
)
Seen = dict[tuple[str, str], list[float]]  # by (uuid, gputop's name)


@measurement("12", "Does gputop say what nvidia-smi and the bare driver say at the same time?")
def agreement(check: Check) -> Iterator[Record]:
    """Ten frames of gputop while both others are asked; once as it is, once under load."""
    yield from _compare(check, "as it is")
    with check.load() as load:
        load.run("bf16")
        time.sleep(MEAN_S)
        yield from _compare(check, "bf16 load")


def _compare(check: Check, state: str) -> Iterator[Record]:
    count = max(2, min(10, ceil(check.seconds)))
    command = (sys.executable, "-m", "gputop", "snapshot", "--format", "jsonl", "--count", str(count))
    smi = _Smi(check)
    peers: dict[str, tuple[Callable[[Seen], None], Seen]] = {
        "the driver": (lambda seen: _ask_driver(check, seen), defaultdict(list)),
        "nvidia-smi": (smi.ask, defaultdict(list)),
    }
    frames = []
    program = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for line in program.stdout:
        check.folder.text("gputop.jsonl", line)
        said = json.loads(line)
        frames += [said["frame"]] if "frame" in said else []
        for ask, seen in peers.values():
            ask(seen)
    errors = program.stderr.read()
    if program.wait():
        raise RuntimeError(f"gputop snapshot ended with {program.returncode}: {last(errors)}")
    yield Verdict(len(frames) == count, f"{state}: {len(frames)} frames of {count} came")
    if smi.why_not:
        yield Fact(f"nvidia-smi is not compared: {smi.why_not}")
    ours = _series(frames)
    for peer, (_, seen) in peers.items():
        for one in COMPARED:
            yield from _agree(check, one, f"{state}: {one.name} against {peer}", ours, seen)
    yield _processes(check, state, frames[-1] if frames else {})
    yield from _pace(frames)


class _Smi:
    """nvidia-smi, if it is there."""

    def __init__(self, check: Check) -> None:
        self.why_not: str | None = None
        self._check = check

    def ask(self, seen: Seen) -> None:
        """One reading of every GPU."""
        if self.why_not:
            return
        query = ",".join(("uuid", *(one.query for one in COMPARED)))
        command = ("nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader,nounits")
        try:
            done = self._check.program(*command, seconds=30)
        except FileNotFoundError:
            self.why_not = "it is not on PATH"
            return
        if done.returncode:
            self.why_not = f"it ended with {done.returncode}: {last(done.stdout + done.stderr)}"
            return
        self._check.folder.text("nvidia-smi.csv", done.stdout)
        for row in csv.reader(StringIO(done.stdout), skipinitialspace=True):
            for one, word in zip(COMPARED, row[1:], strict=False):
                try:
                    seen[row[0], one.name].append(float(word) * one.scale)
                except ValueError:
                    continue


def _ask_driver(check: Check, seen: Seen) -> None:
    for gpu in check.gpus:
        for one in COMPARED:
            value = one.read(check.driver, gpu)
            if value is not None:
                seen[gpu.uuid, one.name].append(value)


def _series(frames: list[dict[str, Any]]) -> Seen:
    ours: Seen = defaultdict(list)
    for frame in frames:
        for gpu in frame.get("gpus", ()):
            for one in COMPARED:
                if gpu.get(one.name) is not None:
                    ours[gpu["uuid"], one.name].append(float(gpu[one.name]))
    return ours


def _agree(check: Check, one: Compared, title: str, ours: Seen, seen: Seen) -> Iterator[Record]:
    """Our median must lie between the other's least and most, the tolerance added on both sides."""
    apart, compared = [], 0
    for gpu in check.gpus:
        theirs, own = seen.get((gpu.uuid, one.name)), ours.get((gpu.uuid, one.name))
        if not theirs:
            continue
        compared += 1
        low, high = min(theirs), max(theirs)
        if not own:
            apart.append(f"GPU {gpu.index}: unknown, not {one.text(low)} to {one.text(high)}")
        elif not low - one.slack(low) <= middle(own) <= high + one.slack(high):
            apart.append(f"GPU {gpu.index}: {one.text(middle(own))}, not {one.text(low)} to {one.text(high)}")
    if compared:
        named = one.text(one.absolute) + (f" + {one.relative:.0%}" if one.relative else "")
        said = "; ".join(apart[:4]) or f"{compared} GPUs agree"
        yield Verdict(not apart, f"{title}: {said} (tolerance {named})")


def _processes(check: Check, state: str, frame: dict[str, Any]) -> Verdict:
    """The compute processes the driver lists now, and those of gputop's last frame, with their device memory."""
    ours = {
        (share["uuid"], process["pid"]): share.get("vram_bytes")
        for process in frame.get("processes", ())
        for share in process.get("gpus", ())
        if share.get("kind", "compute") == "compute"
    }
    theirs = {}
    for gpu in check.gpus:
        for one in check.driver.on(gpu, "nvmlDeviceGetComputeRunningProcesses").value or ():
            held = one.usedGpuMemory
            theirs[gpu.uuid, one.pid] = held if held is not None and held < NO_MEMORY else None
    apart = [f"pid {pid} is in one list only" for _, pid in ours.keys() ^ theirs.keys()]
    for key in ours.keys() & theirs.keys():
        own, held = ours[key], theirs[key]
        if (own is None) != (held is None) or (held is not None and abs(own - held) > SAME_BYTES):
            apart.append(f"pid {key[1]} holds {own}, not {held} bytes")
    said = "; ".join(apart[:4]) or "they agree"
    return Verdict(not apart, f"{state}: {len(ours)} GPU processes of ours, {len(theirs)} of the driver's: {said}")


def _pace(frames: list[dict[str, Any]]) -> Iterator[Record]:
    stamps = [frame["mono_s"] for frame in frames]
    if len(stamps) < 2:
        raise Skip("fewer than two frames")
    yield Figures("seconds between two frames", "s", tuple(after - before for before, after in pairwise(stamps)))
    cost = [frame["driver_percent"] for frame in frames if frame.get("driver_percent") is not None]
    if cost:
        yield Figures("driver time as gputop accounts it", "%", tuple(cost))
