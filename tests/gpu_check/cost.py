"""Item 2: what driver calls take, one by one and at gputop's own cadence, and what that does to a job."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from math import ceil
from pathlib import Path
from typing import NamedTuple

from tests.gpu_check.calls import calls
from tests.gpu_check.check import Check, last
from tests.gpu_check.driver import OK
from tests.gpu_check.records import Fact, Figures, Record, Skip, Verdict, measurement, middle, quantile, within

CALLS = 50
CALL_MS = 20.0  # p95 above which gputop slows down
MS_A_SECOND = 20.0  # for all GPUs together, above which it slows down
SETTLE_S = 1.5  # the first sweeps read everything
ENOUGH_S = 5.0  # over less, the slow cadences are uneven
WAITS = "nvmlEventSetWait"  # a thread that sleeps in the driver; it costs nothing
PER_GPU = {"off": 10.2, "on": 10.5}  # calls a second a GPU that the sensing plan counts with
# the settings allow four looks a second at most; the source itself any number
LIVE = """
import sys, threading
from gputop.collect.live import Live
for _ in Live(interval_s=float(sys.argv[1]), gpm="on").frames(threading.Event()):
    pass
"""


@measurement("2a", "What does each driver call take, one after the other, idle and under load?")
def one_by_one(check: Check) -> Iterator[Record]:
    """Every call up to 50 times."""
    yield from _one_by_one(check, "idle")
    with check.load() as load:
        load.run("bf16")
        yield from _one_by_one(check, "bf16 load")


def _one_by_one(check: Check, state: str) -> Iterator[Record]:
    wanted = calls(check.driver.slowed)
    slow = []
    for call in wanted:
        spent, code = [], OK
        end_s = time.monotonic() + check.seconds / len(wanted)
        while len(spent) < CALLS and (not spent or time.monotonic() < end_s):
            answer = check.driver.on(check.gpu, call.name, *call.args, kept=False)
            spent.append(answer.spent_s * 1e3)
            code = answer.code
        said = f"  {check.driver.error(code)}" if code != OK else ""
        yield Figures(f"{state}: {call.title.removeprefix('nvmlDeviceGet')}{said}", "ms", tuple(spent))
        if quantile(spent, 0.95) > CALL_MS:
            slow.append(call.title)
    yield Verdict(
        not slow, f"{state}: p95 at most {CALL_MS:g} ms a call" + (f", but not {', '.join(slow)}" if slow else "")
    )


class Calls(NamedTuple):
    """What gputop did in the driver after its first sweeps."""

    spent_ms: dict[str, list[float]]
    codes: dict[str, set[int]]
    seconds: float
    cpu_percent: float


def run_timed(check: Check, gpm: str, interval_s: float = 1.0) -> Calls:
    """gputop's own snapshots for a while, each driver call timed."""
    count = ceil((check.seconds + SETTLE_S) / interval_s) + 1
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "calls.json"
        snapshot = ("snapshot", "--format", "jsonl", "--count", str(count))
        flags = ("--gpm", gpm, "--interval", f"{interval_s:g}")
        command = (sys.executable, "-m", "tests.gpu_check.timed", str(path), *snapshot, *flags)
        done = check.program(*command, seconds=4 * check.seconds + 60)
        if not path.exists():
            raise RuntimeError(f"gputop ended with {done.returncode}: {last(done.stderr)}")
        said = json.loads(path.read_text())
    if said["code"]:
        raise RuntimeError(f"gputop ended with {said['code']}: {last(done.stderr)}")
    spent, codes, starts = defaultdict(list), defaultdict(set), []
    for name, start_s, spent_s, code in said["calls"]:
        codes[name].add(code)
        if start_s >= said["start_s"] + SETTLE_S:
            spent[name].append(spent_s * 1e3)
            starts.append(start_s)
    # calls come in sweeps, one an interval: whole sweeps only, or a short look counts one too many
    seconds = (1 + round((max(starts) - min(starts)) / interval_s)) * interval_s if starts else interval_s
    return Calls(dict(spent), dict(codes), seconds, 100 * said["cpu_s"] / (said["end_s"] - said["start_s"]))


@measurement(
    "2b", "What does gputop itself spend in the driver each second, without and with GPM, idle and under load?"
)
def at_our_cadence(check: Check) -> Iterator[Record]:
    """The real program, its calls timed where they enter the library."""
    for gpm in ("off", "on"):
        yield from _cadence(check, f"GPM {gpm}", gpm)
    with check.load() as load:
        load.run("bf16")
        yield from _cadence(check, "GPM on, bf16 load", "on")


def _cadence(check: Check, title: str, gpm: str) -> Iterator[Record]:
    seen = run_timed(check, gpm)
    worst = []
    for name, spent in sorted(seen.spent_ms.items(), key=lambda item: -sum(item[1])):
        words = {check.driver.error(code) for code in seen.codes[name]} - {"OK"}
        said = f"  {' '.join(sorted(words))}" if words else ""
        yield Figures(f"{title}: {name.removeprefix('nvml').removeprefix('DeviceGet')}{said}", "ms", tuple(spent))
        if not name.startswith(WAITS) and quantile(spent, 0.95) > CALL_MS:
            worst.append(name)
    counted = {name: spent for name, spent in seen.spent_ms.items() if not name.startswith(WAITS)}
    gpus = max(1, len(check.gpus))
    number = sum(map(len, counted.values())) / seen.seconds
    cost_ms = sum(map(sum, counted.values())) / seen.seconds
    yield Fact(
        f"{title}: {number:.1f} calls and {cost_ms:.3f} ms a second for {gpus} GPUs, {seen.cpu_percent:.1f} % CPU"
    )
    yield within(f"{title}: driver time", cost_ms, 0, MS_A_SECOND, "ms/s", "above it gputop slows down")
    enough = number / gpus if seen.seconds >= ENOUGH_S else None
    yield within(f"{title}: calls", enough, 0, PER_GPU[gpm] * 1.1, "a second a GPU", "the sensing plan, 10 % more")
    yield Verdict(
        not worst, f"{title}: p95 at most {CALL_MS:g} ms" + (f", but not {', '.join(worst)}" if worst else "")
    )


@measurement("2c", "How much slower is a launch-bound job while gputop asks 1, 2, 5 and 10 times a second?")
def impact(check: Check) -> Iterator[Record]:
    """Steps of 500 small operations, without and with gputop in turn."""
    with check.load() as load:
        load.run("tiny")
        for hertz in (1, 2, 5, 10):
            ratios = []
            for _ in range(3):
                alone = _steps(load, check.seconds / 3)
                beside = _steps_beside(check, load, hertz)
                if not alone or not beside:
                    raise Skip("the load reported no steps")
                ratios.append(middle(beside) / middle(alone))
            yield Figures(f"step time beside gputop over alone, {hertz} Hz", "", tuple(ratios))
            if hertz == 1:
                yield within("step time ratio at 1 Hz", middle(ratios), 0, 1.01, "", "the budget")


def _steps(load, seconds: float) -> list[float]:
    load.steps()
    time.sleep(seconds)
    return [took_s for said in load.steps() for took_s in said["took_s"]]


def _steps_beside(check: Check, load, hertz: int) -> list[float]:
    beside = subprocess.Popen([sys.executable, "-c", LIVE, f"{1 / hertz:g}"])
    time.sleep(SETTLE_S)
    taken = _steps(load, check.seconds / 3)
    if beside.poll() is not None:
        raise RuntimeError(f"gputop's live source ended with {beside.returncode}")
    beside.terminate()
    beside.wait()
    return taken
