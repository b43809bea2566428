"""Counting: what was said of a labelled run, second by second, against its truth."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from tests.score.truths import WELL

LOOKED_S = 30.0  # after the truth is due, the mark is what was said for most of these
SETTLE_S = 10.0  # after a fault ends, until what is said of it counts as late
MARKS = ("right", "secondary", "symptom", "wrong", "abstained", "silent")


class Said(NamedTuple):
    """What was said at one second."""

    t: float
    primary: frozenset[str] = frozenset()  # rules that lead, with the causes folded into them
    named: frozenset[str] = frozenset()  # all rules that say something
    alarms: frozenset[str] = frozenset()  # of those, what somebody would act on: warn and crit
    abstained: frozenset[str] = frozenset()
    symptoms: frozenset[str] = frozenset()  # alarms that name no cause


@dataclass(frozen=True, kw_only=True)
class Truth:
    """What is so, and which rule must say it; nothing need be said where `rule` is None."""

    rule: str | None
    well: bool = False  # nothing is wrong: every alarm is false
    beside: bool = False  # the rule never leads: it is right where it is told at all
    onset_s: float = 0.0
    due_s: float = 0.0  # when it must have been said
    ends_s: float | None = None  # when the fault is taken away, or over by itself
    never: tuple[str, ...] = ()
    mild: tuple[str, ...] = ()  # what may be told, but not as an alarm
    also: str | None = None  # what is true as well, and says less


@dataclass(frozen=True, kw_only=True)
class Result:
    """One run by one tool."""

    mark: str | None = None  # one of MARKS; None where nothing needed to be said
    well: bool = False  # what leads says that the GPU is well, though something was planted and is not told as due
    command: str | None = None  # what `gputop diagnose` said otherwise of the recording; None: it was not asked
    said: str = ""  # alarms and what leads, where the mark is not right; of a healthy run all alarms
    misled: tuple[str, ...] = ()  # what must not have been said
    false_alarms: int = 0
    healthy_s: float = 0.0
    detect_s: float | None = None
    clear_s: float | None = None
    flaps: int = 0
    predicted: float | None = None  # the largest speedup that its finding says
    busy: float | None = None  # its GPUs, percent: with the fault, of a healthy run at the same time
    busy_after: float | None = None  # and once the fault is taken away


def marked(seen: Sequence[Said], truth: Truth) -> Result:
    """The result of one run."""
    last_s = seen[-1].t if seen else 0.0
    calm = [one for one in seen if truth.well or one.t < truth.onset_s]
    never, mild = set(truth.never), set(truth.mild)
    misled = sorted({rule for one in seen for rule in one.named & never | one.alarms & mild})
    common = {
        "misled": tuple(misled),
        "false_alarms": sum(1 for name in _all(calm) for _ in _spans(calm, name)),
        "healthy_s": calm[-1].t - calm[0].t if calm else 0.0,
    }
    if truth.rule is None:
        return Result(said=", ".join(sorted(_all(calm))), **common)  # type: ignore[arg-type]
    ends_s = last_s + 1 if truth.ends_s is None else truth.ends_s
    faulty = [one for one in seen if truth.onset_s <= one.t < ends_s]
    due = [one for one in faulty if truth.due_s <= one.t < truth.due_s + LOOKED_S] or faulty[-1:]
    mark = Counter(_mark(one, truth.rule, truth) for one in due).most_common(1)[0][0] if due else "silent"
    spans = list(_spans(faulty, truth.rule, named=True))
    before = any(truth.rule in one.named for one in calm)  # it was always so: there was nothing to detect
    last_said = max((one.t for one in seen if truth.rule in one.named), default=None)
    cleared = truth.ends_s is not None and last_said is not None and truth.ends_s <= last_said < last_s - SETTLE_S
    return Result(
        mark=mark,
        well=mark != "right" and truth.rule != WELL and 2 * sum(WELL in one.primary for one in due) > len(due),
        said="" if mark == "right" or not due else ", ".join(sorted(due[-1].alarms | due[-1].primary)) or "nothing",
        detect_s=spans[0][0] - truth.onset_s if spans and not before else None,
        clear_s=last_said - truth.ends_s if cleared and last_said is not None and truth.ends_s is not None else None,
        flaps=max(0, len(spans) - 1),
        **common,  # type: ignore[arg-type]
    )


def _mark(one: Said, rule: str, truth: Truth) -> str:
    if rule in (one.named if truth.beside else one.primary):
        return "right"
    if rule in one.named:
        return "secondary"
    if one.alarms - one.symptoms - {truth.also}:
        return "wrong"
    if one.alarms:
        return "symptom"
    return "abstained" if rule in one.abstained else "silent"


def _all(seen: Iterable[Said]) -> set[str]:
    return {rule for one in seen for rule in one.alarms}


def _spans(seen: Sequence[Said], rule: str, *, named: bool = False) -> Iterable[tuple[float, float]]:
    """From when to when it was said, each time."""
    here = [(one.t, rule in (one.named if named else one.alarms)) for one in seen]
    begins = [t for (_, before), (t, now) in pairwise([(0.0, False), *here]) if now and not before]
    ends = [t for (t, now), (_, after) in pairwise([*here, (0.0, False)]) if now and not after]
    return zip(begins, ends, strict=True)


@dataclass(frozen=True, kw_only=True)
class Total:
    """Many results, added up."""

    counts: Counter[str]
    misled: int
    healthy_min: float  # watched while nothing was wrong: before a fault, and of healthy runs
    alarms_per_hour: float | None
    detect_s: tuple[float, float] | None  # median, 95th of 100
    clear_s: tuple[float, float] | None
    flaps: int
    runs: int


def total(results: Sequence[Result]) -> Total:
    """All of one tool, or of one kind of disturbance."""
    hours = sum(one.healthy_s for one in results) / 3600
    marks = sum(one.mark is not None for one in results)
    return Total(
        counts=Counter(one.mark for one in results if one.mark),
        misled=sum(bool(one.misled) for one in results),
        healthy_min=60 * hours,
        alarms_per_hour=sum(one.false_alarms for one in results) / hours if hours else None,
        detect_s=_usual([one.detect_s for one in results if one.detect_s is not None]),
        clear_s=_usual([one.clear_s for one in results if one.clear_s is not None]),
        flaps=sum(one.flaps for one in results),
        runs=marks or len(results),
    )


def _usual(values: Sequence[float]) -> tuple[float, float] | None:
    return (median(values), sorted(values)[math.ceil(0.95 * len(values)) - 1]) if values else None
