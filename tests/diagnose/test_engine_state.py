"""What the engine remembers between looks, and that verdicts do not hang on how often somebody looks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from random import Random

import pytest

from gputop.demo import SCENARIOS, Demo
from gputop.demo.generator import Pulse
from gputop.diagnose.engine import Engine
from gputop.diagnose.engine_state import EngineState
from gputop.diagnose.gpu_tracker import GpuTracker
from gputop.diagnose.phases import TrainerPhases
from gputop.history import History
from gputop.model import Gpu
from tests.diagnose.test_rules_feed import few
from tests.rule_cases import LIMITS, Machine, found, judged


def test_the_rhythm_of_many_gpus_is_known_though_they_are_asked_about_less_often() -> None:
    demo, history, engine = Demo(SCENARIOS["16gpu"], pace=False, at_s=0.0), History(), Engine(lambda: LIMITS)
    for second in range(60):
        frame = demo.frame(float(second))
        history.add(frame)
        engine.remember(frame, history)
        engine.judge(frame, history)
    cards = engine._remembered.cards.values()
    assert len(cards) == len(engine._remembered.trees) == 16
    assert max(frame.mono_s - card.shaped_s for card in cards) <= 20


def test_a_card_that_began_something_else_is_described_before_those_whose_shape_is_only_old() -> None:
    remembered = EngineState(cards={name: GpuTracker() for name in "ABCDE"})
    gpu = Gpu(uuid="", index="0", name="H100", busy_percent=50.0)
    for second in range(30):
        for name, card in remembered.cards.items():
            card.add(replace(gpu, uuid=name), float(second))
        remembered.describe(float(second), 1.0)
    newest = max(remembered.cards.values(), key=lambda card: card.shaped_s)
    newest.restart()
    for second in range(30, 39):
        newest.add(gpu, float(second))
        remembered.describe(float(second), 1.0)
        assert newest.shape is None  # a handful of samples have none, and nobody else waits for it
    newest.add(gpu, 39.0)
    for card in remembered.cards.values():
        card.shaped_s = min(card.shaped_s, 30.0)
    remembered.describe(39.0, 1.0)
    assert newest.shape is not None


@pytest.mark.parametrize("interval_s", [1, 5, 20, 30, 60])
def test_what_holds_is_shown_however_rarely_somebody_looks_and_after_two_looks_at_least(interval_s: int) -> None:
    machine = few()
    shown = [
        (frame.mono_s - 1000, found(said, "starved-cpu-idle") is not None)
        for frame, said in judged(machine.frame(float(t)) for t in range(0, max(300, 12 * interval_s), interval_s))
    ]
    since_s = next(t for t, here in shown if here)
    assert interval_s <= since_s <= 150 + 4 * interval_s
    assert all(here for t, here in shown if t > since_s)


def follow(machine: Machine, times: Iterable[float], interval_s: float) -> tuple[TrainerPhases, int]:
    """What is known of its trainer after these looks, and how many phases began."""
    remembered, history, began = EngineState(), History(), 0
    for t in times:
        frame = machine.frame(t)
        history.add(frame, interval_s)
        remembered.add(frame, history)
        began += len(remembered.restarted)
        remembered.restarted.clear()
    (known,) = remembered.trainers.values()
    return known, began


@pytest.mark.parametrize("interval_s", [0.25, 1.0, 2.0, 5.0, 8.0, 10.0])
def test_a_phase_begins_once_however_often_somebody_looks(interval_s: float) -> None:
    machine = Machine(gpu={"busy_percent": lambda t: 97.0 if t < 300 else 10.0})
    known, began = follow(machine, (look * interval_s for look in range(round(600 / interval_s))), interval_s)
    assert began == 1
    assert known.phase_s - 1000 == pytest.approx(300, abs=max(8, 2 * interval_s))


def test_short_pauses_are_no_phase_to_who_looks_often() -> None:
    machine = Machine(gpu={"busy_percent": lambda t: 0.0 if t % 60 < 2 else 97.0})
    assert follow(machine, (look / 4 for look in range(2400)), 0.25)[1] == 0


@pytest.mark.parametrize("pause_s", [3, 4, 5])
@pytest.mark.parametrize("interval_s", [0.5, 1.0, 2.0])
def test_pauses_that_come_back_are_part_of_a_phase(pause_s: int, interval_s: float) -> None:
    machine = Machine(gpu={"busy_percent": lambda t: 1.0 if 20 <= t % 41 < 20 + pause_s else 97.0})
    assert follow(machine, (look * interval_s for look in range(round(600 / interval_s))), interval_s)[1] == 0


@pytest.mark.parametrize("period_s", [1, 3, 7, 10])
def test_slower_work_with_gaps_is_a_phase(period_s: int) -> None:
    machine = Machine(gpu={"busy_percent": lambda t: 97.0 if t < 300 or t % period_s < 0.4 * period_s else 0.0})
    known, began = follow(machine, (look / 2 for look in range(1200)), 0.5)
    assert began >= 1
    assert known.phase_s - 1000 >= 290


def test_the_rhythm_of_a_card_without_samples_is_known_though_frames_are_uneven() -> None:
    card = GpuTracker()
    for second in range(120):
        gpu = Gpu(uuid="G", index="0", name="H100", busy_percent=90.0 if second % 20 < 10 else 10.0)
        card.add(gpu, second + (0.3 if second % 3 else 0.0))
    assert card.due(120.0)
    card.describe(120.0)
    assert card.period is not None
    assert card.period.seconds == pytest.approx(20, rel=0.1)


SAMPLE_S = 1 / 6


def sampled(at_s: float, behind_s: float, busy: Callable[[int], float], reach_s: float = 5.0) -> Gpu:
    """A GPU in a frame of that time, with the driver's samples up to some moment before it."""
    last = math.floor((at_s - behind_s) / SAMPLE_S)
    taken = range(max(0, last - round(reach_s / SAMPLE_S)), last + 1)
    samples = tuple((at_s - number * SAMPLE_S, busy(number)) for number in taken)
    return Gpu(uuid="G", index="0", name="H100", busy_percent=60.0, busy_samples=samples)


