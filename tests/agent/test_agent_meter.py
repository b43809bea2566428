"""The step meter in real trainings that measure themselves: it says the same of them, and they end as they would."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from statistics import median
from typing import Any

import pytest

from tests.process_watch import ROOT
from tests.traced_jobs import Job, job, scratch

PROGRAM = str(ROOT / "tests/workloads/metered.py")

pytestmark = pytest.mark.jobs


@pytest.fixture(scope="module")
def folder() -> Iterator[str]:
    with scratch() as folder:
        yield folder


def measured(running: Job, count: int = 25) -> dict[str, Any]:
    """What the meter says after so many steps."""
    agent, deadline_s = running.agent(), time.monotonic() + 60
    try:
        while (told := agent.answer("steps")["steps"])["count"] < count:
            assert time.monotonic() < deadline_s, told
            time.sleep(0.2)
        return dict(told)
    finally:
        agent.close()


def truth(running: Job) -> list[tuple[float, float, bool]]:
    """What it measured itself, of each step; it has ended as it does without the meter."""
    assert running.child.stdin is not None
    running.child.stdin.close()
    found = json.loads(running.line())
    assert (running.ended(), running.said) == (0, "")
    return [(took_s, wait_s, evaluated) for took_s, wait_s, evaluated in found]


def near(value: float, limit: float) -> Any:
    """As close as two clocks are that are read one after the other, on a machine that does other things too."""
    return pytest.approx(value, abs=0.002, rel=limit)


@pytest.mark.parametrize(
    ("kind", "step_ms", "batch_ms", "batches"),
    [
        ("plain", 20, 45, 1),  # the worker loads while the step runs
        ("plain", 45, 20, 1),
        ("alone", 20, 45, 1),  # one after the other
        ("several", 20, 45, 1),  # optimizers
        ("compiled", 20, 45, 1),
        ("accumulates", 10, 22, 4),
        ("framework", 20, 45, 1),  # a loader that is one batch ahead, a GradScaler
        ("closure", 20, 45, 1),  # forward and backward pass in the call of the optimizer
    ],
)
def test_each_step_is_told_as_the_program_measures_it(
    folder: str, kind: str, step_ms: int, batch_ms: int, batches: int
) -> None:
    with job(folder, kind, str(step_ms), str(batch_ms), program=PROGRAM) as running:
        told = measured(running)
        own = truth(running)[: told["count"]]
        assert told["on"], told
        single = told["steps"]
        assert median(took for _, took, *_ in single) == near(median(took for took, *_ in own), 0.1)
        assert median(waited for _, _, waited, *_ in single) == near(median(waited for _, waited, _ in own), 0.1)
        assert sum(took for _, took, *_ in single) == near(sum(took for took, *_ in own), 0.1)
        assert told["step_s"] == near(sum(took for took, *_ in own) / len(own), 0.1)
        assert told["wait_s"] == near(sum(waited for _, waited, _ in own) / len(own), 0.1)
        assert told["batches"] == batches
        assert told["samples_per_s"] * told["step_s"] == pytest.approx(4 * batches, rel=0.01)
        assert told["step_s"] >= batches * max(step_ms, batch_ms) / 1000 * 0.95
        if kind == "closure":
            assert told["optimizer_s"] is None
        else:
            assert told["optimizer_s"] < told["step_s"] / 2
        assert told["evaluated_s"] == 0


def test_an_evaluation_is_no_step(folder: str) -> None:
    with job(folder, "evaluates", program=PROGRAM) as running:
        told = measured(running, 45)
        own = truth(running)[: told["count"]]
        assert [bool(step[-1]) for step in told["steps"]] == [evaluated for *_, evaluated in own]
        assert sum(evaluated for *_, evaluated in own) >= 4
        assert told["evaluated_s"] == near(sum(took for took, _, evaluated in own if evaluated), 0.1)


def test_who_has_no_loader_waits_for_nobody_knows_how_long(folder: str) -> None:
    with job(folder, "no-loader", program=PROGRAM) as running:
        told = measured(running)
        assert (told["wait_s"], told["samples_per_s"], told["batches"]) == (None, None, None)
        assert told["step_s"] >= 0.019


def test_only_new_steps_are_told_singly(folder: str) -> None:
    with job(folder, "plain", program=PROGRAM) as running:
        first = measured(running)
        agent = running.agent()
        told = agent.answer("steps", since=first["count"])["steps"]
        assert len(told["steps"]) <= told["count"] - first["count"]
        assert agent.answer("steps", since=-1)["error"] == "bad-args"
        agent.close()


def test_slow_steps_say_which_part_of_them_was_slow(folder: str) -> None:
    with job(folder, "slow", "10", "4", program=PROGRAM) as running:
        told = measured(running, 60)
        planted = [each for each in told["slow_steps"] if each[1] >= 0.25]  # a busy machine adds its own
        assert 5 <= len(planted) <= told["count"] / 10 + 1
        assert told["slow"] >= len(told["slow_steps"])
        for when, took_s, phase in planted:
            (number, single) = next((n, one) for n, one in enumerate(told["steps"], 1) if abs(one[0] - when) < 0.002)
            assert took_s == pytest.approx(single[1])
            assert phase == {10: "data", 15: "rest"}[number % 20]


def test_what_it_notes_carries_the_step(folder: str) -> None:
    with job(folder, "notes", program=PROGRAM) as running:
        measured(running)
        agent = running.agent()
        answer = agent.answer("steps")
        agent.close()
        made, noted = answer["steps"]["count"] + 1, answer["noted"]
        by_name = {name: (step, value) for name, _, step, value in noted["notes"]}
        assert by_name["lr"] == (by_name["loss"][0], 0.01)
        assert made - 1 <= by_name["loss"][0] <= made
        epochs = [(name, value) for name, _, value in noted["marks"]]
        assert epochs[:2] == [("epoch", 0.0), ("epoch", 1.0)]
        assert (noted["watched"], noted["lost"]) == (False, None)


@pytest.mark.parametrize("watches", [True, False])
def test_a_job_that_dies_of_nan_says_at_which_step_it_began(
    folder: str, monkeypatch: pytest.MonkeyPatch, watches: bool
) -> None:
    monkeypatch.setenv("GPUTOP_WATCH_NAN", "1" if watches else "0")
    with job(folder, "nan", program=PROGRAM) as running:
        assert running.ended() == 1
        *_, error, last = ["", *running.said.splitlines()]
        if watches:
            assert last == "gputop: loss was nan after 12 optimizer steps; `gputop recipe nan` finds the operation"
        assert (error if watches else last) == "FloatingPointError: the loss is no number"


def test_it_can_be_switched_off(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUTOP_METER", "0")
    with job(folder, "plain", program=PROGRAM) as running:
        agent = running.agent()
        told = agent.answer("steps")["steps"]
        assert told == {"on": False, "why": "it was disabled when the job was started"}
        agent.close()
        assert truth(running)


def test_many_may_watch_the_steps_and_one_more_may_trace(folder: str) -> None:
    with job(folder, "plain", program=PROGRAM) as running:
        watching = [running.agent() for _ in range(8)]  # as many gputops
        assert all("count" in agent.answer("steps")["steps"] for agent in watching)
        assert running.capture()["state"] == "done"
        for agent in watching:
            agent.close()
