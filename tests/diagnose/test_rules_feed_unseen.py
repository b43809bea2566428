"""Loaders that are started anew, and a GPU that waits for nobody knows what: each fires, just does not, abstains."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gputop.diagnose.finding import POSSIBLE
from gputop.diagnose.rules.feed.worker_timing import WorkerTeams
from gputop.model import Frame, GpuShare, Missing, Pressure, Process, Role
from tests.diagnose.test_rules_feed import alone, changed, few
from tests.rule_cases import UNTOLD, Machine, after, found, judged, sampled, silent

WAITING = {"busy_percent": 40.0}


def restarting(every_s: int, dip_s: int, **changes: dict[str, Any]) -> Machine:
    """Eight loaders that are others every so often, and a GPU that idles meanwhile."""
    gpu = {"busy_percent": lambda t: 2.0 if t % every_s < dip_s else 97.0}
    loader = {"cpu_percent": 20.0, "started_ticks": lambda t: 1 + int(t // every_s)}
    return changed(Machine(gpu=gpu, loader=loader, loaders=8), changes)


@pytest.mark.parametrize(
    ("machine", "severity"),
    [
        (restarting(40, 3), "warn"),
        (restarting(40, 1), "info"),
        (restarting(40, 0), None),  # nothing is lost
        (restarting(40, 3, loader={"started_ticks": 1}), None),  # they are the same
        (restarting(40, 3, trainer={"write_bytes_per_s": lambda t: 9e7 if t % 40 < 3 else 0.0}), None),  # a checkpoint
        (restarting(40, 3, trainer={"write_bytes_per_s": 21e6}), "warn"),  # it writes all the time
        (restarting(40, 3, trainer={"write_chars_per_s": 21e6}), "warn"),  # through pipes to the new ones
        (restarting(40, 3, loader={"started_ticks": lambda t: 1 + int(t >= 40)}), None),  # once
    ],
)
def test_worker_respawn(machine: Machine, severity: str | None) -> None:
    finding = found(machine.verdict(205), "worker-respawn")
    assert (finding and finding.severity) == severity
    if finding:
        assert finding.steps[0].command == "DataLoader(..., persistent_workers=True)"
        assert finding.evidence[0].text.endswith("times, every 40 s")


@pytest.mark.parametrize("every_s", [2.0, 5.0, 8.0])
def test_worker_respawn_is_seen_by_rare_looks_at_uneven_times(every_s: float) -> None:
    machine = restarting(40, 4)
    times = [second + (0.3 if second % 3 else 0.0) for second in range(220)]
    *_, (_, said) = judged((machine.frame(t) for t in times), every_s=every_s)
    finding = found(said, "worker-respawn")
    assert finding is not None
    assert (finding.evidence[0].value or 0) >= 4  # none of those a minute after its start and later is missed
    assert finding.lost_share == pytest.approx(0.1, abs=0.02)


@pytest.mark.parametrize("every_s", [2.0, 5.0, 8.0])
@pytest.mark.parametrize("first", range(5))
def test_worker_respawn_may_take_some_seconds(first: int, every_s: float) -> None:
    machine = restarting(40, 4)

    def frame(t: float) -> Frame:
        whole = machine.frame(t)
        return replace(whole, processes=whole.processes[:1]) if t % 40 < 4 else whole

    *_, (_, said) = judged((frame(float(t)) for t in range(first, 220)), every_s=every_s)
    finding = found(said, "worker-respawn")
    assert finding is not None
    assert (finding.evidence[0].value or 0) >= 4


@pytest.mark.parametrize("every_s", [2.0, 5.0])
def test_an_evaluation_with_loaders_of_its_own_is_no_restart(every_s: float) -> None:
    machine = restarting(60, 0, gpu={"busy_percent": lambda t: 40.0 if t % 60 < 8 else 97.0})

    def frame(t: float) -> Frame:
        whole = machine.frame(t)
        others = tuple(replace(one, pid=one.pid + 500) for one in whole.processes[1:5])
        return replace(whole, processes=(whole.processes[0], *others)) if t % 60 < 8 else whole

    *_, (_, said) = judged((frame(float(t)) for t in range(400)), every_s=every_s)
    assert found(said, "worker-respawn") is None


def worker(pid: int, age_s: float, parent: int = 100) -> Process:
    return Process(pid=pid, started_ticks=pid, parent_pid=parent, age_s=age_s, name="pt_data_worker", role=Role.LOADER)


def test_workers_that_start_one_after_the_other_are_one_team_and_the_next_epochs_are_another() -> None:
    teams, first = WorkerTeams(), [worker(pid, 500.0) for pid in range(200, 208)]
    teams.look(first, 100.0, 5.0)
    teams.look([], 102.0, 5.0)
    for look in range(1, 5):  # one every two seconds, seen in the middle
        teams.look([worker(300 + n, 2.0 * (look - n) - 1.0) for n in range(look)], 102.0 + 2 * look, 5.0)
    assert [(one.from_s, one.last_s, len(one.team)) for one in teams.starts] == [(103.0, 109.0, 4)]
    teams.look([worker(400 + n, 1.0) for n in range(2)], 112.0, 5.0)  # the others are gone
    teams.look([worker(400 + n, 3.0) for n in range(2)] + [worker(500, 0.5)], 114.0, 5.0)
    assert [len(one.team) for one in teams.starts] == [4, 3]


def epochs(
    train_s: float, validate_s: float, start_s: float, teams: tuple[int, int], validating: float = 97.0
) -> Callable[[float], Frame]:
    """Training and validation take turns, each with its own workers, which take so long until the first batch.

    No workers are there for two seconds before each; as on a real machine they tell how old they are.
    """
    period_s = train_s + validate_s

    def busy(t: float) -> float:
        into_s = t % period_s
        since_s = into_s if into_s < train_s else into_s - train_s
        return 0.0 if since_s < start_s else 97.0 if into_s < train_s else validating

    machine = Machine(gpu=sampled(busy))

    def frame(t: float) -> Frame:
        one, into_s, epoch = machine.frame(t), t % period_s, int(t // period_s)
        validates = into_s >= train_s
        since_s = into_s - train_s if validates else into_s
        count = 0 if since_s < 2 else teams[validates]
        first = 1000 + 50 * (2 * epoch + validates)
        workers = tuple(replace(worker(first + n, since_s - 2.0), job="j", cpu_percent=20.0) for n in range(count))
        return replace(one, processes=(one.processes[0], *workers))

    return frame


@pytest.mark.parametrize("teams", [(8, 4), (8, 8), (8, 0)])
@pytest.mark.parametrize(
    ("train_s", "validate_s", "start_s", "seconds", "severity"),
    [
        (60.0, 25.0, 5.0, 200, "warn"),
        (90.0, 40.0, 12.0, 290, "warn"),
        (60.0, 30.0, 15.0, 200, "warn"),
        (25.0, 12.0, 3.5, 120, "warn"),
        (400.0, 60.0, 3.0, 900, None),  # that is nothing
    ],
)
def test_teams_that_take_turns_are_seen_whatever_their_sizes(
    teams: tuple[int, int], train_s: float, validate_s: float, start_s: float, seconds: int, severity: str | None
) -> None:
    if not teams[1]:  # validation loads in its own process, at once
        frame = epochs(train_s + validate_s, 0.0, start_s, teams)
    else:
        frame = epochs(train_s, validate_s, start_s, teams)
    seen = [said for _, said in judged(frame(float(t)) for t in range(round(1.4 * seconds)))]
    finding = found(seen[-1], "worker-respawn")
    assert (finding and finding.severity) == severity
    if finding:
        starts = 2 if teams[1] else 1
        assert finding.primary
        assert finding.lost_share == pytest.approx(starts * start_s / (train_s + validate_s), rel=0.25)
        assert finding.steps[0].command == "DataLoader(..., persistent_workers=True)"
        if teams == (8, 4):
            assert "8 and 4 workers" in finding.evidence[0].text or "4 and 8 workers" in finding.evidence[0].text
    assert {one.rule for said in seen for one in said.findings if one.severity != "info"} <= {"worker-respawn"}


def test_the_end_of_the_first_epoch_is_no_trouble() -> None:
    """Validation starts its workers, training starts its own again: once, as in an epoch of hours."""
    frame = epochs(300.0, 30.0, 6.0, (8, 4))
    said = after(lambda t: frame(t + 100), 320, 2)
    assert found(said, "worker-respawn") is None
    assert found(said, "gpu-bound-healthy") is not None


def test_a_checkpoint_before_workers_start_is_not_their_cost() -> None:
    frame = epochs(60.0, 0.0, 9.0, (8, 8))

    def saves(t: float) -> Frame:
        one = frame(t)
        rate = 400e6 if 1.0 <= t % 60.0 < 6.0 else 900.0
        workers = [replace(each, age_s=(each.age_s or 0.0) - 4.0) for each in one.processes[1:]]
        there = [each for each in workers if (each.age_s or 0.0) >= 0]
        return replace(one, processes=(replace(one.processes[0], write_chars_per_s=rate), *there))

    said = after(saves, 400, 1)
    saving, starting = (
        next(one for one in (found(said, rule), found(said, "worker-respawn")) if one)
        for rule in ("checkpoint-stall", "worker-respawn")
    )
    assert "checkpoint-stall" in (*saving.causes, saving.rule)
    assert starting.rule == "worker-respawn"
    texts = " ".join(item.text for item in (*saving.evidence, *starting.evidence))
    assert "GPU idle 6." in texts or "GPU idle 5." in texts
    assert "GPU idle 3." in texts or "GPU idle 2." in texts


def test_worker_respawn_abstains_where_the_gpu_does_not_say_how_busy_it_is() -> None:
    hidden = {
        "busy_percent": lambda t: 97.0 if t < 70 else None,
        "sm_active_percent": None,
        "missing": (Missing(metric="busy_percent", reason="unsupported"),),
    }
    assert silent(restarting(20, 2, gpu=hidden, trainer={"gpus": UNTOLD}).verdict(130), "worker-respawn")


def unexplained(**changes: dict[str, Any]) -> Machine:
    """No loaders, and a main thread that mostly sleeps."""
    trainer = {"cpu_percent": 30.0, "main_thread_percent": 30.0}
    return changed(Machine(gpu=dict(WAITING), trainer=trainer), changes)


@pytest.mark.parametrize(
    ("machine", "fires"),
    [
        (unexplained(), True),
        (unexplained(gpu={"busy_percent": 81.0}), False),
        (unexplained(trainer={"command": ("python", "-m", "ipykernel_launcher")}), False),
        (unexplained(trainer={"command": ("python", "serve.py")}), False),
        (few(), False),  # another rule knows why
    ],
)
def test_starved_cause_unknown(machine: Machine, fires: bool) -> None:
    finding = found(machine.verdict(150), "starved-cause-unknown")
    assert (finding is not None) == fires
    if finding:
        texts = [item.text for item in finding.evidence]
        assert "ruled out: CPU 2 % of 16 cores" in texts
        assert texts[-1] == "not visible: I/O pressure (PSI); network receives"
        assert (finding.severity, finding.steps[0].action) == ("warn", "stack")


def test_starved_cause_unknown_knows_no_cores_where_nobody_does() -> None:
    told = found(unexplained(trainer={"allowed_cpus": None}).verdict(150), "starved-cause-unknown")
    assert told is not None
    assert "cores" not in " ".join(item.text for item in told.evidence)


@pytest.mark.parametrize(
    ("trainer", "told"),
    [
        ({"command": ("python", "train.py")}, True),
        ({"command": ("python", "app.py")}, False),  # it may wait for whoever uses it
        ({"command": ("ray::PPO.train()",)}, False),
        ({"command": ("python", "app.py"), "world_size": 2}, True),
    ],
)
def test_who_does_not_look_like_training_is_only_suspected(trainer: dict[str, Any], told: bool) -> None:
    finding = found(unexplained(trainer=trainer).verdict(150), "starved-cause-unknown")
    assert finding is not None
    assert finding.severity == ("warn" if told else "info")
    assert (finding.confidence >= POSSIBLE) == told


def test_what_it_cannot_rule_out_comes_first() -> None:
    host = {"io_pressure": Pressure(some_percent=12.0), "receive_bytes_per_s": 1e6}
    finding = found(unexplained(host=host).verdict(150), "starved-cause-unknown")
    assert finding is not None
    assert finding.headline == "GPU starved, cause unknown; not ruled out: I/O pressure (PSI) 12 %"
    assert finding.evidence[1].text == "not ruled out: I/O pressure (PSI) 12 %"
    assert not any("not visible" in item.text for item in finding.evidence)


def test_loading_and_launching_look_the_same_where_nothing_is_read_and_the_chip_works() -> None:
    said = alone(trainer={"read_chars_per_s": 0.0}).verdict(150)
    finding = found(said, "starved-cause-unknown")
    assert finding is not None
    assert finding.headline.startswith("main-thread-bound, data loading or kernel launches")
    assert found(said, "overhead-bound") is None
    assert found(said, "loader-in-main") is None


OFFLOADED = {"cpu_percent": 700.0, "busy_threads": 16}
BOTH_WAYS = {"pcie_rx_bytes_per_s": 4e9, "pcie_tx_bytes_per_s": 4e9}


@pytest.mark.parametrize(
    ("gpu", "trainer", "suspected"),
    [
        (BOTH_WAYS, OFFLOADED,
         ["16 compute threads active, maybe a CPU optimizer",
          "PCIe 4.0/4.0 GB/s both ways, maybe states or weights in host memory"]),
        (BOTH_WAYS | {"pcie_tx_bytes_per_s": 0.5e9}, {"cpu_percent": 300.0, "busy_threads": 3}, []),
        ({}, {"world_size": 4}, ["waiting for other ranks or stages"]),
    ],
)  # fmt: skip
def test_a_main_thread_that_is_not_alone_is_no_more_than_suspected(
    gpu: dict[str, Any], trainer: dict[str, Any], suspected: list[str]
) -> None:
    finding = found(Machine(gpu={"busy_percent": 60.0, **gpu}, trainer=trainer).verdict(150), "starved-cause-unknown")
    assert finding is not None
    clue = "main thread 100 % of a core"
    assert finding.headline == f"GPU starved, cause unknown; not ruled out: {clue}"
    texts = [item.text.removeprefix("not ruled out: ") for item in finding.evidence if "not ruled" in item.text]
    assert texts[0] == "main thread 100 % of a core"
    assert texts[1:] == suspected
    assert not any("torch.compile" in (step.command or "") for step in finding.steps)


def test_a_program_of_several_gpus_may_wait_for_each_of_them() -> None:
    machine = Machine(gpu={"busy_percent": 75.0}, trainer={"libraries": ("jax", "cuda")})

    def frame(t: float) -> Frame:
        one = machine.frame(t)
        shares = tuple(GpuShare(uuid=f"G{n}", vram_bytes=30 * 2**30) for n in range(4))
        cards = tuple(replace(one.gpus[0], uuid=f"G{n}", index=f"{n}") for n in range(4))
        return replace(one, gpus=cards, processes=(replace(one.processes[0], gpus=shares),))

    finding = found(after(frame, 150), "starved-cause-unknown")
    assert finding is not None
    assert finding.headline == "GPU starved, cause unknown; not ruled out: main thread 100 % of a core"
    assert "not ruled out: waiting for other ranks or stages" in [item.text for item in finding.evidence]


@pytest.mark.parametrize(("libraries", "torch"), [((), True), (("torch",), True), (("jax", "cuda"), False)])
def test_only_pytorch_is_told_what_pytorch_can_do(libraries: tuple[str, ...], torch: bool) -> None:
    said = alone(trainer={"read_chars_per_s": 0.0, "libraries": libraries}).verdict(150)
    finding = found(said, "starved-cause-unknown")
    assert finding is not None
    assert any("torch.compile" in (step.command or "") for step in finding.steps) == torch
    assert any("DataLoader" in (step.command or "") for step in finding.steps) == torch


@pytest.mark.parametrize(("cpus", "workers"), [(4.0, 2), (16.0, 8), (64.0, 8)])
def test_loaders_to_begin_with_fit_the_cpus(cpus: float, workers: int) -> None:
    trainer = {"main_thread_percent": 99.0, "allowed_cpus": cpus, "cpu_percent": 100.0}
    finding = found(Machine(gpu={"busy_percent": 60.0}, trainer=trainer).verdict(150), "starved-cause-unknown")
    assert finding is not None
    commands = [step.command for step in finding.steps if "DataLoader" in (step.command or "")]
    assert commands == [f"DataLoader(..., num_workers={workers})"]
