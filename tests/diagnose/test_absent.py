"""Where there is no GPU to look at, every rule that goes by one says so, and nothing is found."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gputop.diagnose import Finding
from gputop.diagnose.finding import Abstained
from gputop.diagnose.rules import RULES
from gputop.model import Frame, Note
from gputop.monitor import Update
from gputop.ui.advice.pages import PAGES
from gputop.ui.advice.scene import AdviceScene
from gputop.ui.theme import Look
from tests.advice_scenes import NAMES, finding_list
from tests.rule_cases import Machine, after

OFF = Note(subject="driver", key="off", text="The NVIDIA driver is not queried (--no-nvml).")
NOT_LOADED = Note(subject="driver", key="not-loaded", text="The NVIDIA driver is not loaded.")
ALONE = {"memory-pressure", "shm-nearly-full", "cpu-slow", "seen-inside", "non-finite", "self-overhead", "blind-spots"}
ABOUT = {"thermal", "power", "hw-errors", "gpu-bound-healthy", "starved-cpu-idle", "io-bound", "zombie-memory"}


def without(*notes: Note) -> tuple[tuple[Finding, ...], tuple[Abstained, ...], Frame]:
    machine = Machine()

    def frame(t: float) -> Frame:
        one = machine.frame(t)
        processes = tuple(replace(process, gpus=()) for process in one.processes)
        return replace(one, gpus=(), notes=notes, processes=processes)

    said = after(frame, 60)
    return said.findings, said.abstained, frame(60.0)


@pytest.mark.parametrize(
    ("notes", "why"),
    [
        ((OFF,), "The NVIDIA driver is not queried (--no-nvml); run gputop doctor for help"),
        ((NOT_LOADED,), "The NVIDIA driver is not loaded; run gputop doctor for help"),
        ((), "the driver lists no GPU; run gputop doctor for help"),
    ],
)
def test_each_rule_that_goes_by_a_gpu_says_why_it_cannot(notes: tuple[Note, ...], why: str) -> None:
    findings, abstained, _ = without(*notes)
    assert findings == ()
    by_rule = {one.rule: one for one in abstained if one.unlock == why}
    assert by_rule.keys() >= ABOUT
    assert by_rule.keys() >= {rule.id for rule in RULES.values() if "busy_percent" in rule.needs}
    assert by_rule.keys() == {rule.id for rule in RULES.values() if not rule.alone}
    assert RULES.keys() - by_rule.keys() == ALONE
    assert {missing.reason for one in by_rule.values() for missing in one.missing} == {"absent"}


def test_where_there_is_one_nobody_says_so() -> None:
    assert not [one for one in after(Machine().frame, 60).abstained if "says what helps" in (one.unlock or "")]


def test_the_page_tells_them_together() -> None:
    _, abstained, shown = without(NOT_LOADED)
    update = Update(frame=shown, abstained=abstained)
    page = next(page for page in PAGES if page.name == "skipped checks")
    scene = AdviceScene(update=update, finding_list=finding_list(update), look=Look(), keys=NAMES)
    lines = [line.strip(120).text.strip() for line in page.body(scene, 120)]
    heads = [line for line in lines if line.endswith(f"checks skipped  {shown.hostname}")]
    assert len(heads) == 1
    assert any(line.startswith("missing   GPU processes (absent), ") for line in lines), "with the metrics they lack"
    assert sum(NOT_LOADED.text.rstrip(".") in line for line in lines) == 1
