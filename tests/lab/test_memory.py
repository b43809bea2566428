"""Whether memory grows: told from what a step takes and gives back, from a warm-up, and from noise."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import pytest

from gputop.lab.memory import Census, MemorySamples, grown_tensors, growth
from gputop.lab.memory_report import page
from gputop.report import text

MIB, GIB = 1 << 20, 1 << 30


def series(of: Callable[[int], float], steps: int = 80, each: int = 1) -> list[tuple[float, float]]:
    return [(float(step), of(step)) for step in range(0, steps, each)]


def in_step(step: int) -> float:
    """What a step has taken at a moment of it, as if looked at anywhere."""
    return random.Random(step).random() * 800 * MIB


@pytest.mark.parametrize(
    ("of", "grows"),
    [
        (lambda step: GIB, False),
        (lambda step: GIB + step * MIB, True),
        (lambda step: GIB + step * MIB + in_step(step) / 100, True),  # noise of 8 steps of it
        (lambda step: GIB + in_step(step), False),
        (lambda step: GIB + min(step, 20) * 10 * MIB, False),  # a warm-up
        (lambda step: GIB + 500 * MIB * (1 - math.exp(-step / 12)), False),  # a cache that fills
        (lambda step: GIB + step * 1024, False),  # less than an allocator rounds to
        (lambda step: GIB - step * MIB, False),
        (lambda step: GIB + (step % 20) * 5 * MIB, False),  # an epoch that ends gives it back
    ],
)
def test_growth_is_told_from_all_else(of: Callable[[int], float], grows: bool) -> None:
    found = growth(series(of))
    assert found["grows"] is grows, found


def test_growth_has_the_size_of_what_is_kept_and_its_uncertainty() -> None:
    exact = growth(series(lambda step: GIB + 3 * step * MIB))
    assert (exact["each"], exact["noise"]) == (pytest.approx(3 * MIB), pytest.approx(0, abs=1))
    noisy = growth(series(lambda step: GIB + 3 * step * MIB + in_step(step) / 100))
    assert noisy["each"] == pytest.approx(3 * MIB, rel=0.1)
    assert 0 < noisy["noise"] < MIB


@pytest.mark.parametrize("points", [[], [(0.0, 1.0)], series(lambda step: GIB + step * MIB, steps=5)])
def test_of_too_little_nobody_can_say(points: list[tuple[float, float]]) -> None:
    found = growth(points)
    assert (found["grows"], found["each"]) == (None, None)


def kinds(**counts: int) -> list[dict[str, Any]]:
    kept = {"type": "Tensor", "dtype": "float32", "device": "cpu", "graph": True, "bytes": 4}
    return [{**kept, "shape": list(map(int, name[1:].split("_"))), "count": count} for name, count in counts.items()]


@pytest.mark.parametrize(
    ("counts", "grows"),
    [
        ([10, 30, 50, 70, 90], True),
        ([10, 110, 10, 110, 110], False),  # gradients are there, or not
        ([10, 20, 30, 50, 70], True),  # one in two steps
        ([10, 12, 14, 16, 18], False),
        ([10, 30, 50], None),  # too few looks
    ],
)
def test_a_kind_of_tensors_piles_up_only_if_it_always_does(counts: list[int], grows: bool | None) -> None:
    censuses: list[Census] = [(20.0 * place, kinds(s3_4=count), 0) for place, count in enumerate(counts)]
    (found,) = grown_tensors(censuses)
    assert (found["grows"], found["more"]) == (grows, counts[-1] - counts[0])


def test_a_kind_that_was_not_told_before_may_have_been_there() -> None:
    told: list[Census] = [(20.0 * place, kinds(s3=5) if place < 4 else kinds(s3=5, s7=100), 95) for place in range(5)]
    assert {tuple(one["shape"]): (one["more"], one["grows"]) for one in grown_tensors(told)} == {
        (3,): (0, False),
        (7,): (5, False),
    }
    assert grown_tensors([]) == []


DEVICE = {
    "device": 0, "allocated": GIB, "peak_allocated": GIB, "reserved": GIB, "peak_reserved": GIB, "inactive_split": 0,
    "segments": 4, "retries": 0, "ooms": 0,
}  # fmt: skip


def said(**device: object) -> str:
    watched = MemorySamples()
    for step in range(40):
        watched.take({"torch": "2.9.0", "cuda": None, "steps": 100 + step, "devices": [{**DEVICE, **device}]}, {}, step)
    result: dict[str, Any] = {**watched.result(), "name": "train.py", "longer": "", "agent": None, "more": None}
    return text(page(result))


@pytest.mark.parametrize(
    ("device", "words"),
    [
        ({}, "Memory does not grow from step to step."),
        ({"reserved": 4 * GIB}, "cuda:0: 3.0G is unused cache held by PyTorch."),
        ({"reserved": 4 * GIB}, "Call torch.cuda.empty_cache() between phases, never inside the loop."),
        ({"reserved": 4 * GIB, "inactive_split": GIB}, "cuda:0: the allocator's cache is fragmented."),
        ({"retries": 1}, "cuda:0: memory ran out once"),
    ],
)
def test_the_allocator_is_judged_as_mission_rows_69_and_70_say(device: dict[str, object], words: str) -> None:
    assert words in said(**device)


def test_what_an_agent_says_is_hostile() -> None:
    watched = MemorySamples()
    evil = "\x1b]0;evil\x07"
    watched.take(
        {"torch": evil, "cuda": evil, "steps": -1, "devices": [{"device": 0, "allocated": math.nan}, 7]},
        {"rss": evil},
        0,
    )
    kind = {"shape": [evil]}
    watched.take({"devices": [{**DEVICE, "reserved": 1 << 80}], "tensors": [kind], "others": evil}, {}, 0)
    watched.take({"tensors": 5, "devices": {"a": 1}, "untold": None}, {}, 0)
    result = watched.result()
    assert (result["devices"], result["steps"]) == ([], None)
    assert "\x1b" not in str(result)
