"""The job that left last: told once it is gone, and not before."""

from __future__ import annotations

import time
from dataclasses import replace

from gputop.last_job import JobEndings
from gputop.model import Frame
from tests.headless_screens import Stage, play
from tests.scripted_jobs import frame, training

LLAMA = training("llama-7b", 41000, ranks=2, loaders=1)
SD3 = training("sd3", 52000, ranks=1, loaders=0, first_gpu=2, user="bob")


def without_gpus(shown: Frame) -> Frame:
    """The same processes, and a driver that names none of them."""
    return replace(shown, processes=tuple(replace(process, gpus=()) for process in shown.processes))


def test_the_job_that_left_last_is_remembered() -> None:
    jobs = JobEndings()
    jobs.add(frame(LLAMA, SD3))
    jobs.add(frame(LLAMA, SD3))
    assert jobs.last is None
    jobs.add(frame(LLAMA))
    assert jobs.last
    assert (jobs.last.name, jobs.last.user, jobs.last.busy_percent) == ("sd3", "bob", 50.0)
    gone = frame()
    jobs.add(gone)
    assert (jobs.last.name, jobs.last.user, jobs.last.wall_s) == ("llama-7b", "alice", gone.wall_s)
    assert (jobs.last.ran_s, jobs.last.busy_percent) == (3600.0, 50.5)


def test_a_job_that_the_driver_forgets_has_not_ended() -> None:
    jobs = JobEndings()
    jobs.add(frame(LLAMA))
    jobs.add(without_gpus(frame(LLAMA)))
    assert jobs.last is None
    jobs.add(frame())
    assert jobs.last
    assert jobs.last.name == "llama-7b"


def test_an_idle_server_says_what_ran_last() -> None:
    async def scene(stage: Stage) -> None:
        assert "last job" not in stage.text
        idle = replace(frame(), gpus=tuple(replace(gpu, busy_percent=0.0) for gpu in frame().gpus))
        await stage.show(idle)
        at = time.strftime("%H:%M:%S", time.localtime(idle.wall_s))
        assert f"last job: llama-7b (alice) exited {at}, exit status unknown, 1 h, average GPU busy 50 %" in stage.text

    play(scene, frame(LLAMA))


def test_at_80_columns_its_last_number_is_whole() -> None:
    async def scene(stage: Stage) -> None:
        await stage.show(replace(frame(), gpus=tuple(replace(gpu, busy_percent=0.0) for gpu in frame().gpus)))
        assert "50 %" in stage.text
        assert "H show all" not in stage.text  # there are no others

    play(scene, frame(LLAMA), size=(80, 24))
