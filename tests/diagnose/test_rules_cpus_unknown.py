"""A recording by hand that does not say how many CPUs the machine has: rules that need it abstain, nothing says 0."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gputop.diagnose.engine import Verdict
from gputop.export.text import render
from gputop.history import History
from gputop.model import Frame, Host
from gputop.ui.panes.header import Status, header
from gputop.ui.panes.host import host
from gputop.ui.theme import PLAIN, Look
from tests.diagnose.test_experiments import seen
from tests.diagnose.test_rules_cpu import HUNGRY, experiments
from tests.diagnose.test_rules_cpu_place import FULL, NEAR, NODES, WAITS, shared
from tests.rule_cases import Machine, after, silent
from tests.servers import frame

Made = Callable[[float], Frame]


def unknown(made: Made) -> Made:
    """The same without the number of CPUs."""

    def without(t: float) -> Frame:
        one = made(t)
        return replace(one, host=replace(one.host, cpus_total=None))

    return without


def rules(said: Verdict) -> set[str]:
    """Those that found something, or are the cause of it."""
    return {rule for finding in said.findings for rule in (finding.rule, *finding.causes)}


def loading(count: int) -> Made:
    """Two jobs with so many busy loaders each."""
    machine = Machine(loader={"cpu_percent": 60.0}, loaders=count)

    def made(t: float) -> Frame:
        one = machine.frame(t)
        other = tuple(
            replace(process, pid=process.pid + 1000, parent_pid=process.parent_pid and 1100, job="k")
            for process in one.processes
        )
        job = replace(one.jobs[0], key="k", name="k", ranks=(other[0].identity,))
        return replace(one, processes=(*one.processes, *other), jobs=(*one.jobs, job))

    return made


ON_ONE: dict[str, Any] = {"affinity": "0", "last_cpu": 0, "allowed_cpus": 1.0}
# all CPUs are busy, most with this trainer, which may use more of them than it does
LARGEST = Machine(gpu=HUNGRY, trainer={"cpu_percent": 20.0, "allowed_cpus": 64.0}, host={"cpu_percent": 97.0})
CASES: dict[str, Made] = {
    "neighbour": shared(WAITS, FULL, {"cpu_percent": 1200.0}, {}),
    "numa-misplacement": Machine(gpu=NEAR, trainer={"last_cpu": 3}, host=NODES).frame,
    "cpu-quota": Machine(
        gpu=HUNGRY, trainer=ON_ONE | {"cpu_percent": 30.0}, loader=ON_ONE | {"cpu_percent": 17.0}, loaders=4
    ).frame,
    "threads-host": experiments(affinity=None),
    "workers-oversized": loading(14),
    "starved-cpu-saturated": replace(LARGEST, loader={"cpu_percent": 80.0}, loaders=13).frame,
}


@pytest.mark.parametrize("rule", CASES)
def test_a_rule_that_needs_the_number_of_cpus_abstains_without_it(rule: str) -> None:
    assert rule in rules(after(CASES[rule]))
    said = after(unknown(CASES[rule]))
    assert rule not in rules(said)
    one = silent(said, rule)
    assert one is not None
    assert [missing.metric for missing in one.missing] == ["cpus_total"]
    assert "cpus_total" in (one.unlock or "")


def test_loaders_of_one_job_are_not_too_many_for_cpus_that_nobody_counted() -> None:
    machine = Machine(trainer={"allowed_cpus": 4.0}, loader={"cpu_percent": 40.0}, loaders=5)
    assert "workers-oversized" in rules(after(machine.frame))
    assert "workers-oversized" not in rules(after(unknown(machine.frame)))


def test_what_is_advised_names_no_cpus_that_are_not_known() -> None:
    made = shared({}, {"io_pressure": FULL["cpu_pressure"]}, {}, {})
    verdicts = [after(unknown(one)) for one in (*CASES.values(), made)]
    texts = [
        text
        for said in verdicts
        for finding in said.findings
        for text in (finding.headline, *(item.text for item in finding.evidence), *(s.command for s in finding.steps))
    ]
    assert not [text for text in texts if text and (" 0 CPU" in text or "0--1" in text or "-c 0-0" in text)]


def test_experiments_on_cpus_that_are_not_known_are_not_crowded_and_get_no_settings() -> None:
    pools = experiments(affinity=None)
    known, told = (seen([made(float(t)) for t in range(40)]) for made in (pools, unknown(pools)))
    assert known.crowded
    assert (told.cpus, told.crowded, [one.fit for one in told.experiments]) == (None, False, [None, None])


def test_on_the_screen_and_in_print_it_is_unknown() -> None:
    now = replace(frame(), host=Host(load=(12.0, 11.0, 10.0), cpus_allowed=8.0))
    assert "load 12/·" in header(now, 200, Look(PLAIN), Status()).text
    assert "8 of · cores" in " ".join(strip.text for strip in host(now, History(), 120, 40, Look(PLAIN)))
    assert "cpu ·% of ·" in render(now, 120)
