"""What a step meter says makes findings about waiting for data surer, with its numbers, or takes them back."""

from __future__ import annotations

from typing import Any

import pytest

from tests.rank_teams import lines
from tests.rule_cases import LOADER, Machine, after, found
from tests.test_step_report import late


def starved(**metered: Any) -> Machine:
    """Four loaders that are fully busy, a GPU that is not."""
    busy = {**LOADER, "cpu_percent": 98.0, "main_thread_percent": 98.0}
    return Machine(gpu={"busy_percent": 45.0}, loader=busy, trainer=metered, loaders=4)


def test_it_names_the_batch_and_the_step_and_how_long_the_gpu_idles() -> None:
    plain = found(starved().verdict(), "starved-cpu-idle")
    surer = found(starved(step_s=0.045, data_wait_percent=55.6).verdict(), "starved-cpu-idle")
    assert plain is not None
    assert surer is not None
    assert (plain.grade, surer.grade) == ("correlation", "job")
    assert surer.confidence > plain.confidence
    text = "step meter: step 45 ms, 20 ms without data wait; data wait 56 % of the step"
    assert surer.evidence[1].text == text
    assert surer.evidence[1].value == pytest.approx(55.6)


@pytest.mark.parametrize(("wait", "told"), [(1.0, False), (6.0, True), (None, True)])
def test_who_is_seen_to_wait_for_no_data_starves_of_something_else(wait: float | None, told: bool) -> None:
    verdict = starved(step_s=0.045, data_wait_percent=wait).verdict()
    assert (found(verdict, "starved-cpu-idle") is not None) is told


def test_the_straggler_is_named_by_its_meter_as_reported_by_the_job() -> None:
    finding = found(after(late(38.7)), "straggler")
    assert finding is not None
    assert finding.headline == "straggler rank 2 (GPU 2), dataloader-bound"
    assert finding.grade == "job"
    assert lines(finding)[0] == (
        "step meter: rank 2 waits 120 ms for data in each step, the others 5.0 ms: all 4 ranks take 310 ms per step"
    )
    assert finding.steps[0].text == "Balance sample cost across ranks, or raise num_workers"


@pytest.mark.parametrize("wait", [1.6, 9.0])
def test_a_rank_that_waits_for_data_a_little_longer_is_no_straggler(wait: float) -> None:
    assert found(after(late(wait)), "straggler") is None
