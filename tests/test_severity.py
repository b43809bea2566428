"""One cause is as urgent in a rule, in a trace and in a profile."""

from __future__ import annotations

from pathlib import Path

import pytest

from gputop import thresholds
from gputop.profile import parse, report
from gputop.severity import LOST, by_lost_share
from gputop.trace.read import read
from gputop.trace.verdict import TraceView, all_verdicts
from tests.rule_cases import Machine, found
from tests.trace.test_trace_signatures import waiting


def test_the_scale_is_that_of_the_rules() -> None:
    engine = thresholds.shipped()["engine"]
    assert {f"lost_{name}": least for name, least in LOST} == {key: engine[key] for key in engine if "lost_" in key}


@pytest.mark.parametrize(
    ("lost", "severity"), [(None, "info"), (0.05, "info"), (0.1, "info"), (0.2, "warn"), (0.49, "warn"), (0.5, "crit")]
)
def test_by_what_is_lost(lost: float | None, severity: str) -> None:
    assert by_lost_share(lost) == severity
    assert by_lost_share(lost, "warn") == ("warn" if severity == "crit" else severity)


@pytest.mark.parametrize(("lost", "severity"), [(15, "info"), (30, "warn"), (60, "crit")])
def test_waiting_for_loaders_is_as_urgent_in_every_view(lost: int, severity: str, tmp_path: Path) -> None:
    machine = Machine(
        gpu={"busy_percent": 100.0 - lost, "tensor_percent": 20.0},
        trainer={"main_thread_percent": 10.0, "cpu_percent": 110.0},
        loader={"cpu_percent": 98.0, "main_thread_percent": 98.0},
        loaders=2,
    )
    of_rule = found(machine.verdict(300), "starved-cpu-idle")
    trace = TraceView(read(waiting(lost, "MultiProcessing").write(tmp_path / "made.json")))
    of_trace = next(one for one in all_verdicts(trace) if one.rule == "T03 input-bound")
    stacks = (
        f"process 1:train.py;MainThread;train (train.py:9);__next__ (torch/utils/data/dataloader.py:1);"
        f"_next_data (torch/utils/data/dataloader.py:2);get (queue.py:3) {lost}\n"
        f"process 1:train.py;MainThread;train (train.py:9);forward (train.py:5) {100 - lost}\n"
    )
    of_profile = next(point for point in report.page(parse(stacks), "x").points if "DataLoader" in point.text)
    assert of_profile.severity == of_trace.severity == severity
    # a GPU that loses 15 % is above the bar of starvation, so that the rule is silent
    assert (of_rule.severity if of_rule else "info") == severity
