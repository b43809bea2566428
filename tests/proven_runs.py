"""Runs of one script made up by hand, one after the other, as a monitor sees them: findings, and what comes of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gputop.model import Frame, Identity
from gputop.monitor import Update
from gputop.proven.fixes import Fix
from gputop.proven.watch import Watch
from tests.rule_cases import Machine, judged

SLOW = {"cpu_percent": 20.0, "main_thread_percent": 20.0}
COMMAND = ("/usr/bin/python3", "train.py", "--batch-size", "64")


class Kept:
    """A memory without a disk."""

    def __init__(self) -> None:
        self.fixes: dict[str, Fix] = {}

    def refresh(self) -> None:
        """There is nobody else."""

    def put(self, fix: Fix) -> None:
        gone = [name for name, one in self.fixes.items() if fix.replaces(one)]
        self.fixes = {name: one for name, one in self.fixes.items() if name not in gone} | {fix.name: fix}

    def finish(self) -> None:
        """All is kept."""

    @property
    def fix(self) -> Fix:
        """The only one."""
        (fix,) = self.fixes.values()
        return fix


def run(pid: int, *, busy: float, workers: int, command: tuple[str, ...] = COMMAND, **trainer: Any) -> Machine:
    """A training: GPU busy so many percent, with so many loaders; `trainer` has what else its process shows."""
    loader = {"cpu_percent": 97.0 if busy < 80 else 60.0, "job": "j", "name": "pt_data_worker"}
    own = {"pid": pid, "command": command, "user": "ann", "uid": 1000, "thread_names": (("python", 1),)}
    return Machine(gpu={"busy_percent": busy}, trainer={**SLOW, **own, **trainer}, loader=loader, loaders=workers)


def frame_of(machine: Machine, t: float) -> Frame:
    """One of its frames; its workers are members of the job."""
    frame = machine.frame(t)
    (job,) = frame.jobs
    trainer, *loaders = (
        replace(one, parent_pid=machine.trainer["pid"]) if place else one for place, one in enumerate(frame.processes)
    )
    members = (trainer.identity, *(one.identity for one in loaders))
    return replace(
        frame,
        wall_s=1_795_000_000.0 + t,
        processes=(trainer, *loaders),
        jobs=(replace(job, ranks=(Identity(*trainer.identity),), members=members, user=trainer.user),),
    )


def watched(memory: Kept, *runs: Machine, seconds: int = 180, folder: str | None = "/home/ann/mnist") -> Watch:
    """A watch that has seen these, one after the other, each from its start."""
    watch = Watch(memory, lambda _: folder)
    for number, machine in enumerate(runs):
        begin = 1000.0 * number
        frames = (_later(frame_of(machine, float(t)), begin) for t in range(0, seconds, 2))
        for frame, said in judged(frames):
            watch.take(Update(frame=frame, findings=said.findings, jobs=said.jobs, host=said.host))
    return watch


def _later(frame: Frame, seconds: float) -> Frame:
    return replace(frame, mono_s=frame.mono_s + seconds, wall_s=frame.wall_s + seconds)
