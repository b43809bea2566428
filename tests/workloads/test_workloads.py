"""Real training runs with a planted fault, and their healthy twins: gputop measures what the rules go by.

All play at the same time, watched by one `gputop record` and one `gputop diagnose`; `python -m tests.workloads` plays
every case by itself.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

import pytest

from gputop import thresholds
from gputop.finding_text import LEAST_S
from tests.fakenvml import NoCompiler
from tests.score.marks import Said
from tests.score.real import alone
from tests.score.tools import gputop
from tests.workloads import command
from tests.workloads.cases import CASES, Bounds
from tests.workloads.command import Diagnosed, Watch, configured
from tests.workloads.confine import NotCovered
from tests.workloads.signals import Signals, outside, shown, signals
from tests.workloads.stage import Play, perform

pytestmark = pytest.mark.alone

# those that leave the CPUs to the others
NAMES = ("slow samples hold up the rest", "low SM activity", "workers start anew each epoch")
SECONDS = 24.0  # what the rules go by is known after half of their 30 s
# as a site may set them: they are watched for seconds only
SOON = {
    "engine": {"warm_s": 5, "judged_s": 15},
    "job-states": {"on_s": 4},
    "head-of-line": {"window_s": 10, "on_s": 4},
    "busy-not-effective": {"window_s": 10, "on_s": 4},
    "worker-respawn": {"on_s": 4},
}
LEAST_APART = 0.1  # of the duty of a run and of its healthy twin beside it


@dataclass(frozen=True)
class Seen:
    """What shows of a play, and what the rules said of it, second by second."""

    signals: dict[str, float | None]
    said: list[Said]
    told: Diagnosed  # of it, by the command at its end


@dataclass(frozen=True)
class Evening:
    """All of them at once: each case, faulty and healthy, and what the command said of the machine."""

    seen: dict[tuple[str, bool], Seen]
    told: Diagnosed


@pytest.fixture(scope="module")
def evening(tmp_path_factory: pytest.TempPathFactory) -> Evening:
    """What rules and command are asked about."""
    plays = [Play(case, healthy) for case in CASES if case.name in NAMES for healthy in (False, True)]
    try:
        watch = Watch(SECONDS, configured(tmp_path_factory.mktemp("site"), SOON))
        played = perform(*plays, seconds=SECONDS, watch=watch)
    except (NoCompiler, NotCovered) as why:
        pytest.skip(f"not covered: {why}")
    for one in played:
        for root in one.roots:
            assert not Path(f"/proc/{root}").exists(), "it is still there"
    limits, unused = thresholds.merged(SOON)
    assert not unused
    seen = {
        (play.case.name, play.healthy): Seen(
            shown(signals(one)), list(gputop(alone(one, played), lambda: limits)), watch.said.about(one.gpus)
        )
        for play, one in zip(plays, played, strict=True)
    }
    return Evening(seen, watch.said)


@pytest.fixture
def seen(evening: Evening) -> dict[tuple[str, bool], Seen]:
    """Each case, faulty and healthy."""
    return evening.seen


@pytest.mark.parametrize("name", NAMES)
def test_a_planted_fault_shows_and_its_twin_does_not(seen: dict[tuple[str, bool], Seen], name: str) -> None:
    (case,) = [case for case in CASES if case.name == name]
    faulty, healthy = seen[name, False].signals, seen[name, True].signals
    assert outside(faulty, _but_duty(case.shows)) == []
    assert outside(healthy, _but_duty(case.twin)) == []
    if "duty" in case.twin and "duty" in case.shows and case.shows["duty"] != case.twin["duty"]:
        assert faulty["duty"] is not None
        assert outside(healthy, {"duty": (faulty["duty"] + LEAST_APART, 1)}) == []


@pytest.mark.parametrize("name", NAMES)
def test_the_verdict_names_the_planted_fault_and_is_silent_on_its_twin(
    seen: dict[tuple[str, bool], Seen], name: str
) -> None:
    (case,) = [case for case in CASES if case.name == name]
    *_, last = seen[name, False].said
    assert case.plants in last.primary
    assert not {rule for one in seen[name, False].said for rule in one.named & set(case.must_not)}
    assert {rule for one in seen[name, True].said for rule in one.alarms} == set()


@pytest.mark.parametrize("name", NAMES)
def test_the_command_names_the_planted_fault_and_is_silent_on_its_twin(
    seen: dict[tuple[str, bool], Seen], name: str
) -> None:
    (case,) = [case for case in CASES if case.name == name]
    assert case.plants in seen[name, False].told.primary
    assert not seen[name, False].told.named & set(case.must_not)
    assert seen[name, True].told.alarms == set()


def test_the_command_ends_as_what_it_said_is_bad(evening: Evening) -> None:
    told = evening.told
    assert (told.code, told.due_code) in ((1, 1), (2, 2)), told.errors
    # where a slow machine leaves a job half judged the command goes on, and says so; nothing else is said there
    assert [line for line in told.errors.splitlines() if not line.startswith("gputop: continues for up to ")] == []


def _but_duty(bounds: Bounds) -> Bounds:
    """How busy a device is depends on what else wants the CPUs, five other runs here: only twins can be compared."""
    return {name: bound for name, bound in bounds.items() if name != "duty"}


def test_a_watch_begins_anew_where_the_programs_took_too_long_to_get_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, begun = [0.0], []

    class Silent:
        def __init__(self, environment: dict[str, str], *options: str) -> None:
            begun.append(now_s[0])

        def kill(self) -> None:
            pass

    monkeypatch.setattr(command, "Diagnosis", Silent)
    monkeypatch.setattr(command, "monotonic", lambda: now_s[0])
    watch = Watch(SECONDS, Path("/nowhere"))
    with watch.over({}):
        for now_s[0] in (LEAST_S - SECONDS, LEAST_S - SECONDS + 1):
            watch.ready()
    assert begun == [0, LEAST_S - SECONDS + 1]


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
