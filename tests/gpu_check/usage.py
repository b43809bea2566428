"""Item 7: what the driver says of single processes, and how late."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field

from tests.gpu_check.check import Check
from tests.gpu_check.driver import OK
from tests.gpu_check.records import Fact, Figures, Record, Verdict, measurement, within
from tests.gpu_check.watch import mean

ASK_S = 0.5


@dataclass
class Followed:
    """What nvmlDeviceGetProcessUtilization said for a while."""

    by_pid: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    ages: list[float] = field(default_factory=list)
    spacing: list[float] = field(default_factory=list)
    old: int = 0
    most: float = 0.0
    silent: set[str] = field(default_factory=set)
    stamps: dict[int, int] = field(default_factory=dict)  # the newest of each pid


def _follow(check: Check, label: str, seconds: float) -> Followed:
    check.driver.label = f"processes {label}"
    seen, last_us = Followed(), int((time.time() - 1) * 1e6)
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        time.sleep(min(ASK_S, seconds / 4))
        answer = check.driver.on(check.gpu, "nvmlDeviceGetProcessUtilization", last_us)
        if answer.code != OK:
            seen.silent.add(check.driver.error(answer.code))
            continue
        for one in answer.value:
            seen.old += one.timeStamp <= last_us
            seen.most = max(seen.most, one.smUtil)
            if one.timeStamp > last_us:
                seen.by_pid[one.pid].append(float(one.smUtil))
                if one.pid in seen.stamps:
                    seen.spacing.append((one.timeStamp - seen.stamps[one.pid]) / 1e6)
                seen.stamps[one.pid] = one.timeStamp
                seen.ages.append(time.time() - one.timeStamp / 1e6)
        last_us = max([last_us, *(one.timeStamp for one in answer.value)])
    check.driver.label = ""
    return seen


@measurement("7", "How far back does the utilisation of single processes look, how late is it, does it sum to U?")
def processes(check: Check) -> Iterator[Record]:
    """As it is; then one process of ours, two, and one again."""
    as_is = _follow(check, "as it is", check.seconds / 2)
    yield from _describe(check, "as it is", as_is)
    with ExitStack() as stack:
        first, second = (stack.enter_context(check.load()) for _ in range(2))
        first.run("bf16")
        yield from _describe(check, "one process", _follow(check, "one process", check.seconds))
        second.run("bf16")
        both = _follow(check, "two processes", check.seconds)
        yield from _describe(check, "two processes", both)
        yield from _sum(check, both, {first.pid, second.pid})
        second.run("rest")
        yield from _lag(check, second.pid)


def _describe(check: Check, name: str, seen: Followed) -> Iterator[Record]:
    if seen.silent:
        yield Verdict(
            seen.silent <= {"NOT_FOUND"}, f"{name}: no work is said as {', '.join(seen.silent)}; assumed NOT_FOUND"
        )
    yield Figures(f"{name}: age of records", "s", tuple(seen.ages))
    yield Figures(f"{name}: spacing of one pid's records", "s", tuple(seen.spacing))
    listed = check.listed()
    unknown = [pid for pid in seen.by_pid if pid not in listed]
    yield Verdict(not unknown, f"{name}: {len(unknown)} pids that no process list has; assumed none")
    yield Verdict(seen.old == 0, f"{name}: {seen.old} records not newer than asked for; assumed none")
    yield Verdict(seen.most <= 100, f"{name}: largest smUtil {seen.most:g}; assumed at most 100")


def _sum(check: Check, seen: Followed, ours: set[int]) -> Iterator[Record]:
    found = ours & seen.by_pid.keys()
    shares = [mean(seen.by_pid[pid]) or 0.0 for pid in found]
    yield Verdict(found == ours, f"{len(found)} of our 2 processes are listed, by the pid they have here")
    busy = mean(check.watch("two processes", check.seconds / 2).busy)
    yield Fact(f"means of smUtil {', '.join(f'{share:.1f}' for share in shares)}; U {busy}")
    if busy:
        yield within("sum of smUtil over U", sum(shares) / busy, 0.8, 1.2, "", "shares of one whole")


def _lag(check: Check, pid: int) -> Iterator[Record]:
    """How long a process that stopped is still said to work."""
    start_s, last_us, gone_s = time.time(), int(time.time() * 1e6), 0.0
    while time.time() < start_s + max(3.0, check.seconds / 2):
        time.sleep(0.2)
        answer = check.driver.on(check.gpu, "nvmlDeviceGetProcessUtilization", last_us)
        for one in answer.value or ():
            last_us = max(last_us, one.timeStamp)
            if one.pid == pid and one.smUtil:
                gone_s = time.time() - start_s
    yield within("a process that stopped still shows work after", gone_s, 0, 2.0, "s", "one cadence of gputop")
