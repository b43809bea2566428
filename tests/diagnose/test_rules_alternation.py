"""A main thread and a GPU that work by turns: what that thread does is the cause, unless something else may be."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gputop.demo import SCENARIOS
from gputop.demo.scenarios.parts import fault
from gputop.model import GpuShare, Identity, Job, Pressure
from tests.diagnose.test_rules_feed import changed
from tests.rule_cases import Machine, after, found
from tests.scenario_variants import alarms, leading, looks

BOTH = ("loader-in-main", "overhead-bound")
READS = {"read_chars_per_s": 12e6}
SMALL = {"sm_active_percent": 15.0}


def turns(main: float = 40.0, duty: float = 60.0, **changes: dict[str, Any]) -> Machine:
    """No loaders; a main thread that works so much, and sleeps while its GPU is busy."""
    trainer = {"cpu_percent": main + 2, "main_thread_percent": main}
    gpu = {"busy_percent": duty, "sm_active_percent": 0.8 * duty}
    return changed(Machine(gpu=gpu, trainer=trainer), changes)


def named(machine: Machine, seconds: int = 150) -> list[str]:
    said = machine.verdict(seconds)
    return [one.rule for one in said.findings if one.rule in (*BOTH, "starved-cause-unknown", "h2d-transfer-bound")]


@pytest.mark.parametrize(
    ("machine", "rule"),
    [
        (turns(trainer=READS), "loader-in-main"),
        (turns(25.0, 70.0, trainer=READS), "loader-in-main"),
        (turns(70.0, 30.0, trainer=READS), "loader-in-main"),
        (turns(50.0, 60.0, trainer=READS), "loader-in-main"),  # it prepares a little meanwhile
        (turns(), "loader-in-main"),  # large kernels: they do not wait to be launched
        (turns(gpu=SMALL), "overhead-bound"),
        (turns(55.0, 45.0, gpu=SMALL), "overhead-bound"),
        (turns(gpu=SMALL, trainer=READS), "loader-in-main"),
        (turns(trainer={"read_bytes_per_s": 40e6, **READS}), "loader-in-main"),  # read ahead: it never waits for it
        (turns(gpu={"pcie_rx_bytes_per_s": 3e9}), "h2d-transfer-bound"),
    ],
)
def test_a_main_thread_that_works_while_its_gpu_waits_is_the_cause(machine: Machine, rule: str) -> None:
    assert named(machine) == [rule]


@pytest.mark.parametrize(
    "changes",
    [
        {"trainer": {"cpu_percent": 80.0}},  # other threads work: it may wait for these
        {"trainer": {"main_thread_percent": 20.0, "cpu_percent": 22.0}},  # a fifth of the time nobody works
        {"trainer": {"main_thread_percent": 60.0, "cpu_percent": 62.0}},  # it may spin, or work beside the GPU
        {"trainer": {"blocked_percent": 25.0}},
        {"trainer": {"io_wait_percent": 25.0}},
        {"trainer": {"blocked_percent": None}, "host": {"io_pressure": Pressure(some_percent=30.0)}},
        {"trainer": {"waiting_in": "sk_wait_data"}},
        {"trainer": {"waiting_in": "pipe_read"}},
        {"trainer": {"waiting_in": "request_wait_answer"}},
        {"trainer": {"main_run_wait_percent": 60.0, "run_wait_percent": 60.0}},
        {"trainer": {"throttled_percent": 30.0}},
        {"host": {"receive_bytes_per_s": 40e6}},
    ],
)
def test_it_is_not_where_something_else_may_be(changes: dict[str, dict[str, Any]]) -> None:
    machine = turns(**{**changes, "trainer": {**READS, **changes.get("trainer", {})}})
    assert "loader-in-main" not in named(machine)
    assert "starved-cause-unknown" in named(machine) or machine.verdict(150).findings[0].rule not in BOTH


def test_a_thread_that_may_spin_while_data_come_in_is_not_the_cause() -> None:
    """As busy as its GPU, it may wait for that in a loop, and then for the network, with the GPU idle."""
    little = {"receive_bytes_per_s": 4e6}
    assert named(turns(50.0, 50.0, host=little)) == ["starved-cause-unknown"]
    assert named(turns(40.0, 60.0, host=little)) == ["loader-in-main"]
    assert named(turns(50.0, 50.0, host=little, trainer=READS)) == ["loader-in-main"], "it reads files"
    seen = {"waiting_in": "poll_schedule_timeout"}
    assert named(turns(50.0, 50.0, host=little, trainer=seen)) == ["loader-in-main"], "it sleeps elsewhere"


def waves(period_s: float, lag_s: float, **changes: dict[str, Any]) -> Machine:
    """Both half of the time, in steps that can be seen; the main thread begins so long after the GPU."""
    cpu = {"main_thread_percent": lambda t: 92.0 * ((t - lag_s) % period_s < period_s / 2)}
    cpu["cpu_percent"] = cpu["main_thread_percent"]
    machine = turns(trainer={**READS, **cpu}, gpu={"busy_percent": lambda t: 96.0 * (t % period_s < period_s / 2)})
    return changed(machine, changes)


@pytest.mark.parametrize(("lag_s", "cause"), [(6.0, True), (0.0, False), (1.0, False)])
def test_where_steps_can_be_seen_they_must_alternate(lag_s: float, cause: bool) -> None:
    machine = waves(12.0, lag_s)
    said = after(machine.frame, 152, 1)
    assert (found(said, "loader-in-main") is not None) == cause
    if cause:  # what comes over the network is then what it reads
        busy = changed(waves(12.0, lag_s), {"host": {"receive_bytes_per_s": 40e6}})
        assert found(after(busy.frame, 152, 1), "loader-in-main") is not None


def test_another_process_on_its_gpu_may_be_what_it_waits_for() -> None:
    machine = turns(trainer=READS)

    def frame(t: float) -> Any:
        one = machine.frame(t)
        mine = GpuShare(uuid="G", busy_percent=60.0, vram_bytes=2**30)
        other = replace(
            one.processes[0], pid=300, job="k", cpu_percent=5.0, main_thread_percent=5.0,
            gpus=(replace(mine, busy_percent=5.0),),
        )  # fmt: skip
        jobs = (*one.jobs, Job(key="k", name="k", ranks=(Identity(300, 1),)))
        return replace(one, processes=(replace(one.processes[0], gpus=(mine,)), other), jobs=jobs)

    assert found(after(frame), "loader-in-main") is None


def test_the_sum_is_the_evidence_and_the_steps_are_those_of_a_loader() -> None:
    finding = found(turns(trainer=READS).verdict(), "loader-in-main")
    assert finding is not None
    assert finding.headline == "dataloader-bound, main process loads data (num_workers=0)"
    texts = [item.text for item in finding.evidence]
    assert "main thread 40 % of a core + GPU 60 % = 100 %, alternating at 85 % to 115 %" in texts
    assert any("num_workers=" in (step.command or "") for step in finding.steps)
    perhaps = found(turns().verdict(), "loader-in-main")
    assert perhaps is not None
    assert perhaps.headline.startswith("main-thread-bound, data loading")
    assert perhaps.steps[0].action == "stack"


def test_what_the_chip_does_is_unknown_then_both_are_named() -> None:
    blind = dict.fromkeys(("sm_active_percent", "power_watts", "memory_busy_percent"))
    finding = found(turns(gpu=blind).verdict(), "starved-cause-unknown")
    assert finding is not None
    assert finding.headline.startswith("main-thread-bound")


@pytest.mark.parametrize(("duty", "main"), [(0.6, 40), (0.3, 70), (0.7, 28), (0.5, 55)])
@pytest.mark.parametrize("period_s", [0.15, 0.8, 6.0])
@pytest.mark.parametrize(("chars", "rule"), [(8e6, "loader-in-main"), (0.0, "overhead-bound")])
def test_on_a_simulated_server(duty: float, main: float, period_s: float, chars: float, rule: str) -> None:
    work = {"sm": 70, "tensor": 30, "watts": 450} if chars else {"sm": 20, "tensor": 2, "watts": 200}
    if not chars and period_s > 0.15:
        rule = "loader-in-main"  # gaps of so long are no launches
    made = fault(
        "x", "x", loaders=0, period_s=period_s, duty=duty, jitter=0.1, main_cpu=main, main_chars=chars, dram=20, **work
    )
    *_, (_, verdict) = looks(made, 320)
    assert rule in leading(verdict), alarms(verdict)


def test_the_unexplained_stays_unexplained() -> None:
    *_, (_, verdict) = looks(SCENARIOS["starved-cause-unknown"], 320)
    assert leading(verdict) == {"starved-cause-unknown"}
