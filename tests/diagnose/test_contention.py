"""Who takes what a trainer waits for: many small ones count by their sum, and rules, classes and page say the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from gputop.diagnose.engine import Engine, Verdict
from gputop.diagnose.experiments import Together, together
from gputop.history import History
from gputop.model import Disk, Frame, GpuShare, Identity, Job, Pressure, Process
from tests.rule_cases import LIMITS, TRAINER, Machine

FULL: dict[str, Any] = {"cpu_percent": 97.0, "cpu_pressure": Pressure(some_percent=60.0)}
DISK: dict[str, Any] = {"io_pressure": Pressure(some_percent=60.0), "disks": (Disk(name="nvme0n1", busy_percent=97.0),)}
WAITS: dict[str, Any] = {"run_wait_percent": 55.0}
STUCK: dict[str, Any] = {"blocked_percent": 60.0, "read_bytes_per_s": 10e6}
Frames = Callable[[float], Frame]


def program(pid: int, name: str, user: str = "bob", **fields: Any) -> Process:
    """A process of somebody that is no training."""
    own = {"started_ticks": 1, "parent_pid": 1, "uid": 1000 + len(user), "cgroup": f"/{user}", "group": pid}
    return Process(**{"pid": pid, "name": name, "user": user, "age_s": 4000.0, **own} | fields)


def training(number: int, cpu: float, busy: float = 95.0, **fields: Any) -> tuple[Process, Job]:
    """Another one, on a GPU of its own."""
    share = GpuShare(uuid=f"H{number}", busy_percent=busy, vram_bytes=2**30)
    place = {"pid": 3000 + number, "started_ticks": 1, "job": f"sweep-{number}", "gpus": (share,), "user": "carol"}
    one = Process(**{**TRAINER, **place, "uid": 5, "cgroup": f"/c{number}", "cpu_percent": cpu} | fields)
    return one, Job(key=f"sweep-{number}", name=f"sweep-{number}", user="carol", ranks=(Identity(3000 + number, 1),))


def machine(
    *programs: Process,
    others: Sequence[tuple[Process, Job]] = (),
    host: dict[str, Any] = FULL,
    trainer: dict[str, Any] = WAITS,
    loader: dict[str, Any] | None = None,
    busy: Any = 40.0,
) -> Frames:
    """One trainer of alice that waits, beside all of these."""
    alice = {"uid": 1, "cgroup": "/a", "user": "alice", "group": 100}
    gpu = {"busy_percent": busy, "power_watts": 250.0}
    made = Machine(
        gpu=gpu, trainer=alice | {"parent_pid": 900} | trainer, host=host, loader=alice | (loader or {}), loaders=2
    )
    cards = tuple(
        replace(made.frame(0.0).gpus[0], uuid=share.uuid, index=str(1 + n), busy_percent=share.busy_percent)
        for n, (process, _) in enumerate(others)
        for share in process.gpus
    )
    shell = program(900, "bash", "alice", uid=1, cgroup="/a")

    def frame(t: float) -> Frame:
        one = made.frame(t)
        beside = (shell, *programs, *(process for process, _ in others))
        jobs = (*one.jobs, *(job for _, job in others))
        return replace(one, gpus=(*one.gpus, *cards), processes=(*one.processes, *beside), jobs=jobs)

    return frame


def seen(frame: Frames, seconds: int = 150) -> tuple[Verdict, Together]:
    """What the rules say in the end, and the page of experiments."""
    engine, history = Engine(lambda: LIMITS), History()
    for t in range(0, seconds, 2):
        now = frame(float(t))
        history.add(now)
        engine.remember(now, history)
        said = engine.judge(now, history)
    return said, together(now, history, LIMITS, said.contention)


def told(said: Verdict, pid: int = 100) -> set[str]:
    """The rules that say something of a trainer, or of the machine."""
    about = [one for one in said.findings if not one.subject.processes or Identity(pid, 1) in one.subject.processes]
    return {rule for one in about for rule in (one.rule, *one.causes)}


SMALL = (
    program(700, "pip", "bob", cpu_percent=100.0),
    program(710, "ninja", "dave", cpu_percent=250.0),
    *(program(720 + n, "julia", f"user{n}", cpu_percent=190.0, uid=40 + n) for n in range(4)),
)
FOUR = [training(n, cpu) for n, cpu in enumerate((170.0, 390.0, 240.0, 330.0))]
IDLE = [training(n, 40.0) for n in range(4)]
MOVES = tuple(program(700 + n, "rsync", f"user{n}", read_bytes_per_s=45e6, uid=40 + n) for n in range(4))
RANKS = {"run_wait_percent": 55.0, "busy_threads": 8, "cpu_percent": 380.0}
POOLS = [
    training(n, 380.0, busy=40.0, **{name: RANKS[name] for name in ("run_wait_percent", "busy_threads")})
    for n in range(4)
]

SCENES: dict[str, tuple[Frames, bool]] = {  # whether others are what it waits for
    "one build": (machine(program(700, "make", cpu_percent=1300.0)), True),
    "pip, a build and four of others": (machine(*SMALL), True),
    "four other trainings": (machine(others=FOUR), True),
    "trainings and programs": (machine(*SMALL[:3], others=FOUR[:2]), True),
    "small ones that leave room": (machine(*SMALL, host=FULL | {"cpu_percent": 70.0}), False),
    "small ones, and nobody waits": (machine(*SMALL, trainer={}), False),
    "small ones beside a GPU that is busy": (machine(*SMALL, busy=93.0), False),
    "its own threads fill it": (machine(*SMALL[:2], trainer=WAITS | {"cpu_percent": 1200.0}), False),
    "others that do little": (machine(others=IDLE), False),
    "threads of all": (machine(others=POOLS, trainer=RANKS), True),
    "a disk that four read": (machine(*MOVES, host=DISK, trainer={}, loader=STUCK), True),
    "a disk that it reads itself": (
        machine(*MOVES[:1], host=DISK, trainer={}, loader=STUCK | {"read_bytes_per_s": 90e6}),
        False,
    ),
    "nobody waits for the disk": (machine(*MOVES, host=DISK, trainer={}, loader={}), False),
}


@pytest.mark.parametrize("name", SCENES)
def test_rules_classes_and_the_page_of_experiments_agree(name: str) -> None:
    frame, contended = SCENES[name]
    said, page = seen(frame)
    assert said.contention is not None
    by_class = {one.pid: dict(one.path).get("do other jobs compete for its CPUs or disk?", "") for one in said.classes}
    for one in page.experiments:
        pid = one.trainers[0].pid
        by_page = any(slower.resource != "gpu" for slower in one.slowed_by)
        assert by_class[pid].startswith("yes") == by_page
        rules = told(said, pid) & {"neighbour", "threads-host"}
        assert bool(rules) == by_page, (pid, rules)
        if pid == 100:
            assert by_page == contended
    assert page.crowded == ("threads-host" in told(said))


def test_many_small_neighbours_are_told_by_what_they_take_together() -> None:
    said, page = seen(machine(*SMALL))
    (finding,) = (one for one in said.findings if "neighbour" in (one.rule, *one.causes))
    texts = [item.text for item in finding.evidence]
    assert "CPU contention, mostly from 6 other programs" in finding.headline
    assert "6 other programs use 11.1 of 16 CPUs" in texts
    assert "ninja of user dave uses 2.5 of 16 CPUs" in texts
    (mine,) = page.experiments
    assert [one.name for one in mine.slowed_by][:2] == ["ninja of user dave", "julia of user user0"]


def build(began_s: float, compilers: int = 14) -> Frames:
    """`make -j`: compilers that live for two seconds each, from some time on; the GPU is less busy since then."""
    calm = {"cpu_percent": 12.0, "cpu_pressure": Pressure(some_percent=1.0)}
    before = machine(host=calm, trainer={"run_wait_percent": 1.0}, busy=96.0)
    after = machine(host=FULL, trainer=WAITS, busy=61.0)
    make = program(800, "make", parent_pid=790, group=800, cpu_percent=1.0)
    shell = program(790, "bash", group=790)

    def frame(t: float) -> Frame:
        if t < began_s:
            return replace(before(t), processes=(*before(t).processes, shell))
        run = int(t // 2) * compilers
        young = [
            program(10_000 + run + n, "cc1plus", parent_pid=800, group=800, age_s=1.0, cpu_time_s=1.0)
            for n in range(compilers)
        ]
        return replace(after(t), processes=(*after(t).processes, shell, replace(make, age_s=t - began_s), *young))

    return frame


def test_the_beginning_of_a_build_is_when_its_use_of_the_cpus_rose() -> None:
    said, _ = seen(build(200.0), 400)
    (finding,) = (one for one in said.findings if "neighbour" in (one.rule, *one.causes))
    texts = [item.text for item in finding.evidence]
    assert "make of user bob uses 14.0 of 16 CPUs" in texts
    assert "CPU use by make of user bob rose from 0 to 14 cores 3 min 20 s ago" in texts
    assert "GPU busy fell from 96 % to 61 % at the same time" in texts


def test_an_own_build_is_given_less_by_its_group_and_not_by_compilers_that_are_gone() -> None:
    frame = build(0.0)

    def own(t: float) -> Frame:
        one = frame(t)
        return replace(
            one,
            processes=tuple(replace(p, uid=1, user="alice") if p.user == "bob" else p for p in one.processes),
        )

    said, _ = seen(own)
    (finding,) = (one for one in said.findings if "neighbour" in (one.rule, *one.causes))
    assert "renice -n 19 -g 800; ionice -c 3 -P 800" in [step.command for step in finding.steps]
    assert not any("rose from" in item.text for item in finding.evidence), "nobody looked when it began"
