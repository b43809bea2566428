"""What pauses that come back mean for other rules: no healthy run, and no input that is too slow."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gputop.diagnose.engine import Verdict
from tests.rule_cases import Machine, found, judged, sampled

CALM = {"main_thread_percent": 30.0, "cpu_percent": 30.0}


def stops(every_s: float, for_s: float, first_s: float = 0.0) -> Callable[[float], float]:
    return lambda t: 0.0 if t >= first_s and (t - first_s) % every_s < for_s else 97.0


def healthy(said: Verdict) -> bool:
    return any(one.healthy for one in said.findings)


def looks(machine: Machine, seconds: int, each_s: int = 2) -> list[tuple[float, Verdict]]:
    return [(frame.wall_s, said) for frame, said in judged(machine.frame(float(t)) for t in range(0, seconds, each_s))]


@pytest.mark.parametrize("each_s", [1, 2])
@pytest.mark.parametrize(("every_s", "for_s"), [(300.0, 42.0), (100.0, 14.0), (57.0, 8.0), (14.0, 2.0), (4.0, 0.6)])
def test_a_run_that_loses_a_seventh_of_its_time_to_pauses_is_never_healthy(
    every_s: float, for_s: float, each_s: int
) -> None:
    machine = Machine(gpu=sampled(stops(every_s, for_s, 60.0), each_s), trainer=CALM)
    seen = looks(machine, round(60 + 3.9 * max(every_s, 70)), each_s)
    settled_s = 60 + max(45.0, 1.2 * every_s) + 60  # they are known to come back, and what was said before has left
    assert not [at_s for at_s, said in seen if at_s > settled_s and healthy(said)]


@pytest.mark.parametrize("dials", [sampled, lambda busy: {"busy_percent": busy}], ids=["samples", "seconds"])
@pytest.mark.parametrize("for_s", [2.0, 8.0, 24.0])
def test_one_pause_leaves_a_run_healthy(
    for_s: float, dials: Callable[[Callable[[float], float]], dict[str, object]]
) -> None:
    """The end of an epoch, or one checkpoint: a long one takes the verdict back while it lasts, and for its on-window.

    A short one does not even that.
    """
    seen = looks(Machine(gpu=dials(stops(1e6, for_s, 200.0))), 420, 1)
    off = [at_s for at_s, said in seen if at_s > 150 and not healthy(said)]
    assert not off or for_s > 5
    assert all(200 <= at_s <= 200 + for_s + 40 for at_s in off)
    assert not [one for _, said in seen for one in said.findings if one.severity != "info"]


def test_a_healthy_run_tells_what_its_pauses_cost() -> None:
    said = Machine(gpu=sampled(stops(120.0, 3.0, 60.0))).verdict(500, 1)
    finding = found(said, "gpu-bound-healthy")
    assert finding is not None
    assert finding.evidence[-1].text == "4 pauses, 2.1 % of GPU time lost in 7 min 15 s"


def test_a_gpu_that_never_works_again_is_not_healthy_for_long() -> None:
    machine = Machine(gpu=sampled(lambda t: 97.0 if t < 200 else 0.0))
    assert not healthy(looks(machine, 270)[-1][1])


@pytest.mark.parametrize("lasts", [7, 12, 16])
def test_who_writes_a_checkpoint_or_starts_workers_waits_for_no_input(lasts: int) -> None:
    def saves(t: float) -> bool:
        return t >= 60 and (t - 60) % 40 < lasts

    machine = Machine(
        gpu={"busy_percent": lambda t: 0.0 if saves(t) else 97.0},
        trainer=CALM | {"write_chars_per_s": lambda t: 2e8 if saves(t) else 900.0},
    )
    seen = looks(machine, 400, 1)
    told = {one.rule for at_s, said in seen for one in said.findings if one.severity != "info" and at_s > 150}
    assert told == {"checkpoint-stall"}


@pytest.mark.parametrize("step_s", [0.6, 1.2, 2.0])
def test_gaps_between_the_steps_of_a_phase_that_is_over_keep_no_run_from_being_healthy(step_s: float) -> None:
    """Two minutes of starving with gaps of half a second and more; a quarter of an hour later nobody asks for them."""

    def busy(t: float) -> float:
        return (97.0 if t % step_s < step_s / 2 else 1.0) if 150 <= t < 270 else 97.0

    machine = Machine(gpu=sampled(busy))
    late = [said for frame, said in judged(machine.frame(float(t)) for t in range(480)) if frame.mono_s >= 1000 + 430]
    assert all(healthy(said) for said in late)
