"""Hosts with eight GPUs each as their exporters describe them, at any time: text to backfill, and scripted answers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

GPUS = 8
GIB = 1 << 30
STEP_S = 60.0
SLOW, HOT, JUDGING, IDLE, DEAD = 2, 4, 5, 6, 7  # hosts with something to say, by number; others are healthy
HEADLINE = "dataloader-bound, 2 workers are too few"
LOST, HEAT = 0.45, 0.2  # of the time of four GPUs of the slow host, and of one GPU of the hot one

Point = tuple[str, str, float | None]  # name, labels, value; None: no series at this time


class Labels(NamedTuple):
    """Labels as the text format writes them."""

    host: str
    more: str = ""

    def __str__(self) -> str:
        return f"{{{','.join(filter(None, (self.host, self.more)))}}}"


def name(number: int) -> str:
    """The name of a host."""
    return f"dgx-{number:03}"


def target(number: int) -> str:
    """The labels of its target."""
    return f'instance="{name(number)}:9400",job="gputop",cluster="{"ab"[number % 2]}"'


def points(number: int, at_s: float) -> Iterator[Point]:
    """All series of a host at a time."""
    host = target(number)
    yield "up", str(Labels(host)), 0.0 if number == DEAD else 1.0
    if number == DEAD:
        return
    for place, values in (("", {"gputop_gpus": float(GPUS), "gputop_frame_timestamp_seconds": at_s}),
                          ("", {"gputop_host_cpu_ratio": 0.25, "gputop_host_memory_used_bytes": 400.0 * GIB,
                                "gputop_host_memory_total_bytes": 2000.0 * GIB})):  # fmt: skip
        for metric, value in values.items():
            yield metric, str(Labels(host, place)), value
    yield "gputop_host_info", str(Labels(host, f'hostname="{name(number)}.cluster",kernel="6.1"')), 1.0
    for state, count in _jobs(number).items():
        yield "gputop_jobs", str(Labels(host, f'state="{state}"')), float(count)
    for index in range(GPUS):
        gpu = f'gpu="{index}",uuid="GPU-{number}-{index}"'
        for metric, value in _gpu(number, index, at_s).items():
            yield metric, str(Labels(host, gpu)), value
    yield from _findings(number, at_s)


def _jobs(number: int) -> dict[str, int]:
    state = {SLOW: "found", HOT: "found", JUDGING: "judging", IDLE: ""}.get(number, "healthy")
    return {each: int(each == state) for each in ("found", "judging", "unknown", "healthy")}


def busy(number: int, index: int, at_s: float) -> float:
    """GPU busy from 0 to 1: the slow host saw-tooths, an idle one does nothing, the rest work."""
    if number == IDLE:
        return 0.0
    if number == SLOW:
        return 0.3 + 0.4 * ((at_s / STEP_S + index) % 10) / 10
    return 0.9 + 0.05 * math.sin(at_s / 600 + number)


def _gpu(number: int, index: int, at_s: float) -> dict[str, float]:
    share = busy(number, index, at_s)
    return {
        "gputop_gpu_up": 1.0,
        "gputop_gpu_busy_ratio": round(share, 4),
        "gputop_gpu_power_watts": round(80 + 600 * share, 1),
        "gputop_gpu_vram_used_bytes": 0.0 if number == IDLE else 60.0 * GIB,
        "gputop_gpu_vram_total_bytes": 80.0 * GIB,
    }


def _findings(number: int, at_s: float) -> Iterator[Point]:
    host = target(number)
    if number == SLOW:
        about = (
            'rule="starved-cpu-idle",severity="warn",kind="job",subject="llama-7b",gpus="0-3",job_id="7.1",'
            'job_name="llama-7b"'
        )
        yield "gputop_finding", str(Labels(host, f'{about},primary="true"')), 2.0
        yield "gputop_finding_headline_info", str(Labels(host, f'{about},headline="{HEADLINE}"')), 1.0
        yield "gputop_finding_lost_ratio", str(Labels(host, about)), LOST
        yield "gputop_finding_age_seconds", str(Labels(host, about)), 720.0
        lost = 'rule="starved-cpu-idle",cause="starved-cpu-idle",job_id="7.1",job_name="llama-7b"'
        yield "gputop_lost_gpu_seconds_total", str(Labels(host, lost)), 4 * LOST * at_s
    if number == HOT:
        about = 'rule="thermal",severity="crit",kind="gpu",subject="GPU 6",gpus="6",job_id="",job_name=""'
        yield "gputop_finding", str(Labels(host, f'{about},primary="true"')), 3.0
        yield "gputop_finding_headline_info", str(Labels(host, f'{about},headline="hardware thermal slowdown"')), 1.0
        yield "gputop_finding_lost_ratio", str(Labels(host, about)), HEAT
        lost = 'rule="thermal",cause="thermal",job_id="",job_name=""'
        yield "gputop_lost_gpu_seconds_total", str(Labels(host, lost)), HEAT * at_s


def openmetrics(hosts: Sequence[int], start_s: float, end_s: float, died_s: float) -> Iterator[str]:
    """An hour or so of all hosts as `promtool tsdb create-blocks-from openmetrics` reads it, a line each.

    The dead one had GPUs and took samples until `died_s`.
    """
    by_name: dict[str, list[str]] = {}
    steps = int((end_s - start_s) / STEP_S) + 1
    for number in hosts:
        for step in range(steps):
            at_s = start_s + step * STEP_S
            for metric, labels, value in points(number, at_s):
                by_name.setdefault(metric, []).append(f"{metric}{labels} {value!r} {at_s:.0f}\n")
    if DEAD in hosts:
        for step in range(int((died_s - start_s) / STEP_S)):
            at_s = start_s + step * STEP_S
            for metric, value in (("gputop_gpus", float(GPUS)), ("gputop_frame_timestamp_seconds", at_s)):
                by_name[metric].append(f"{metric}{Labels(target(DEAD))} {value!r} {at_s:.0f}\n")
    for lines in by_name.values():
        yield from lines
    yield "# EOF\n"
