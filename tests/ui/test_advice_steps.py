"""Steps in few lines: their commands stand whole where they can."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gputop.diagnose import Step, Subject
from gputop.ui.advice import compact
from gputop.ui.advice.scene import AdviceScene
from gputop.ui.theme import Look
from tests.advice_scenes import NAMES, finding_list, found, hot, update

FAST = Step(
    text="let them run at full speed", command="sudo cpupower frequency-set -g performance", needs_root=True
)  # fmt: skip
LONG = Step(text="see what it does besides training", command=f"perf stat {'-e cycles ' * 12}-p 100")


def pane(step: Step, height: int, width: int = 80) -> list[str]:
    told = replace(update(found(subject=Subject(kind="host"), steps=(step,)), hot()), jobs=())
    scene = AdviceScene(update=told, finding_list=finding_list(told), look=Look(), keys=NAMES)
    return [strip.text.rstrip() for strip in compact.pane(scene, width, height)]


@pytest.mark.parametrize(
    ("height", "lines"),
    [
        (7, ["  try      let them…  sudo cpupower frequency-set -g performance   needs root"]),
        (
            12,
            [
                "  try      let them run at full speed",
                "           sudo cpupower frequency-set -g performance   needs root",
            ],
        ),
    ],
)
def test_a_command_is_whole_before_its_text_is(height: int, lines: list[str]) -> None:
    assert [line for line in pane(FAST, height) if line in lines] == lines


def test_a_command_that_is_cut_all_the_same_leaves_its_text_the_room() -> None:
    (line,) = [line for line in pane(LONG, 7) if "perf stat" in line]
    assert "see what it does besides training" in line
    assert line.endswith("…")
