"""The four task classes: a case for each, cases beside them, and the questions that were asked."""

from __future__ import annotations

import re
from typing import Any

import pytest

from gputop.diagnose.workload_class import QUESTION, WorkloadFacts, confidence, decide
from tests.rule_cases import LIMITS, Machine, refused, scenario

LENET = WorkloadFacts(
    duty=0.3, sigma=4, low=25, peak=36, empty=0, slow_steps=False, cores=1.6, allowed=16, loaders_busy=False,
    waits_for_loaders=False, power_share=0.15, sm=0.1, tensor=0.01,
)  # fmt: skip
RESNET = LENET._replace(
    duty=0.4, sigma=45, low=0, peak=100, empty=0.4, slow_steps=True, cores=15.4, loaders_busy=True, power_share=0.4
)
LLM = LENET._replace(duty=0.98, sigma=3, low=92, peak=100, cores=1.2, power_share=0.9, sm=0.9, tensor=0.55)
VIDEO = LENET._replace(duty=0.72, sigma=25, low=20, peak=100, empty=0.03, slow_steps=True, cores=13, loaders_busy=True)

LIMIT = LIMITS["classes"].__getitem__


@pytest.mark.parametrize(
    ("facts", "name"),
    [(LENET, "small/simple"), (RESNET, "small/complex"), (LLM, "large/simple"), (VIDEO, "large/complex")],
)
def test_the_four(facts: WorkloadFacts, name: str) -> None:
    found = decide(7, facts, LIMIT)
    assert (found.pid, found.name) == (7, name)
    assert found.margin is not None
    assert found.margin >= 0.05
    assert len(found.path) >= 3
    assert all(question.endswith("?") for question, _ in found.path)
    assert not [
        answer
        for _, answer in found.path
        if not re.fullmatch(r"yes(, [\d.]+( %| points| cores) \(yes if [≥≤] \S+( %| points| cores)\))?", answer)
    ]


@pytest.mark.parametrize(
    ("facts", "changes"),
    [
        (LENET, {"peak": 80}),
        (LENET, {"power_share": 0.6}),
        (LENET, {"waits_for_loaders": True}),
        (RESNET, {"cores": 9.0}),
        (LLM, {"duty": 0.85}),
        (LLM, {"sigma": 9}),
        (LLM, {"cores": 9.0}),
        (LLM, {"effective": False}),
        (VIDEO, {"sigma": 8, "low": 65}),
    ],
)
def test_undecided_beside_them_and_says_what_is_near(facts: WorkloadFacts, changes: dict[str, Any]) -> None:
    found = decide(7, facts._replace(**changes), LIMIT)
    assert found.name == "undecided"
    assert len(found.path) == 2
    assert all(question.startswith("nearest: ") for question, _ in found.path)


def test_short_steps_pulse_where_loaders_are_busy() -> None:
    flat = RESNET._replace(slow_steps=False, sigma=5, low=35, peak=46, empty=0)
    assert decide(7, flat, LIMIT).name == "small/complex"
    assert decide(7, flat._replace(loaders_busy=False), LIMIT).name == "undecided"


def test_confidence_grows_with_the_margin() -> None:
    assert confidence(0) == 0.5
    assert 0.57 < confidence(0.05) < confidence(0.5) < 1


@pytest.mark.parametrize(
    ("name", "expected", "bound"),
    [("healthy", "large/simple", "compute-bound"), ("starved-cpu-saturated", "small/complex", "overhead")],
)
def test_of_a_scenario(name: str, expected: str, bound: str) -> None:
    _, said = scenario(name)[-1]
    assert [(one.name, one.regime) for one in said.classes] == [(expected, bound)]


@pytest.mark.parametrize(
    ("name", "until_s"), [("busy-not-effective", 320), ("collective-wait", 320), ("collective-wait-hang", 320)]
)
def test_a_gpu_that_is_busy_in_vain_is_no_large_and_simple_task(name: str, until_s: float) -> None:
    _, said = scenario(name, until_s)[-1]
    assert said.classes
    for task in said.classes:
        assert task.name == "undecided"
        if "nearest: large model, simple data" in dict(task.path):
            assert dict(task.path)["nearest: large model, simple data"].startswith("is effective work confirmed? no")
    assert any("nearest: large model, simple data" in dict(task.path) for task in said.classes)


def test_who_may_be_a_rank_that_spins_is_no_large_and_simple_task_either() -> None:
    spins = {"sm_active_percent": 12.0, "tensor_percent": 0.0, "dram_percent": 0.6}
    for trainer in (refused("world_size"), {"world_size": 2}):
        (task,) = Machine(gpu=spins, trainer=trainer).verdict(150).classes
        assert task.name == "undecided"


