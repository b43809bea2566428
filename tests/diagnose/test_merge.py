"""What is well beside what is wrong."""

from __future__ import annotations

import pytest

from gputop.diagnose import Finding, Subject
from gputop.model import Process
from tests.diagnose.test_engine import finding, of_process, told


def test_nothing_is_called_healthy_beside_a_warning() -> None:
    healthy = of_process("gpu-bound-healthy", severity="info", healthy=True)
    assert [one.rule for one in told(healthy, of_process("starved-cpu-idle"))] == ["starved-cpu-idle"]


@pytest.mark.parametrize(
    ("trouble", "stays"),
    [
        (finding("thermal", "crit", lost_share=0.3, subject=Subject(kind="gpu", gpus=("H",))), True),
        (finding("thermal", "crit", lost_share=0.3), False),
        (of_process("starved-cpu-idle"), True),
        (finding("starved-cpu-idle", subject=Subject(kind="job", job="j")), False),
    ],
)
def test_a_card_stays_well_while_another_of_its_job_is_in_trouble(trouble: Finding, stays: bool) -> None:
    tenants = {uuid: [Process(pid=1, started_ticks=1, job="j")] for uuid in "GH"}
    full = finding("power", "info", healthy=True)
    assert ("power" in [one.rule for one in told(full, trouble, tenants=tenants)]) is stays


def test_what_cannot_be_judged_is_told_after_what_was() -> None:
    blind = finding("blind-spots", "info", confidence=1.0, subject=Subject(kind="host"))
    cut = finding("mig-visibility", "info", confidence=0.9)
    assert [one.rule for one in told(blind, cut)] == ["mig-visibility", "blind-spots"]
