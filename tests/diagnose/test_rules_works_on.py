"""Processes that hold more GPUs than they work on, as one that maps all it sees: what it leaves unused waits not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from gputop.diagnose.engine import Verdict
from gputop.diagnose.engine_state import EngineState
from gputop.history import History
from gputop.model import Frame, GpuShare
from tests.rule_cases import Machine, after, found, hours

GIB = 2**30
IDLE = {"sm_active_percent": 0.0, "tensor_percent": 0.0, "dram_percent": 0.0, "power_watts": 110.0}
Busy = float | Callable[[float], float]


def holds(*busy: Busy, gpu: dict[str, Any] | None = None, **trainer: Any) -> Callable[[float], Frame]:
    """One process with a context on each of several GPUs, which are that busy."""
    uuids = [f"GPU-{number}" for number in range(len(busy))]
    shares = tuple(GpuShare(uuid=uuid, vram_bytes=70 * GIB) for uuid in uuids)
    dials = {"libraries": frozenset({"tensorflow", "cuda"}), "read_chars_per_s": 3e6, "gpus": shares}
    machine = Machine(gpu=gpu or {}, trainer=dials | trainer)

    def frame(t: float) -> Frame:
        plain = machine.frame(t)
        percents = [one(t) if callable(one) else one for one in busy]
        gpus = (
            replace(plain.gpus[0], uuid=uuid, index=str(number), busy_percent=percent, **({} if percent else IDLE))
            for number, (uuid, percent) in enumerate(zip(uuids, percents, strict=True))
        )
        return replace(plain, gpus=tuple(gpus))

    return frame


def seen(verdict: Verdict) -> Sequence[str]:
    return [one.rule for one in verdict.findings]


def pulse(every_s: int, at_s: int, for_s: int) -> Callable[[float], float]:
    return lambda t: 97.0 if at_s <= t % every_s < at_s + for_s else 0.0


@pytest.mark.parametrize("trainer", [{}, {"main_thread_percent": 40.0, "cpu_percent": 60.0}, {"read_chars_per_s": 0.0}])
def test_a_process_that_works_on_one_of_its_gpus_does_not_wait(trainer: dict[str, Any]) -> None:
    assert seen(after(holds(97.0, 0.0, 0.0, 0.0, **trainer), 120)) == []


def test_but_leaves_the_others_unused() -> None:
    verdict = hours(holds(97.0, 0.0, 0.0, 0.0), 20)
    assert seen(verdict) == ["gpu-unused-in-job"]
    assert verdict.findings[0].headline == "3 of 4 GPUs unused"


@pytest.mark.parametrize("busy", [(50.0, 0.0, 0.0, 0.0), (0.0, 50.0)])
def test_if_it_waits_on_that_one_it_is_told_how_long_for_that_one(busy: tuple[float, ...]) -> None:
    finding = found(after(holds(*busy), 120), "loader-in-main")
    assert finding is not None
    assert finding.evidence[0].text.startswith("GPU busy 50 %")
    assert finding.steps[0].text.endswith("up to 2.0× faster")


def test_gpus_with_little_work_are_worked_on() -> None:
    """As with nn.DataParallel."""
    finding = found(after(holds(60.0, 20.0, 20.0, 20.0), 150, 1), "loader-in-main")
    assert finding is not None
    assert finding.evidence[0].value == pytest.approx(30, abs=3)


def test_what_was_worked_on_until_just_now_is_left_out_before_anybody_is_told_to_wait() -> None:
    frame = holds(97.0, *[lambda t: 97.0 if t < 100 else 0.0] * 3)
    for seconds in range(110, 220, 10):
        assert found(after(frame, seconds, 1), "loader-in-main") is None


def test_its_figures_are_those_of_the_gpus_it_works_on() -> None:
    finding = found(
        after(holds(97.0, 0.0, gpu={"sm_active_percent": 20.0, "tensor_percent": 2.0}), 120), "busy-not-effective"
    )
    assert finding is not None
    assert "SM activity 20 %" in [item.text for item in finding.evidence]


def test_while_all_of_them_wait_none_is_left() -> None:
    """The first one begins a second earlier, after more than half a minute."""
    frame = holds(pulse(60, 39, 21), *[pulse(60, 40, 20)] * 3)
    remembered, history = EngineState(), History()
    for second in range(300):
        history.add(frame(float(second)))
        remembered.add(frame(float(second)), history)
        (known,) = remembered.trainers.values()
        if second >= 40:
            assert len(known.works_on) == 4
