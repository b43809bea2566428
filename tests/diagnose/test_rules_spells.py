"""A trainer that works on the CPU for many seconds, then on its GPU, and so on: who learns by playing does."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from tests.rule_cases import LOADER, Machine, found, judged, sampled


def plays(rollout_s: float, update_s: float, **then: Any) -> Machine:
    """A program that plays for some seconds, its main thread busy, and then trains; `then` are dials of the playing."""

    def at_play(t: float) -> bool:
        return t % (rollout_s + update_s) < rollout_s

    def dial(value: Any, base: Any) -> Any:
        return lambda t: value if at_play(t) else base

    base = {"cpu_percent": 100.0, "main_thread_percent": 99.0, "write_bytes_per_s": 0.0, "write_chars_per_s": 0.0}
    trainer = {name: dial(then.get(name, value), value) for name, value in base.items()}
    return Machine(gpu=sampled(lambda t: 0.0 if at_play(t) else 96.0), trainer=trainer)


def told(machine: Machine, seconds: float) -> list[tuple[float, Any]]:
    seen = [(one.mono_s - 1000, said) for one, said in judged(machine.frame(float(t)) for t in range(round(seconds)))]
    return [(t, one) for t, said in seen if (one := found(said, "loader-in-main")) is not None]


@pytest.mark.parametrize(
    ("rollout_s", "update_s", "words", "due_s"),
    [
        (30, 12, "GPU idle for 30 s every 42 s, main thread busy", 180),
        (10, 10, "GPU idle for 10 s every 20 s, main thread busy", 120),
        (90, 30, "GPU idle for 1 min 30 s every 2 min, main thread busy", 480),
    ],
)
def test_the_rhythm_is_told_and_stays_told(rollout_s: float, update_s: float, words: str, due_s: float) -> None:
    seen = told(plays(rollout_s, update_s), due_s + 240)
    (first_s, _), (last_s, last) = seen[0], seen[-1]
    assert first_s <= due_s
    assert last_s == due_s + 239
    assert all(later - before <= 2 for (before, _), (later, _) in pairwise(seen)), "it flaps"
    assert (last.severity, last.headline) == ("warn", words)
    assert last.lost_share == pytest.approx(rollout_s / (rollout_s + update_s), abs=0.03)


@pytest.mark.parametrize(
    "machine",
    [
        plays(30, 12, cpu_percent=4.0, main_thread_percent=3.0),  # it waits for somebody
        plays(30, 12, write_bytes_per_s=3e8, write_chars_per_s=3e8),  # it saves
        plays(12, 90),  # an evaluation, perhaps
    ],
)
def test_what_looks_alike_is_none(machine: Machine) -> None:
    assert not [one for _, one in told(machine, 500) if "every" in one.headline]


def test_who_has_loaders_may_wait_for_these() -> None:
    machine = plays(30, 12)
    machine.loaders, machine.loader = 2, {**LOADER, "cpu_percent": 99.0}
    assert not told(machine, 400)
