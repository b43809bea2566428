"""A real training run that is killed: what was said of its workers beforehand is what happens."""

from __future__ import annotations

from subprocess import Popen

import pytest

from gputop.actions import Scope
from gputop.actions.signals import BY_NAME, warnings
from gputop.collect.proc.gpu_processes import ProcessTable
from gputop.model import Frame, Role
from tests.collect.test_real_jobs import WORKERS, job_of, training
from tests.process_watch import Watch, watch
from tests.real_processes import hold, send, state, until
from tests.scripted_jobs import frame

pytestmark = pytest.mark.jobs

__all__ = ["training", "watch"]

LATE_S = 30.0  # for a machine that has other things to do


@pytest.fixture
def seen(watch: Watch, training: Popen[str]) -> Frame:
    """The run as the real reader sees it."""

    def ready(table: ProcessTable) -> Frame | None:
        found = job_of(table, training.pid, on_gpu=True)
        if found is None:
            return None
        job, roles = found
        members = [process for role in (Role.TRAINER, Role.LOADER, Role.OTHER) for process in roles.get(role, [])]
        return frame((job, members))

    made: Frame = watch.until(ready, training.pid)
    return made


def test_loaders_end_with_a_trainer_that_is_killed(seen: Frame) -> None:
    trainer, *others = seen.processes
    loaders = [process.pid for process in others if process.role is Role.LOADER]
    target = hold(trainer, seen)
    assert [reach.title for reach in target.reaches][:1] == [f"its {WORKERS} workers"]
    first, *_ = warnings(target, Scope.PROCESS, BY_NAME["KILL"])
    assert first == f"its {WORKERS} workers will exit within about 5 s, no signal needed"
    result = send(target, "KILL", confirmed=True)
    assert result.text.startswith(f"{trainer.pid} exited after ")
    until(lambda: all(state(pid) in (None, "Z") for pid in loaders), LATE_S)
    target.close()


def test_a_trainer_ends_when_its_loader_is_killed(seen: Frame) -> None:
    trainer, *others = seen.processes
    loader = next(process for process in others if process.role is Role.LOADER)
    target = hold(loader, seen)
    first, *_ = warnings(target, Scope.PROCESS, BY_NAME["KILL"])  # it may also wait for the disk just then
    assert first == f"its trainer ({trainer.pid}) fails when a DataLoader worker is gone"
    assert send(target, "KILL", confirmed=True).good
    until(lambda: state(trainer.pid) in (None, "Z"), LATE_S)
    target.close()
