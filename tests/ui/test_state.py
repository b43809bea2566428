"""The state word of a GPU where no rule has spoken."""

from __future__ import annotations

import pytest

from gputop.history import History
from gputop.model import Frame, Gpu
from gputop.ui.gpus.state import State, state
from tests.servers import capped, frame, gpu, hot, idle


def past(*gpus: Gpu, every_s: float = 1.0) -> History:
    """A history of one GPU's values, the newest last."""
    history = History()
    for number, each in enumerate(gpus):
        now = Frame(wall_s=0, mono_s=1000.0 + number * every_s, hostname="a", host=frame().host, gpus=(each,))
        history.add(now, every_s)
    return history


@pytest.mark.parametrize(
    ("card", "word", "short", "token"),
    [
        (gpu(0), "busy", "BUSY", "text"),
        (gpu(0, condition="hung", condition_s=47.2), "hung 47s", "HUNG", "crit"),
        (gpu(0, condition="lost", condition_s=372), "lost 6m 12s", "LOST", "crit"),
        (gpu(0, condition="lost"), "lost", "LOST", "crit"),
        (gpu(0, condition="asleep", condition_s=900), "asleep", "SLEEP", "dim"),
        (gpu(0, condition="starting", condition_s=3.2), "starting 3s", "START", "dim"),
        (gpu(0, age_s=12), "12s old", "12s OLD", "dim"),
        (hot(0), "thermal", "HEAT", "crit"),
        (hot(0, throttled_heat_hard_percent=0.0, throttled_heat_percent=44.0), "thermal", "HEAT", "warn"),
        (hot(0, throttled_heat_hard_percent=0.0, throttled_heat_percent=1.0), "busy", "BUSY", "text"),
        (hot(0, throttled_heat_hard_percent=None), "thermal", "HEAT", "crit"),
        (gpu(0, throttled_heat_percent=None, throttle_reasons=frozenset({"thermal"})), "thermal", "HEAT", "warn"),
        (capped(0), "power cap", "PWR", "busy"),
        (capped(0, throttled_power_percent=79.0), "busy", "BUSY", "text"),
        (capped(0, throttled_power_percent=None), "power cap", "PWR", "busy"),
        (gpu(0, throttle_reasons=None, throttled_power_percent=None), "busy", "BUSY", "text"),
        (gpu(0, busy_percent=None), "", "", "dim"),
        (gpu(0, busy_percent=None, mig_mode=True), "mig", "MIG", "dim"),
        (idle(0), "idle", "IDLE", "dim"),
    ],
)
def test_word(card: Gpu, word: str, short: str, token: str) -> None:
    said = state(card, past(card))
    assert (said.word, said.short, said.token) == (word, short, token)
    assert bool(said.sign) == (token in ("warn", "crit")), "weight is carried by a sign, not by colour alone"
    assert said.hot == (word == "thermal")
    assert said.stale == (card.condition != "ok" or card.age_s > 0)


def test_nothing_is_known_of_the_past_in_the_first_frame() -> None:
    assert state(idle(0), History()) == State("idle", "IDLE", "dim")
    assert state(gpu(0), History()).word == "busy"


@pytest.mark.parametrize(
    ("worked_s", "quiet_s", "word", "short"),
    [
        (0, 30, "idle", "IDLE"),
        (0, 75, "idle 1m 15s", "IDLE 1m"),
        (5, 30, "busy", "BUSY"),  # a pause between epochs is not idleness
        (5, 59, "busy", "BUSY"),
        (5, 61, "idle 1m 1s", "IDLE 1m"),
        (5, 600, "idle 10m", "IDLE 10m"),
    ],
)
def test_idle_has_an_age(worked_s: int, quiet_s: int, word: str, short: str) -> None:
    said = state(idle(0), past(*[gpu(0)] * worked_s, *[idle(0)] * quiet_s))
    assert (said.word, said.short) == (word, short)


def test_idle_for_hours() -> None:
    said = state(idle(0), past(*[gpu(0)] * 60, *[idle(0)] * 7860))
    assert (said.word, said.short) == ("idle 2h 11m", "IDLE 2h")
    assert state(idle(0), past(*[idle(0)] * 20_000)).short in ("IDLE 3h", "IDLE 4h"), "no longer than anybody looked"


def test_short_forms_fit_a_cell() -> None:
    for card in (hot(0), capped(0), idle(0), gpu(0), gpu(0, condition="asleep"), gpu(0, condition="lost")):
        assert len(state(card, past(*[card] * 700)).short) <= 8
