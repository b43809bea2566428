"""Real trainings on a real H200, each recorded for half a minute to a minute: what was planted is what is found.

`make gpu-check` cannot play these: they are `tests/h200/*.jsonl.gz`, recorded with `gputop record` in November 2026
beside small programs of PyTorch 2.11 (driver 580, 16 CPUs). Each is judged as if it went on so for some minutes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from functools import cache
from pathlib import Path

import pytest

from gputop.diagnose.engine import Verdict
from gputop.model import Frame, Gpu, Series
from gputop.monitor import Monitor
from gputop.record.recording import Recording
from tests.rule_cases import judged

RECORDED = Path(__file__).parents[1] / "h200"
SECONDS = 200.0
# what leads, and what else may be told of it
PLANTED = {
    "healthy": ("gpu-bound-healthy", {"power"}),
    "few-workers": ("starved-cpu-idle", set()),
    "loads-in-main": ("loader-in-main", set()),
    "launch-bound": ("overhead-bound", set()),
    "saves": ("checkpoint-stall", {"power"}),
    "pageable": ("h2d-transfer-bound", set()),
    "elementwise": ("mem-bw-bound", {"power"}),
    "gil": ("overhead-bound", set()),  # beside a thread that pins memory, loaders that rest half of the time
    "rollouts": ("loader-in-main", set()),  # of 30 s on the CPU, then 12 s of training
}


def played(kind: str) -> Iterator[Frame]:
    """Its frames, again and again; each time later than before."""
    frames = [update.frame for update in Monitor(Recording(str(RECORDED / f"{kind}.jsonl.gz"), pace=False)).updates()]
    first, later_s = frames[0].mono_s, 0.0
    while later_s < SECONDS:
        yield from (later(frame, later_s) for frame in frames)
        later_s += frames[-1].mono_s - first + 1


def later(frame: Frame, seconds: float) -> Frame:
    """The same, so much later."""
    gpus = tuple(
        replace(gpu, **{name: replace(series, wall_s=series.wall_s + seconds) for name, series in all_series(gpu)})
        for gpu in frame.gpus
    )
    return replace(frame, wall_s=frame.wall_s + seconds, mono_s=frame.mono_s + seconds, gpus=gpus)


def all_series(gpu: Gpu) -> Iterator[tuple[str, Series]]:
    return ((one.name, value) for one in fields(gpu) if isinstance(value := getattr(gpu, one.name), Series))


@cache
def verdicts(kind: str) -> tuple[tuple[float, Verdict], ...]:
    """What is said of it at each look, by seconds since its beginning."""
    said = list(judged(played(kind)))
    return tuple((frame.mono_s - said[0][0].mono_s, verdict) for frame, verdict in said)


@pytest.mark.parametrize("kind", PLANTED)
def test_what_was_planted_leads(kind: str) -> None:
    rule, beside = PLANTED[kind]
    _, last = verdicts(kind)[-1]
    assert [one.rule for one in last.findings if one.primary] == [rule]
    assert {one.rule for one in last.findings} <= {rule, *beside}


@pytest.mark.parametrize("kind", PLANTED)
def test_it_is_named_within_two_minutes_and_nothing_else_before(kind: str) -> None:
    rule, beside = PLANTED[kind]
    named = {one.rule: at_s for at_s, said in reversed(verdicts(kind)) for one in said.findings}
    assert named.keys() <= {rule, *beside}
    assert named[rule] <= (120 if kind != "rollouts" else 165)


def test_a_fast_gpu_that_waits_is_used_all_the_same() -> None:
    """Its batches take milliseconds: busy for 0.4 % of the time, and two loaders work as hard as they can."""
    _, last = verdicts("few-workers")[-1]
    (found,) = last.findings
    assert found.evidence[0].text.startswith("GPU busy 0 %, active in ")
    assert found.steps[0].text == "Raise num_workers to 15: up to 7.5× faster"


def test_who_keeps_a_gpu_at_one_percent_launches_no_kernels() -> None:
    _, last = verdicts("loads-in-main")[-1]
    (found,) = last.findings
    assert "data loading (num_workers=0)" in found.headline
    assert found.severity == "warn"


def test_who_copies_with_one_thread_is_told_of_pinned_memory_first() -> None:
    """It gets 6.9 of 64 GB/s: from pinned memory the same card took 55."""
    _, last = verdicts("pageable")[-1]
    (found,) = last.findings
    assert found.steps[0].text.startswith("Copy from pinned memory")


def test_saves_seen_every_fifth_second_break_no_rule() -> None:
    """What a save wrote may not be known at such looks; `judged` fails where a rule breaks."""
    assert list(judged(list(played("saves"))[::5]))
