"""Item 1: the driver's own buffer of samples."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

from tests.gpu_check.check import Check
from tests.gpu_check.driver import OK
from tests.gpu_check.records import Fact, Figures, Record, Verdict, measurement, middle, within

KINDS = {1: "busy", 2: "memory busy", 0: "power", 5: "SM clock", 6: "memory clock"}
BUSY, UNSIGNED = 1, 1
ASK_S = 0.5


class Sample(NamedTuple):
    """One sample: the driver's time stamp, its value as an unsigned number."""

    stamp_us: int
    value: int


@measurement("1", "How deep is the driver's sample buffer, how far apart are its samples, how is `nothing new` said?")
def buffers(check: Check) -> Iterator[Record]:
    """Each kind of sample: the whole buffer, then what is new, asked twice a second."""
    for kind, name in KINDS.items():
        check.driver.label = f"samples {name}"
        code, samples, value_type = _ask(check, kind, 0)
        if code != OK:
            word = check.driver.error(code)
            if kind == BUSY:
                yield Verdict(False, f"no busy samples ({word}): gputop falls back to nvmlDeviceGetUtilizationRates")
            else:
                yield Fact(f"{name}: {word}; gputop does not read this kind")
            continue
        yield from _whole(name, samples, value_type, judged=kind == BUSY)
        yield from _following(check, kind, name, samples[-1].stamp_us)
    check.driver.label = ""


def _ask(check: Check, kind: int, after_us: int) -> tuple[int, list[Sample], int | None]:
    answer = check.driver.on(check.gpu, "nvmlDeviceGetSamples", kind, after_us)
    if answer.code != OK:
        return answer.code, [], None
    value_type, found = answer.value
    return OK, [Sample(one.timeStamp, one.sampleValue.uiVal) for one in found], value_type


def _whole(name: str, samples: list[Sample], value_type: Any, *, judged: bool) -> Iterator[Record]:
    stamps = [sample.stamp_us for sample in samples]
    spacing = [(after - before) / 1e6 for before, after in pairwise(sorted(stamps))]
    span_s, age_s = (max(stamps) - min(stamps)) / 1e6, time.time() - max(stamps) / 1e6
    yield Fact(f"{name}: {len(samples)} samples over {span_s:.2f} s, the newest {age_s:.3f} s old by the host's clock")
    yield Figures(f"{name}: spacing", "s", tuple(spacing))
    yield Figures(f"{name}: values", "", tuple(float(sample.value) for sample in samples))
    if not judged:
        return
    yield within("sample spacing", middle(spacing) if spacing else None, 0.15, 0.21, "s", "W is 1/6 to 1/5 s")
    yield within("the buffer spans", span_s, 10, 60, "s", "gputop shows the last 16 s")
    yield within("age of the newest sample", age_s, -0.1, 1.2, "s", "stamps are the host's wall clock")
    yield Verdict(value_type == UNSIGNED, f"values are of type {value_type}; gputop reads an unsigned int, type 1")
    yield Verdict(stamps == sorted(set(stamps)), "time stamps in the buffer rise, none twice")
    worst = max((sample.value for sample in samples), default=0)
    yield Verdict(worst <= 100, f"largest busy value {worst}; at most 100")


def _following(check: Check, kind: int, name: str, newest_us: int) -> Iterator[Record]:
    """What gputop does: ask again with the newest time stamp it has."""
    step_s, end_s = min(ASK_S, check.seconds / 4), time.monotonic() + check.seconds / (1 if kind == BUSY else 4)
    fresh: list[int] = []
    gaps: list[float] = []
    silent: set[str] = set()
    old = 0
    while time.monotonic() < end_s:
        time.sleep(step_s)
        code, samples, _ = _ask(check, kind, newest_us)
        if code != OK:
            silent.add(check.driver.error(code))
            continue
        new = sorted(sample.stamp_us for sample in samples if sample.stamp_us > newest_us)
        old += len(samples) - len(new)
        gaps += [(after - before) / 1e6 for before, after in pairwise([newest_us, *new])]
        fresh.append(len(new))
        newest_us = max([newest_us, *new])
    at_once = check.driver.error(_ask(check, kind, newest_us)[0])
    silent |= {at_once} - {"OK"}
    yield Fact(f"{name}: asked every {step_s:.2g} s: {sum(fresh)} new in {len(fresh)} answers, {old} seen before")
    if gaps:
        yield Figures(f"{name}: spacing of new samples", "s", tuple(gaps))
    if kind == BUSY:
        said = ", ".join(sorted(silent)) or "an empty answer"
        yield Verdict(silent <= {"NOT_FOUND"}, f"nothing new is said as {said}; assumed NOT_FOUND")
        yield Verdict(old == 0, f"{old} samples came again although a time stamp was given; assumed none")
