"""A slow rank whose victims have the same means: they work more for a part of each step, and spin for the rest."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gputop.model import Frame, Series
from tests.rank_teams import Dials, lines, nothing, of, team
from tests.rule_cases import found, judged

BEFORE_S, AFTER_S = 60, 140
LINKS = {"nvlink_rx_bytes_per_s": 38e9, "nvlink_tx_bytes_per_s": 38e9}
COUNTED = ("tensor_percent", "dram_percent", "sm_active_percent", "fp32_percent", *LINKS)
WORKS, SPINS, RESTS = 620.0, 150.0, 75.0  # watts


def steps(
    period_s: float,
    works: tuple[float, ...],
    *,
    tensor: tuple[float, ...] = (),
    watts: tuple[float, ...] = (),
    waits: dict[int, float] | None = None,
    counters: bool = True,
    power: bool = True,
    series: bool = False,
    noise: float = 0.02,
    dials: Dials = nothing,
) -> Callable[[float], Frame]:
    """Ranks in step, all alike at first: `works` is the part of a step that each then computes before it spins.

    `tensor`, `watts`: of each while it computes; `waits`: the part of a step in which the GPU of a rank does nothing.
    """
    count, rolls = len(works), random.Random(3)
    base = team(dials, ranks=count)

    def does(rank: int, t: float) -> str:
        part, late = t % period_s / period_s, (waits or {}).get(rank, 0.0) if t >= BEFORE_S else 0.0
        until = works[rank] if t >= BEFORE_S else 0.95
        return "rests" if part < late else "works" if part < late + until else "spins"

    def shares(rank: int, since_s: float, length_s: float, parts: int = 40) -> tuple[float, float, float]:
        seen = [does(rank, since_s + (part + 0.5) / parts * length_s) for part in range(parts)]
        busy, spin = seen.count("works") / parts, seen.count("spins") / parts
        return busy, spin, 1 - busy - spin

    def drawn(rank: int, t: float, since_s: float, length_s: float, parts: int = 40) -> float:
        busy, spin, rest = shares(rank, since_s, length_s, parts)
        most = watts[rank] if watts and t >= BEFORE_S else WORKS
        return (most * busy + SPINS * spin + RESTS * rest) * (1 + rolls.gauss(0, noise))

    def frame(t: float) -> Frame:
        one, cards = base(t), []
        for rank, gpu in enumerate(one.gpus):
            busy, spin, _ = shares(rank, t - 1, 1.0)
            level = tensor[rank] if tensor and t >= BEFORE_S else 50.0
            units: dict[str, Any] = {
                **LINKS, "tensor_percent": level * busy * (1 + rolls.gauss(0, noise)), "dram_percent": 38 * busy,
                "sm_active_percent": 88 * busy + 12 * spin, "fp32_percent": 6 * busy,
            }  # fmt: skip
            seen = units if counters else dict.fromkeys(COUNTED)
            fine = tuple(drawn(rank, t, t - 1 + n / 10, 0.1, 5) for n in range(10)) if series else ()
            known = Series(wall_s=t, step_s=0.1, values=fine) if fine else None
            cards.append(
                replace(gpu, busy_percent=round(100 * (busy + spin)), power_series=known,
                        power_watts=drawn(rank, t, t - 1, 1.0) if power else 500.0, **seen)
            )  # fmt: skip
        return replace(one, gpus=tuple(cards))

    return frame


def seen(frame: Callable[[float], Frame], seconds: int = AFTER_S) -> tuple[str, list[str]] | None:
    said = [said for _, said in judged(frame(float(t)) for t in range(BEFORE_S + seconds))][-1]
    finding = found(said, "straggler")
    return None if finding is None else (finding.headline, lines(finding))


SLOW = (0.6, 0.6, 0.97, 0.6)
EQUAL = (50.0, 50.0, 50 * 0.6 / 0.97, 50.0)  # of tensor cores: the same work in more time
DRAWN = (620.0, 620.0, 430.0, 620.0)


@pytest.mark.parametrize(
    ("frame", "signal"),
    [
        (steps(6.3, SLOW, tensor=EQUAL, watts=DRAWN), "tensor activity"),
        (steps(2.2, SLOW, tensor=EQUAL, watts=DRAWN), "tensor activity"),
        (steps(1.3, SLOW, tensor=EQUAL, watts=DRAWN), "tensor activity"),
        (steps(6.3, SLOW, watts=DRAWN, counters=False), "power above idle"),
        (steps(0.7, SLOW, tensor=EQUAL, watts=DRAWN, power=False, series=True), "power above idle"),
    ],
)
def test_who_works_through_while_the_others_work_and_spin_is_late(frame: Callable[[float], Frame], signal: str) -> None:
    told = seen(frame)
    assert told is not None
    headline, evidence = told
    assert headline == "straggler rank 2 (GPU 2), longer steps"
    assert evidence[0].startswith(f"GPUs 0, 1, 3 alternate between compute and spinning: {signal} ")
    assert evidence[1].startswith(f"GPU 2 computes throughout: {signal} ")
    assert evidence[-1].startswith("ranks 0, 1, 3 wait for it up to ")


def test_of_two_ranks_the_one_that_alternates_waits() -> None:
    told = seen(steps(2.2, (0.6, 0.97), tensor=(50.0, 31.0), watts=(620.0, 430.0)))
    assert told is not None
    assert told[0].startswith("straggler rank 1 (GPU 1)")
    assert told[1][-1].startswith("rank 0 waits for it up to ")


@pytest.mark.parametrize("counters", [True, False])
def test_where_steps_are_too_short_to_see_who_spins_draws_less(counters: bool) -> None:
    told = seen(steps(0.31, SLOW, tensor=EQUAL, counters=counters))
    assert told is not None
    assert told[0].startswith("straggler rank 2 (GPU 2), ")
    assert re.fullmatch(r"GPU 2: power above idle 8\d %, other ranks 5\d %, all GPUs busy", told[1][0])


@pytest.mark.parametrize(("period_s", "counters"), [(0.31, True), (5.3, True), (0.31, False), (5.3, False)])
@pytest.mark.parametrize("works", [0.6, 0.3])
def test_a_rank_whose_cpu_is_late_leaves_gaps_on_its_gpu_alone(period_s: float, counters: bool, works: float) -> None:
    frame = steps(period_s, (works,) * 4, waits={2: 0.95 - works}, counters=counters)
    told = seen(frame)
    assert told is not None
    assert told[0].startswith("straggler rank 2 (GPU 2)")


def test_a_main_thread_that_works_while_the_others_sleep_is_the_reason() -> None:
    busy = of({2: {"main_thread_percent": 100.0}}, {"main_thread_percent": 30.0})
    base, sleeps = steps(0.31, (0.6,) * 4, waits={2: 0.35}), team(nothing, busy)

    def frame(t: float) -> Frame:
        return replace(base(t), processes=sleeps(t).processes)

    told = seen(frame)
    assert told is not None
    assert told[0] == "straggler rank 2 (GPU 2), main thread saturated"
    assert told[1][1] == "main thread uses 100 % of a core (other ranks 30 %)"


def test_a_low_clock_with_the_same_tensor_share_is_late_if_the_others_spin() -> None:
    slow = of({2: {"sm_clock_mhz": 1190.0, "throttle_reasons": frozenset({"hw thermal"})}})
    told = seen(steps(2.2, SLOW, tensor=EQUAL, watts=DRAWN, dials=slow))
    assert told is not None
    assert told[0] == "straggler rank 2 (GPU 2), hardware thermal slowdown"


@pytest.mark.parametrize(
    "frame",
    [
        steps(6.3, (0.95,) * 4),
        steps(6.3, (0.7,) * 4),  # all of them exchange gradients for a part of each step
        steps(1.3, (0.8,) * 4, noise=0.06),
        steps(4.3, (0.9, 0.88, 0.92, 0.9), noise=0.05),
        steps(4.3, (0.9, 0.93), noise=0.05),
        steps(0.31, (0.8, 0.8, 0.85, 0.8)),
        steps(2.2, (0.6, 0.97, 0.97, 0.6), tensor=(50.0, 31.0, 31.0, 50.0)),  # two of four are no odd one
        steps(0.31, (0.9,) * 4, watts=(620.0, 600.0, 660.0, 610.0), noise=0.03),  # cards differ a little
    ],
)
def test_ranks_that_do_the_same_wait_for_nobody(frame: Callable[[float], Frame]) -> None:
    assert seen(frame) is None