def jittered(seconds: int, step_s: float = 1.0) -> Iterator[tuple[float, float]]:
    """Times of frames that are late by up to 0.2 s, and how old the newest sample may be at each."""
    clock = Random(3)
    for tick in range(round(seconds / step_s)):
        yield 100 + tick * step_s + 0.2 * clock.random(), 0.3 * clock.random()


@pytest.mark.parametrize("step_s", [0.3, 1.0, 4.5])
def test_each_sample_of_the_driver_counts_once_whatever_the_clock_of_the_frames(step_s: float) -> None:
    card, looks = GpuTracker(), list(jittered(24, step_s))
    for at_s, behind_s in looks:
        card.add(sampled(at_s, behind_s, float), at_s)
    taken = list(card._samples)
    assert taken == [float(number) for number in range(int(taken[0]), int(taken[0]) + len(taken))]
    assert len(taken) == pytest.approx((looks[-1][0] - looks[0][0] + 5) / SAMPLE_S, abs=4)


@pytest.mark.parametrize("step_s", [0.5, 0.8, 1.7])
def test_steps_are_as_long_as_they_are_whatever_the_clock_of_the_frames(step_s: float) -> None:
    """On for 60 % of each step, as samples of a sixth of a second see it."""
    work = Pulse(step_s, 0.6)
    card = GpuTracker()

    def busy(number: int) -> float:
        return 100 * (work.busy_s(number * SAMPLE_S) - work.busy_s((number - 1) * SAMPLE_S)) / SAMPLE_S

    for at_s, behind_s in jittered(60):
        card.add(sampled(at_s, behind_s, busy), at_s)
    card.describe(160.0)
    assert card.period is not None
    assert card.period.seconds == pytest.approx(step_s, rel=0.03)
    assert card.shape is not None
    assert card.shape.mean == pytest.approx(60, abs=3)


def test_a_frame_that_is_shown_twice_harms_nothing() -> None:
    frame = Machine().frame(5.0)
    for _, said in judged([frame, frame, frame]):
        assert said.findings == ()


def test_what_a_very_rare_look_stands_for_is_bounded() -> None:
    machine = Machine(gpu={"busy_percent": lambda t: 60.0 if t % 1200 else 90.0})
    known, _ = follow(machine, (600.0 * look for look in range(40)), 600.0)
    assert known.mean is not None
    assert 60 <= known.mean <= 90
    assert known.square >= 0


@pytest.mark.parametrize("gap_s", [30, 3600])
def test_one_odd_second_after_a_gap_is_no_phase(gap_s: int) -> None:
    machine = Machine(gpu={"busy_percent": lambda t: 0.0 if t == 300 + gap_s else 97.0})
    times = [*range(300), *range(300 + gap_s, 360 + gap_s)]
    assert follow(machine, map(float, times), 1.0)[1] == 0


def test_who_looks_often_sees_no_more_phases_in_work_with_gaps() -> None:
    chance, busy = Random(7), list[float]()
    while len(busy) < 1200:
        busy += [100.0 * (len(busy) % 2)] * max(1, round(chance.expovariate(1 / 1.5)))
    machine = Machine(gpu={"busy_percent": lambda t: busy[int(t)]})
    assert follow(machine, (look / 4 for look in range(4800)), 0.25)[1] <= follow(machine, range(1200), 1.0)[1] + 2
