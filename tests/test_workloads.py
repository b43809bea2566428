"""Real training runs with a planted fault, and their healthy twins: gputop measures what the rules go by.

All play at the same time, watched by one `gputop record`; `python -m tests.workloads` plays every case by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path

import pytest

from tests.fakenvml import NoCompiler
from tests.workloads.cases import CASES, Bounds
from tests.workloads.confine import NotCovered
from tests.workloads.signals import Signals, outside, shown, signals
from tests.workloads.stage import Play, perform

pytestmark = pytest.mark.alone

# those that leave the CPUs to the others
NAMES = ("slow samples hold up the rest", "device memory grows", "workers start anew each epoch")
SECONDS = 14.0
LEAST_APART = 0.1  # of the duty of a run and of its healthy twin beside it
Seen = Mapping[tuple[str, bool], dict[str, float | None]]


@pytest.fixture(scope="module")
def seen() -> Seen:
    """The signals of each case, faulty and healthy."""
    plays = [Play(case, healthy) for case in CASES if case.name in NAMES for healthy in (False, True)]
    try:
        found = perform(*plays, seconds=SECONDS)
    except (NoCompiler, NotCovered) as why:
        pytest.skip(f"not covered: {why}")
    for one in found:
        for root in one.roots:
            assert not Path(f"/proc/{root}").exists(), "it is still there"
    return {(play.case.name, play.healthy): shown(signals(one)) for play, one in zip(plays, found, strict=True)}


@pytest.mark.parametrize("name", NAMES)
def test_a_planted_fault_shows_and_its_twin_does_not(seen: Seen, name: str) -> None:
    (case,) = [case for case in CASES if case.name == name]
    faulty, healthy = seen[name, False], seen[name, True]
    assert outside(faulty, _but_duty(case.shows)) == []
    assert outside(healthy, _but_duty(case.twin)) == []
    if "duty" in case.twin:
        assert faulty["duty"] is not None
        assert outside(healthy, {"duty": (faulty["duty"] + LEAST_APART, 1)}) == []


def _but_duty(bounds: Bounds) -> Bounds:
    """How busy a device is depends on what else wants the CPUs, five other runs here: only twins can be compared."""
    return {name: bound for name, bound in bounds.items() if name != "duty"}


def test_every_case_is_told_apart_from_its_twin_by_a_signal() -> None:
    known = {field.name for field in fields(Signals)}
    for case in CASES:
        assert set(case.shows) | set(case.twin) <= known
        apart = [
            name
            for name, (low, high) in case.shows.items()
            if name in case.twin and (high <= case.twin[name][0] or case.twin[name][1] <= low)
        ]
        assert apart, case.name
