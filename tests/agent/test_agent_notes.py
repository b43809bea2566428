"""What a program notes of itself: kept bounded, read without making a device wait, and watched where that is asked."""

from __future__ import annotations

import math
import subprocess
import sys
from importlib import import_module
from types import ModuleType
from typing import Any

import pytest

import gputop
from tests.process_watch import ROOT


@pytest.fixture
def marks(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module anew, without the agent that `import gputop.agent` starts."""
    package = ModuleType("agent_noting")
    package.__path__ = [str(ROOT / "gputop/agent")]
    monkeypatch.setitem(sys.modules, "agent_noting", package)
    monkeypatch.delitem(sys.modules, "agent_noting.marks", raising=False)
    return import_module("agent_noting.marks")


def values(marks: Any) -> dict[str, float]:
    return {name: value for name, _, _, value in marks.noted()["notes"]}


def test_without_an_agent_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "gputop_agent", raising=False)  # of another test
    gputop.note(loss=1.0)
    gputop.mark("epoch", 3)


def test_numbers_are_kept_by_name_with_the_step_and_what_is_none_is_left_out(marks: Any) -> None:
    marks.steps_made = lambda: 41
    marks.note({"loss": 2, "norm": 0.5})
    marks.note({"loss": 1.5, "text": "x", "nothing": None, "long": 10**400})
    assert values(marks) == {"loss": 1.5, "norm": 0.5}
    assert {step for _, _, step, _ in marks.noted()["notes"]} == {41}


def test_names_and_their_lengths_are_bounded(marks: Any) -> None:
    for number in range(1000):
        marks.note({f"{number:04}" * 100: 1.0})
    told = marks.noted()["notes"]
    assert len(told) == 24
    assert {len(name) for name, *_ in told} == {40}
    for _ in range(50):
        marks.mark("m" * 500)
    assert [len(name) for name, *_ in marks.noted()["marks"]] == [40] * 12


@pytest.mark.parametrize("kind", ["plain", "sharded"])
def test_tensors_are_read_as_seldom_as_they_must(kind: str) -> None:
    """In a program of its own: torch in the process of the tests would make a training of it."""
    command = [sys.executable, "-m", "tests.agent.noted_tensors", kind]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "as it should be\n"), done.stderr


@pytest.mark.parametrize("watches", [True, False])
def test_a_loss_that_is_no_number_is_an_event_only_where_it_is_watched(marks: Any, watches: bool) -> None:
    marks._watches = watches
    for step, value in enumerate((1.0, math.nan, math.nan, 2.0)):
        marks.steps_made = lambda step=step: step
        marks.note({"train_loss": value, "lr": math.inf})
    lost = marks.noted()["lost"]
    assert (lost is not None) is watches
    assert lost is None or (lost[0], lost[2]) == ("train_loss", 1)
    assert (marks.last_words() != "") is watches


@pytest.mark.parametrize(
    ("norms", "lost"),
    [
        ([(0, math.inf), (0, math.inf), (0, 4.0), (1, 3.0)], None),  # a scaler that finds its scale skips steps
        ([(0, 3.0), (1, math.inf), (1, 2.0), (2, math.inf), (2, 2.0)], None),  # and now and then one more
        ([(None, math.inf), (0, math.inf), (0, 3.0)], None),  # before steps are counted
        ([(0, 3.0), (1, math.inf), (None, math.inf)], None),  # and after
        ([(0, 3.0), (1, math.nan), (2, math.nan)], 1),
        ([(0, 3.0), (1, math.inf), (1, math.inf), (2, math.nan)], 1),
    ],
)
def test_a_gradient_norm_counts_where_a_step_was_made_with_it(
    marks: Any, norms: list[tuple[int | None, float]], lost: int | None
) -> None:
    marks._watches = True
    for step, norm in norms:
        marks.steps_made = lambda step=step: step
        marks.note({"grad_norm": norm})
    found = marks.noted()["lost"]
    assert (None if found is None else found[2]) == lost


def test_the_last_words_of_a_program_that_fails_name_the_step(marks: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    marks._watches, marks.steps_made = True, lambda: 7
    marks.note({"grad\x1b[2Jnorm": math.nan})
    assert marks.last_words() == "", "a scaler may still skip it"
    monkeypatch.setattr(sys, "last_type", ValueError, raising=False)
    assert marks.last_words() == (
        "gputop: grad?[2Jnorm was nan after 7 optimizer steps; `gputop recipe nan` finds the operation\n"
    )
