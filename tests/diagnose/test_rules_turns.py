"""GPUs that work in turns: what they do is their sum, and no mean of which three quarters are lost."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gputop.diagnose.engine import Verdict
from gputop.model import Frame, GpuShare, Identity
from tests.diagnose.test_rules_works_on import holds
from tests.rank_teams import NCCL, lines
from tests.rule_cases import Machine, after, found, hours

Busy = Callable[[int, float], float]  # GPU, time: whether it works
GIB = 2**30
SAMPLE_S = 1 / 6
TWELVE = tuple(reversed(range(12)))


def one_after_the_other(period_s: float, count: int = 4, idle: float = 0.0) -> Busy:
    """Stages of the same length, and for this share of the time none works."""
    each_s = (1 - idle) * period_s / count
    return lambda card, t: float(card * each_s <= t % period_s < (card + 1) * each_s)


def there_and_back(t: float, card: int) -> float:
    """Forward passes of a second in all, then backward passes of two."""
    at = t % 3.0
    return float(int(at / 0.25) == card if at < 1 else 3 - int((at - 1) / 0.5) == card)


def single(
    busy: Busy,
    count: int = 4,
    *,
    samples: bool = False,
    held: tuple[float, ...] | None = None,
    ranks: bool = False,
    **trainer: Any,
) -> Callable[[float], Frame]:
    """One process on several GPUs, or a rank on each, as the driver tells of it: by the second, or finer."""
    shares = tuple(GpuShare(uuid=f"G{n}", vram_bytes=int((held[n] if held else 20) * GIB)) for n in range(count))
    machine = Machine(trainer={"libraries": ("torch", "cuda"), "gpus": shares} | trainer)

    def mean(card: int, since_s: float, until_s: float, parts: int) -> float:
        step_s = (until_s - since_s) / parts
        return 100 * sum(busy(card, since_s + (part + 0.5) * step_s) for part in range(parts)) / parts

    def frame(t: float) -> Frame:
        plain, cards = machine.frame(t), []
        for card in range(count):
            percent = mean(card, t - 1, t, 30)
            ages = [(number * SAMPLE_S + 0.01, number) for number in TWELVE] if samples else []
            taken = tuple((ago_s, mean(card, t - ago_s - SAMPLE_S, t - ago_s, 6)) for ago_s, _ in ages)
            done = {
                name: percent / 97 * value for name, value in (("tensor_percent", 50.0), ("sm_active_percent", 88.0))
            }
            cards.append(
                replace(plain.gpus[0], uuid=f"G{card}", index=f"{card}", busy_percent=percent, busy_samples=taken,
                        power_watts=75 + 5 * percent, dram_percent=0.38 * percent, **done)
            )  # fmt: skip
        if not ranks:
            return replace(plain, gpus=tuple(cards))
        (job,), processes = plain.jobs, tuple(
            replace(plain.processes[0], pid=100 + n, gpus=(share,), rank=n, world_size=count, thread_names=NCCL)
            for n, share in enumerate(shares)
        )  # fmt: skip
        identities = tuple(Identity(100 + n, 1) for n in range(count))
        return replace(
            plain, gpus=tuple(cards), processes=processes, jobs=(replace(job, ranks=identities, launcher="torchrun"),)
        )

    return frame


def rules(said: Verdict) -> list[str]:
    return [one.rule for one in said.findings]


@pytest.mark.parametrize(
    ("busy", "count", "samples"),
    [
        (one_after_the_other(8.0), 4, False),
        (one_after_the_other(2.0), 4, False),
        (one_after_the_other(2.0), 4, True),
        (one_after_the_other(0.7), 4, True),
        (one_after_the_other(3.0, 2), 2, False),
        (one_after_the_other(4.0, 8), 8, True),
        (lambda card, t: there_and_back(t, card), 4, True),
        (lambda card, t: float((0, 4, 7, 9, 10)[card] <= 2 * t % 10 < (0, 4, 7, 9, 10)[card + 1]), 4, False),  # uneven
    ],
)
def test_gpus_of_one_process_that_work_in_turns_lose_nothing(busy: Busy, count: int, samples: bool) -> None:
    said = after(single(busy, count, samples=samples), 120, 1)
    assert rules(said) == ["model-parallel"]
    (finding,) = said.findings
    assert (finding.severity, finding.lost_share, finding.state) == ("info", None, "in turns")
    assert finding.headline == f"naive model parallelism, 1 of {count} GPUs active at a time"
    assert finding.evidence[0].value == pytest.approx(100, abs=3)
    assert {"1F1B", "fsdp", "4bit"} <= {word for step in finding.steps for word in ("1F1B", "fsdp", "4bit")
                                        if word in (step.command or "")}  # fmt: skip


def test_turns_too_short_to_see_are_told_by_their_sum() -> None:
    said = after(single(lambda *_: 0.25), 120)
    assert rules(said) == ["model-parallel"]
    assert said.findings[0].headline.startswith("likely naive model parallelism")
    assert said.findings[0].confidence == pytest.approx(0.55)


@pytest.mark.parametrize(
    "frame",
    [
        single(lambda *_: 0.35),  # in sum more than one
        single(lambda *_: 0.15),  # less than one
        single(lambda *_: 0.25, held=(26, 20, 20, 20)),  # nn.DataParallel that starves
        single(lambda *_: 0.25, libraries=("jax", "cuda")),  # copies of a model
        single(lambda card, _: 0.55 if card == 0 else 0.15),
        single(lambda _, t: float(t % 2 < 0.5)),  # all of them at once
        single(lambda _, t: float(t % 2 < 0.5), samples=True, ranks=True),
        single(lambda *_: 0.25, ranks=True),  # ranks that step together, and starve
        single(lambda card, t: float((t - 0.11 * card) % 0.44 < 0.11), samples=True, ranks=True),  # seen a little late
    ],
)
def test_gpus_that_work_at_the_same_time_are_no_stages(frame: Callable[[float], Frame]) -> None:
    assert "model-parallel" not in rules(after(frame, 120, 1))


def test_gpus_busy_by_chance_are_no_stages() -> None:
    rolls = random.Random(5)
    seen: dict[tuple[int, int], float] = {}

    def busy(card: int, t: float) -> float:
        return seen.setdefault((card, int(t / 1.5)), float(rolls.random() < 0.25))

    assert "model-parallel" not in rules(after(single(busy), 150, 1))


@pytest.mark.parametrize("samples", [True, False])
def test_stages_that_wait_for_their_data_lose_what_their_sum_lacks(samples: bool) -> None:
    said = after(single(one_after_the_other(6.0, idle=0.5), samples=samples, read_chars_per_s=3e6), 150, 1)
    starved = found(said, "loader-in-main")
    assert starved is not None
    assert starved.lost_share == pytest.approx(0.5, abs=0.05)
    assert ", 4 GPUs taking turns, summed" in lines(starved)[0]
    assert found(said, "model-parallel") is not None


def test_ranks_of_a_pipeline_are_one_finding_of_their_job() -> None:
    said = after(single(one_after_the_other(4.0), ranks=True, samples=True), 120, 1)
    assert rules(said) == ["model-parallel"]
    assert said.findings[0].subject.kind == "job"
    assert len(said.findings[0].subject.gpus) == 4


def test_turns_leave_no_gpu_unused() -> None:
    said = hours(holds(*[lambda t, n=n: 97.0 if int(t / 15) % 4 == n else 0.0 for n in range(4)]), 20)
    assert "gpu-unused-in-job" not in rules(said)


def test_who_stops_to_work_in_turns_is_judged_by_the_mean_again() -> None:
    turns = one_after_the_other(4.0)

    def busy(card: int, t: float) -> float:
        return turns(card, t) if t < 120 else float(t % 1.0 < 0.4)

    said = after(single(busy, samples=True, read_chars_per_s=3e6), 300, 1)
    assert "model-parallel" not in rules(said)
    starved = found(said, "loader-in-main")
    assert starved is not None
    assert starved.lost_share == pytest.approx(0.6, abs=0.05)