def test_who_pauses_again_and_again_is_asked_too() -> None:
    _, said = scenario("worker-respawn", until_s=300)[-1]
    assert len(said.classes) == 1
    assert dict(said.classes[0].path)["is the GPU busy 90 % of the time?"].startswith(("yes, 9", "no, 8"))


@pytest.mark.parametrize(
    ("gpu", "bound", "numbers"),
    [
        ({"dram_percent": 62.0, "tensor_percent": 5.0},
         "memory-bound", "5 %, 62 %, 97 %"),
        ({"dram_percent": 62.0},
         "compute- and memory-bound", "50 %, 62 %, 97 %"),
        ({"busy_percent": 45.0},
         "overhead", "50 %, 38 %, 45 %"),
        ({"sm_active_percent": 3.0, "tensor_percent": 0.0, "dram_percent": 1.0},
         None, "0 %, 1 %, 97 %"),
        (refused("sm_active_percent", "tensor_percent", "dram_percent", "fp32_percent"),
         "compute-bound", "84 %, 50 %, 97 %"),
        (refused("sm_active_percent", "tensor_percent", "dram_percent", "fp32_percent", "power_watts"),
         None, "50 %, 97 %"),
    ],
    ids=["memory", "both", "overhead", "neither", "no units", "no power"],
)  # fmt: skip
def test_compute_memory_or_overhead_by_three_numbers(gpu: dict[str, Any], bound: str | None, numbers: str) -> None:
    (found,) = Machine(gpu=gpu).verdict(140).classes
    assert found.regime == bound
    at = next(place for place, (question, _) in enumerate(found.path) if question == QUESTION)
    assert found.path[at][1].partition(":")[0] == (bound or "not known")
    shares = found.path[at + 1 : at + 2 + numbers.count(",")]
    assert ", ".join(share for _, share in shares) == numbers
    assert shares[-1][0] == "CPU-GPU overlap"


@pytest.mark.parametrize(
    ("trainer", "question", "answer"),
    [
        (refused("throttled_percent"), "is it throttled by its CPU quota?", "not known"),
        ({"throttled_percent": 30.0}, "is it throttled by its CPU quota?", "yes, 30 % of periods"),
        (refused("run_wait_percent"), "are there more threads than CPUs?", "not known"),
    ],
)
def test_what_is_unknown_is_answered_with_that(trainer: dict[str, Any], question: str, answer: str) -> None:
    (task,) = Machine(gpu={"busy_percent": 50.0}, trainer=trainer).verdict(90).classes
    assert dict(task.path)[question] == answer


def test_the_path_holds_what_all_trainers_do_together() -> None:
    _, said = scenario("threads-host", until_s=300)[-1]
    answers = {dict(task.path)["do all trainers together have more threads than CPUs?"] for task in said.classes}
    assert answers == {"yes, 4.0 times: 128 of 4 on 32"}


def test_the_path_asks_the_rules_for_the_cause_and_says_what_they_rest_on() -> None:
    slow = {"cpu_governor": "powersave", "cpu_driver": "acpi-cpufreq", "cpu_max_mhz": 3800.0, "cpu_mhz": 1200.0}
    (task,) = Machine(gpu={"busy_percent": 50.0}, host=slow).verdict(150).classes
    path = dict(task.path)
    assert path["do the CPUs run below their maximum clock?"] == "yes, CPU governor powersave, driver acpi-cpufreq"
    assert path["is host memory short?"] == "no"
    assert not any("straggler" in question or "slow one" in question for question in path), "it is one process"
    (task,) = Machine(gpu={"busy_percent": 50.0}, trainer={"world_size": 4}).verdict(150).classes
    path = dict(task.path)
    assert path["do the CPUs run below their maximum clock?"] == "not known, no cpufreq governor"
    assert path["do all ranks wait for a straggler?"] == "no"


def test_a_busy_trainer_is_not_asked_why_it_waits() -> None:
    (task,) = Machine(gpu={"busy_percent": 97.0}, trainer={"world_size": 4}).verdict(150).classes
    assert "is host memory short?" not in dict(task.path)
    assert "do ranks wait in a collective?" in dict(task.path)


def test_who_hides_how_many_ranks_there_are_is_not_said_to_wait_for_none() -> None:
    (task,) = Machine(trainer=refused("world_size")).verdict(150).classes
    path = dict(task.path)
    assert path["is it one of several ranks?"] == "not known, no WORLD_SIZE"
    assert "do ranks wait in a collective?" not in path


def test_whoever_waits_for_storage_is_asked_which() -> None:
    _, said = scenario("network-fs-bound", until_s=200)[-1]
    path = dict(said.classes[0].path)
    questions = list(path)
    at = questions.index("do they wait for storage?")
    assert path[questions[at]].startswith("yes, ")
    assert path[questions[at + 1]].startswith("yes, /data (nfs4) "), questions[at + 1]
