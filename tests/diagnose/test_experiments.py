"""The experiments of a machine side by side: what each takes, who slows whom, and what would fit."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from gputop.demo import SCENARIOS, Demo
from gputop.diagnose.engine import Engine
from gputop.diagnose.experiments import Experiment, Together, together
from gputop.diagnose.rules.cpu.threads import thread_variables
from gputop.history import History
from gputop.model import Disk, Frame, Gpu, GpuShare, Identity, Job, Pressure, Process
from gputop.ui.advice.experiments import experiments
from gputop.ui.advice.scene import AdviceScene
from gputop.ui.theme import Look
from tests.advice_scenes import finding_list, update
from tests.rule_cases import LIMITS, Machine, refused


def seen(frames: list[Frame]) -> Together:
    """What is said of the last of these frames."""
    engine, history = Engine(lambda: LIMITS), History()
    for frame in frames:
        history.add(frame)
        engine.remember(frame, history)
    return together(frames[-1], history, LIMITS, engine.judge(frames[-1], history).contention)


@cache
def at(name: str, t: int) -> Together:
    demo = Demo(SCENARIOS[name], pace=False, anchor_s=1.795e9, at_s=0.0)
    return seen([demo.frame(float(second)) for second in range(t - 40, t)])


def alone(machine: Machine) -> Experiment:
    (one,) = seen([machine.frame(float(t)) for t in range(40)]).experiments
    return one


def test_four_experiments_with_a_thread_for_every_cpu() -> None:
    told = at("threads-host", 300)
    assert (told.cpus, told.threads_asked, told.crowded) == (32, 128, True)
    assert [one.name for one in told.experiments] == [f"sweep-{number}" for number in range(4)]
    for number, one in enumerate(told.experiments):
        assert len(one.gpus) == len(one.trainers) == 1
        assert (one.threads_asked, one.loaders, one.cpus_allowed) == (32, 2, 32.0)
        assert one.cores == pytest.approx(7.5, abs=0.4)
        assert one.cpu_wait_percent == pytest.approx(70, abs=5)
        keys = {other.key for other in told.experiments}
        assert {other.experiment for other in one.slowed_by} == keys - {one.key}
        assert {other.resource for other in one.slowed_by} == {"cpu"}
        own = f"{8 * number}-{8 * number + 7}"
        assert (one.fit.threads, one.fit.loaders) == (8, None)
        assert one.fit.prefix == f"{thread_variables(8)} taskset -c {own}"


def test_experiments_of_one_name_are_told_apart() -> None:
    told = at("threads-host", 300)
    alike = replace(told, experiments=tuple(replace(one, name="train.py") for one in told.experiments))
    alike = replace(
        alike, experiments=tuple(replace(one, gpus=()) for one in alike.experiments[:2]) + alike.experiments[2:]
    )
    scene = AdviceScene(update=update(), finding_list=finding_list(update()), look=Look(), together=lambda: alike)
    text = "\n".join(line.strip(200).text for line in experiments(scene, 200))
    first, second = (one.trainers[0].pid for one in alike.experiments[:2])
    assert f"train.py pid {first}" in text
    assert f"train.py pid {second} (uses 2" in text, "who slows, and how much"
    assert "sweep-" not in text.split("slowed by")[1]


def test_before_they_fight_nobody_slows_anybody() -> None:
    told = at("threads-host", 110)
    assert not told.crowded
    assert [one.slowed_by for one in told.experiments] == [()] * 4


def test_a_build_beside_an_experiment() -> None:
    told = at("neighbour", 300)
    (one,) = told.experiments
    (other,) = one.slowed_by
    assert (other.name, other.experiment, other.resource) == ("stress-ng of user bob", None, "cpu")
    assert other.share == pytest.approx(0.9, abs=0.02)
    assert one.fit.prefix == "taskset -c 0-7", "half of them, near its GPU; and the thread it has"
    assert told.moved_bytes_per_s is not None
    assert one.io_share == pytest.approx(6e6 / told.moved_bytes_per_s, rel=0.1)


def test_what_is_hidden_is_unknown() -> None:
    (one,) = at("blind-spots", 200).experiments
    assert (one.threads_asked, one.read_bytes_per_s, one.io_share) == (None, None, None)
    assert one.cores is not None


@pytest.mark.parametrize(
    ("trainer", "own", "threads"),
    [
        ({"affinity": "0-15"}, "", 16),
        ({"affinity": "4-7", "allowed_cpus": 4.0}, "", 4),
        ({"affinity": "0-15", "allowed_cpus": 2.5}, "taskset -c 8-9", 2),  # a quota; and near its GPU
        ({}, "", 16),
    ],
)
def test_no_more_than_it_may_use(trainer: dict[str, Any], own: str, threads: int) -> None:
    """It has more threads than CPUs can take: it gets CPUs of its own, if these are not all it has."""
    one = alone(Machine(trainer=trainer | {"busy_threads": 40}, gpu={"local_cpus": "8-15"}))
    assert one.fit.threads == threads
    assert one.fit.prefix == f"{thread_variables(threads)} {own}".strip()


@pytest.mark.parametrize(
    ("loaders", "cpu", "busy", "fit"),
    [(2, 97.0, 50.0, 5), (2, 97.0, 90.0, None), (2, 60.0, 50.0, None), (40, 10.0, 95.0, 15), (0, 0.0, 50.0, None)],
)
def test_loaders_that_feed_the_gpu_and_fit(loaders: int, cpu: float, busy: float, fit: int | None) -> None:
    machine = Machine(gpu={"busy_percent": busy}, loader={"cpu_percent": cpu}, loaders=loaders)
    assert alone(machine).fit.loaders == fit


@pytest.mark.parametrize(
    ("loaders", "cpu", "busy", "fit"),
    [
        (0, 0.0, 50.0, None),
        (6, 50.0, 95.0, None),
        (2, 97.0, 50.0, 5),
        (16, 97.0, 50.0, None),  # all of them are needed
        (40, 20.0, 95.0, 15),  # fifteen do what forty did
        (40, 20.0, 50.0, None),  # they wait, and there are CPUs for all
        (40, 80.0, 50.0, 15),  # they are in each other's way
    ],
)
def test_fewer_loaders_only_where_there_are_more_than_cpus_for_their_work(
    loaders: int, cpu: float, busy: float, fit: int | None
) -> None:
    machine = Machine(gpu={"busy_percent": busy}, loader={"cpu_percent": cpu}, loaders=loaders)
    assert alone(machine).fit.loaders == fit


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("starved-cpu-saturated-shared", 0),
        ("cpu-slow", 0),
        ("showcase", 0),
        ("gpu-shared", 0),
        ("threads-host", 4),
        ("starved-cpu-idle", 1),
    ],
)
def test_nothing_is_said_where_nothing_would_change(name: str, lines: int) -> None:
    scene = AdviceScene(
        update=update(), finding_list=finding_list(update()), look=Look(), together=lambda: at(name, 300)
    )
    text = [line.strip(200).text for line in experiments(scene, 200)]
    assert sum("restart with" in line for line in text) == lines


def test_what_it_says_can_be_run_and_every_share_names_its_whole() -> None:
    """The command is whole, the part of the others is said, and a high wait is no plain number."""
    told = at("threads-host", 300)
    now = replace(update(), frame=Demo(SCENARIOS["threads-host"], pace=False, anchor_s=1.795e9, at_s=0.0).frame(300.0))
    scene = AdviceScene(update=now, finding_list=finding_list(now), look=Look(), together=lambda: told)
    text = "\n".join(line.strip(160).text.rstrip() for line in experiments(scene, 160))
    assert f"restart with {thread_variables(8)} taskset -c 0-7 python bench.py --lr 1e-2\n" in text
    assert " % of it by other programs" in " ".join(text.split())
    assert "(uses 24 % of all CPUs), " in text
    wait = told.experiments[0].cpu_wait_percent
    assert f" !{wait:.0f}%" in text
    strangers = replace(scene, update=update())  # of which the frame has no process
    assert "taskset -c 0-7 COMMAND" in "\n".join(line.strip(160).text for line in experiments(strangers, 160))


SHARE = GpuShare(uuid="G", busy_percent=45.0)
SECOND = Job(key="k", name="k", ranks=(Identity(101, 1),))


def two(gpu: dict[str, Any], other: dict[str, Any], **first: Any) -> Together:
    """A second experiment on the same machine."""
    machine = Machine(gpu=gpu, **first)

    def frame(t: float) -> Frame:
        one = machine.frame(t)
        trainer = replace(one.processes[0], pid=101, job="k", **other)
        return replace(one, processes=(*one.processes, trainer), jobs=(*one.jobs, SECOND))

    return seen([frame(float(t)) for t in range(40)])


@pytest.mark.parametrize(("busy", "theirs", "slows"), [(96.0, 45.0, True), (70.0, 45.0, False), (96.0, 4.0, False)])
def test_two_on_one_gpu(busy: float, theirs: float, slows: bool) -> None:
    told = two({"busy_percent": busy}, {"gpus": (replace(SHARE, busy_percent=theirs),)})
    assert [other.resource for other in told.experiments[0].slowed_by] == (["gpu"] if slows else [])


@pytest.mark.parametrize(("moved", "disk", "slows"), [(1.9e9, 99.0, True), (1.9e9, 50.0, False), (5e6, 99.0, False)])
def test_a_disk_that_another_keeps_busy(moved: float, disk: float, slows: bool) -> None:
    told = two(
        {"busy_percent": 30.0},
        {"gpus": (), "read_bytes_per_s": moved},
        loader={"blocked_percent": 60.0, "read_bytes_per_s": 10e6},
        loaders=2,
        host={
            "disks": (Disk(name="nvme0n1", busy_percent=disk),),
            "read_bytes_per_s": 2e9,
            "write_bytes_per_s": 0.0,
            "io_pressure": Pressure(some_percent=60.0),
        },
    )
    first, second = told.experiments
    assert [(other.experiment, other.resource) for other in first.slowed_by] == ([("k", "disk")] if slows else [])
    assert second.slowed_by == ()
    assert first.io_share == pytest.approx(0.01, rel=0.01)


def test_refused_figures_do_not_become_numbers() -> None:
    one = alone(Machine(trainer=refused("run_wait_percent", "busy_threads", "cpu_percent"), gpu={"busy_percent": 30.0}))
    assert (one.cores, one.threads_wanting, one.cpu_wait_percent) == (None, None, None)
    assert one.slowed_by == ()


def test_nobody_trains() -> None:
    frame = replace(Machine().frame(0.0), processes=(), jobs=())
    told = seen([frame])
    assert (told.experiments, told.cpus, told.crowded, told.threads_asked) == ((), 16, False, None)


def test_a_process_without_a_gpu_comes_last() -> None:
    frame = Machine().frame(0.0)
    late = Process(pid=5, started_ticks=1, role=frame.processes[0].role, job="a")
    jobs = (Job(key="a", name="a", ranks=(late.identity,)), *frame.jobs)
    told = seen(
        [
            replace(
                frame,
                processes=(late, *frame.processes),
                jobs=jobs,
                gpus=(*frame.gpus, Gpu(uuid="H", index="1", name="x")),
            )
        ]
    )
    assert [one.key for one in told.experiments] == ["j", "a"]
