"""The page of experiments and the findings say the same numbers of loaders and of compute threads."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from gputop.demo import SCENARIOS, open_demo
from gputop.diagnose import Finding
from gputop.diagnose.experiments import Experiment, Together, together
from gputop.model import Frame
from gputop.monitor import Monitor
from tests.diagnose.test_experiments import seen
from tests.diagnose.test_rules_cpu import POOL, experiments
from tests.diagnose.test_rules_cpu_quota import confined
from tests.diagnose.test_rules_feed_full import sweep
from tests.rule_cases import Machine, after

_LOADERS = re.compile(r"num_workers=(\d+)")
_THREADS = re.compile(r"(?:set_num_threads\(|\bOMP_NUM_THREADS=)(\d+)")
_ASKS = {"libraries": ("torch",), "omp_threads": None}


def said(one: Experiment, findings: tuple[Finding, ...], number: re.Pattern[str]) -> set[int]:
    """What findings about an experiment, or about the whole machine, tell to set."""
    about = [found for found in findings if not found.subject.processes or {*found.subject.processes} & {*one.trainers}]
    commands = [step.command or "" for found in about for step in found.steps]
    return {int(value) for command in commands for value in number.findall(command)}


def told(page: Together, findings: tuple[Finding, ...]) -> Iterator[tuple[str, set[int], set[int]]]:
    """What each experiment is told: by the findings, and by the page where that says something."""
    for one in page.experiments:
        if one.fit is not None:
            loaders = set() if one.fit.loaders is None else {one.fit.loaders}
            yield f"loaders of {one.name}", said(one, findings, _LOADERS), loaders
            yield f"threads of {one.name}", said(one, findings, _THREADS), {one.fit.threads}
            yield f"start of {one.name}", {one.fit.threads}, {int(n) for n in _THREADS.findall(one.fit.prefix)}


def agrees(page: Together, findings: tuple[Finding, ...]) -> None:
    apart = [(what, rules, page) for what, rules, page in told(page, findings) if rules and page and rules != page]
    assert not apart


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_demo_says_one_number(name: str) -> None:
    monitor = Monitor(open_demo(name, pace=False))
    update = next(monitor.updates())
    page = together(update.frame, monitor.history, monitor.limits, update.contention)
    agrees(page, update.findings)
    fewer = any("Run fewer experiments at a time" in step.text for one in update.findings for step in one.steps)
    assert page.full is fewer


def resting() -> Callable[[float], Frame]:
    """Two that fight for the CPUs, and six notebooks that did once."""
    busy = experiments(8, {}, busy_threads=11)

    def frame(t: float) -> Frame:
        now = busy(t)
        gpus = (*now.gpus[:2], *(replace(gpu, busy_percent=0.0 if t > 20 else 40.0) for gpu in now.gpus[2:]))
        others = (replace(one, busy_threads=0, run_wait_percent=0.0, cpu_percent=0.0) for one in now.processes[2:])
        return replace(now, gpus=gpus, processes=(*now.processes[:2], *others))

    return frame


CONTAINER: dict[str, Any] = {"container": "exp", "cgroup": "/c", "affinity": "0-63", "allowed_cpus": 8.0}
TOLD: dict[str, tuple[Callable[[float], Frame], int | None, int]] = {  # loaders and threads, as the findings have them
    "a quota that runs out": (confined(2.4, 4, throttled_percent=63.0, affinity="0-15", **_ASKS), 3, 4),
    "that of two ranks": (confined(2.4, 0, 2, quota=8.0, throttled_percent=63.0, affinity="0-15", **_ASKS), None, 4),
    "one that stops much work": (confined(2.4, 4, throttled_percent=3.0, affinity="0-15", **_ASKS), 3, 4),
    "pools in one container": (experiments(4, {"cpus_total": 64}, **CONTAINER, **_ASKS), None, 2),
    "one pool": (Machine(trainer=POOL | _ASKS, gpu={"busy_percent": 30.0}).frame, None, 16),
    "pools beside notebooks": (resting(), None, 8),
    "loaders that share a quota": (sweep(1, 3, host=6.0, trainer=CONTAINER, **CONTAINER), 7, 8),
    "few idle CPUs": (sweep(1, 3, host=87.0), 5, 16),
}


@pytest.mark.parametrize("name", TOLD)
def test_the_page_says_what_the_findings_say(name: str) -> None:
    frame, loaders, threads = TOLD[name]
    findings, page = after(frame).findings, seen([frame(float(t)) for t in range(121)])
    agrees(page, findings)
    first = page.experiments[0]
    assert first.fit is not None
    assert (first.fit.loaders, first.fit.threads) == (loaders, threads)
    assert said(first, findings, _LOADERS) | said(first, findings, _THREADS), "there is something to agree with"


def test_who_rests_is_told_nothing() -> None:
    page = seen([resting()(float(t)) for t in range(80)])
    assert [one.fit is None for one in page.experiments] == [False] * 2 + [True] * 6
