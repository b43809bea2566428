"""Phases of less GPU work that come back are an evaluation: said once, and no reason to warn of what they do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from gputop.diagnose.engine import Verdict
from gputop.diagnose.rules.efficiency.evaluation import Dips
from gputop.model import Frame, Process
from tests.rule_cases import LOADER, Machine, found, judged

TRAINS_S, EVALUATES_S = 160.0, 40.0
PERIOD_S = TRAINS_S + EVALUATES_S
KNOWN_S = 3 * PERIOD_S  # three of them are over


def evaluates(t: float, length_s: float = EVALUATES_S) -> bool:
    return t % PERIOD_S >= PERIOD_S - length_s


def run(
    percent: float = 30.0, phases: Callable[[float], bool] = evaluates, usual: float = 95.0, **then: dict[str, Any]
) -> Machine:
    """A trainer with four loaders; `then` are dials of a phase, by what they are of."""

    def dial(kind: str, name: str, value: Any, base: dict[str, Any]) -> Callable[[float], Any]:
        return lambda t: value if phases(t) else base.get(name)

    def dials(kind: str, base: dict[str, Any]) -> dict[str, Any]:
        return {name: dial(kind, name, value, base) for name, value in then.get(kind, {}).items()}

    def busy(t: float) -> float:
        return min(100.0, (percent if phases(t) else usual) + Random(int(t)).uniform(-5, 5))

    cpu = {"cpu_percent": 40.0, "main_thread_percent": 40.0}
    loader = cpu | dials("loader", cpu | {"blocked_percent": 0.0, "run_wait_percent": 1.0})
    trainer = dials("trainer", {"write_bytes_per_s": 0.0, "write_chars_per_s": 900.0})
    return Machine(gpu={"busy_percent": busy}, loader=loader, trainer=trainer, loaders=4)


def seen(frame: Callable[[float], Frame], seconds: float) -> list[tuple[float, Verdict]]:
    return [(one.mono_s - 1000, said) for one, said in judged(frame(float(t)) for t in range(round(seconds)))]


FULL = {"loader": {"cpu_percent": 97.0, "main_thread_percent": 97.0}}
MAIN = {"loader": {"cpu_percent": 3.0, "main_thread_percent": 3.0}}


@pytest.mark.parametrize("doing", [FULL, MAIN], ids=["loaders", "main"])
@pytest.mark.parametrize("percent", [20.0, 40.0, 65.0])
def test_it_is_told_once_and_nothing_else_is_said_of_it(doing: dict[str, Any], percent: float) -> None:
    said = seen(run(percent, **doing).frame, 5 * PERIOD_S)
    assert not any(found(one, "evaluation-phase") for t, one in said if t < KNOWN_S)
    for t, one in said:
        if t >= KNOWN_S + 40:
            told = found(one, "evaluation-phase")
            assert told is not None
            assert (told.severity, told.headline) == ("info", "periodic evaluation, 40 s every 3 min 20 s")
            assert [other.rule for other in one.findings if other.severity != "info"] == [], f"at {t:.0f} s"
    *_, (_, last) = said
    healthy, told = found(last, "gpu-bound-healthy"), found(last, "evaluation-phase")
    assert healthy is not None
    assert healthy.primary
    assert healthy.evidence[0].text == "measured during training; checks are paused during evaluation"
    assert told is not None
    assert told.evidence[0].text == f"GPU busy {told.evidence[0].value:.0f} % in these phases (training 95 %)"
    assert told.evidence[0].value == pytest.approx(percent, abs=3)


def team(t: float, frame: Frame, count: int) -> Frame:
    """The same with loaders of the validation, new ones each time, while it lasts; those of the training rest."""
    if not evaluates(t):
        return frame
    first = 1000 + 10 * int(t // PERIOD_S)
    dials = LOADER | {"age_s": 10.0, "parent_pid": 100, "started_ticks": int(t // PERIOD_S) + 2, "cpu_percent": 97.0}
    return replace(frame, processes=(*frame.processes, *(Process(**dials | {"pid": first + n}) for n in range(count))))


@pytest.mark.parametrize("count", [1, 4])
def test_loaders_of_the_validation_make_it_surer(count: int) -> None:
    machine = run(**MAIN)
    *_, (_, last) = seen(lambda t: team(t, machine.frame(t), count), KNOWN_S + 50)
    told = found(last, "evaluation-phase")
    assert told is not None
    assert told.confidence == 0.8
    assert told.evidence[-1].text == "other DataLoader workers run during these phases"


@pytest.mark.parametrize(
    ("percent", "then"),
    [
        (30.0, {"trainer": {"write_bytes_per_s": 2e8, "write_chars_per_s": 2e8}}),  # it saves
        (30.0, {"loader": {"blocked_percent": 40.0}}),  # it waits for storage
        (30.0, {"loader": {"run_wait_percent": 50.0}}),  # somebody takes its CPUs every few minutes
        (85.0, {}),
    ],
)
def test_what_looks_alike_is_none(percent: float, then: dict[str, Any]) -> None:
    assert not any(found(said, "evaluation-phase") for _, said in seen(run(percent, **then).frame, 5 * PERIOD_S))


@pytest.mark.parametrize(
    "phases",
    [
        lambda t: any(start <= t < start + 40 for start in (100, 180, 420, 500, 760)),  # at no even distances
        lambda t: t % PERIOD_S >= 80,  # that is how it trains
        lambda t: t % 45 >= 30,  # the same
        lambda t: 300 <= t < 340,
    ],
)
def test_dips_that_are_no_evaluation(phases: Callable[[float], bool]) -> None:
    assert not any(found(said, "evaluation-phase") for _, said in seen(run(phases=phases, **FULL).frame, 900))


def test_one_that_does_not_end_is_told_as_what_it_is() -> None:
    machine = run(phases=lambda t: evaluates(t) or t >= KNOWN_S + PERIOD_S - EVALUATES_S, **FULL)
    said = seen(machine.frame, KNOWN_S + PERIOD_S + 120)
    starved = [t for t, one in said if t > KNOWN_S + 60 and found(one, "starved-cpu-idle")]
    assert starved
    assert KNOWN_S + PERIOD_S + 0.5 * EVALUATES_S <= starved[0] <= KNOWN_S + PERIOD_S + 75


def test_it_is_over_when_it_comes_no_more() -> None:
    said = seen(run(phases=lambda t: evaluates(t) and t < KNOWN_S + 10, **FULL).frame, KNOWN_S + 3 * PERIOD_S)
    assert found(said[round(KNOWN_S + 60)][1], "evaluation-phase")
    assert not found(said[-1][1], "evaluation-phase")


def test_training_that_starves_between_its_evaluations_is_told_all_the_time() -> None:
    machine = run(20.0, usual=60.0, **FULL)
    machine.loader = {"cpu_percent": 97.0, "main_thread_percent": 97.0}
    shown = [found(one, "starved-cpu-idle") is not None for t, one in seen(machine.frame, 5 * PERIOD_S) if t > KNOWN_S]
    assert all(shown)


@pytest.mark.parametrize(("start", "length"), [(100, 10), (130, 40), (101, 200)])
def test_a_dip_is_as_long_and_as_deep_as_it_is(start: int, length: int) -> None:
    dips = Dips(10.0)
    ended = [dips.follow(float(t), [20.0 if start <= t < start + length else 95.0]) for t in range(400)]
    (one,) = [dip for dip in ended if dip is not None]
    assert (one.start_s, one.end_s, one.busy) == (start, start + length, 20.0)
    assert one.usual == pytest.approx(95)


@pytest.mark.parametrize("pause_s", [2, 5, 9])
def test_a_pause_is_no_dip(pause_s: int) -> None:
    dips = Dips(10.0)
    values = [0.0 if t % 60 < pause_s else 95.0 for t in range(600)]
    assert dips.follow(0.0, values) is None
    assert not dips.known


def test_seconds_that_nobody_looked_at_do_not_end_what_is_known() -> None:
    """A look that comes late now and then: a phase of 40 s is one all the same."""
    chance, dips = Random(5), Dips(least_s=10.0)
    busy = [None if chance.random() < 0.2 else 30.0 if evaluates(float(t)) else 95.0 for t in range(420)]
    ended = dips.follow(0.0, busy)
    assert ended is not None
    assert [one.start_s for one in dips.known] == pytest.approx([160, 360], abs=2)
    assert ended.busy == pytest.approx(30, abs=3)


def test_a_gap_in_which_anything_may_have_been_is_not_bridged() -> None:
    dips = Dips(least_s=10.0)
    dips.follow(0.0, [95.0] * 60 + [None] * 30 + [20.0] * 3 + [None] * 30 + [95.0] * 60)
    assert not dips.known


@pytest.mark.parametrize(("seconds", "severity"), [(30, "info"), (50, "warn")])
def test_phases_in_which_its_gpu_hardly_works_are_told_too(seconds: int, severity: str) -> None:
    """A validation on the CPU, or a sampler that is drawn anew: no other rule names it, and it is lost time."""
    machine = run(5.0, phases=lambda t: evaluates(t, seconds), **MAIN)
    *_, (_, last) = seen(machine.frame, 5 * PERIOD_S)
    told = found(last, "evaluation-phase")
    assert told is not None
    assert told.severity == severity  # from a fifth of the time on it is worth a warning
    assert told.headline == f"periodic GPU idle phases, {seconds} s every 3 min 20 s"
    assert {one.rule for one in last.findings if one.severity != "info"} <= {"evaluation-phase"}


def test_pauses_that_another_rule_explains_are_its_own() -> None:
    """Saves, in which the GPU does nothing and much is written."""
    machine = run(0.0, trainer={"write_bytes_per_s": 2e8, "write_chars_per_s": 2e8}, **MAIN)
    *_, (_, last) = seen(machine.frame, 5 * PERIOD_S)
    assert found(last, "evaluation-phase") is None
