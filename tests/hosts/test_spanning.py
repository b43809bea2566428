"""Jobs with ranks on several hosts: which parts belong together, and what the rules see of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from gputop.hosts.spanning import RANGE, SpanningSource, job_key, merged, spanning_jobs
from gputop.model import Frame
from gputop.monitor import Monitor
from tests.rank_teams import team

Made = Callable[[float], Frame]


def part(first: int, *, ranks: int = 2, world: int = 4, rendezvous: str | None = "10.0.0.1:29500", **job: Any) -> Made:
    """A host with the ranks from `first` on; GPUs are its own, PIDs are those of every host."""

    def trainer(n: int) -> dict[str, Any]:
        return {"rank": first + n, "world_size": world, "rendezvous": rendezvous, "user": "alice"}

    def gpu(n: int) -> dict[str, Any]:
        return {"sm_clock_mhz": 1980.0, "power_watts": 640.0}

    made = team(gpu, trainer, ranks=ranks, world=None)

    def frame(t: float) -> Frame:
        one = made(t)
        own = {gpu.uuid: f"H{first}-{gpu.uuid}" for gpu in one.gpus}
        processes = tuple(
            replace(process, gpus=tuple(replace(share, uuid=own[share.uuid]) for share in process.gpus))
            for process in one.processes
        )
        gpus = tuple(replace(gpu, uuid=own[gpu.uuid]) for gpu in one.gpus)
        return replace(one, gpus=gpus, processes=processes, jobs=(replace(one.jobs[0], user="alice", **job),))

    return frame


def test_ranks_that_meet_at_one_address_are_one_job() -> None:
    (job,) = spanning_jobs({"n2": part(2)(0.0), "n1": part(0)(0.0)})
    assert job.hosts == ("n1", "n2")
    assert (job.ranks, job.gpus, job.user, job.missing_ranks) == (4, 4, "alice", ())


def test_a_slurm_job_is_one_job_even_where_ranks_say_nothing() -> None:
    one = part(0, rendezvous=None, slurm_job="4711")(0.0)
    other = part(2, rendezvous=None, slurm_job="4711")(0.0)
    (job,) = spanning_jobs({"n1": one, "n2": other})
    assert job.key.id == "4711"


def test_jobs_of_one_host_and_of_different_meetings_stay_apart() -> None:
    whole = part(0, ranks=4, world=4)(0.0)
    assert job_key(whole.jobs[0], whole) is None
    local = part(0, rendezvous="127.0.0.1:29500")(0.0)
    assert job_key(local.jobs[0], local) is None
    assert spanning_jobs({"n1": part(0)(0.0), "n2": part(2, rendezvous="10.0.0.9:29500")(0.0)}) == []


def test_ranks_on_hosts_that_are_not_watched_are_missing() -> None:
    (job,) = spanning_jobs({"n1": part(0, world=6)(0.0), "n3": part(4, world=6)(0.0)})
    assert job.missing_ranks == (2, 3)


def test_the_merged_frame_keeps_processes_of_hosts_apart() -> None:
    jobs = spanning_jobs({"n1": part(0)(0.0), "n2": part(2)(0.0)})
    frame = merged(jobs, 5.0, 7.0)
    assert [gpu.index for gpu in frame.gpus] == ["n1:0", "n1:1", "n2:0", "n2:1"]
    assert [process.rank for process in frame.processes] == [0, 1, 2, 3]
    assert len(frame.by_identity) == 4
    assert all(process.pid > RANGE for process in frame.processes)
    (job,) = frame.jobs
    assert len(job.ranks) == 4
    assert {process.job for process in frame.processes} == {job.key}


def test_a_slow_rank_of_one_host_is_the_straggler_of_the_whole_job() -> None:
    """On its own host it is one of two, and nothing says which is usual; among the ranks of all hosts it stands out."""
    hosts = {"n1": part(0, world=6), "n2": part(2, world=6), "n3": part(4, world=6)}

    def frames() -> Iterator[Frame]:
        for second in range(120):
            newest = {name: made(float(second)) for name, made in hosts.items()}
            usual, slow = newest["n2"].gpus
            slow = replace(slow, sm_clock_mhz=1100.0, tensor_percent=90.0)  # the same work at a lower clock
            newest["n2"] = replace(newest["n2"], gpus=(usual, slow))
            yield merged(spanning_jobs(newest), float(second), float(second))

    source = SpanningSource(dict, "3 hosts")
    source.frames = lambda _: frames()  # type: ignore[method-assign]
    findings = {finding.rule: finding for update in Monitor(source).updates() for finding in update.findings}
    assert "straggler" in findings, sorted(findings)
    assert "n2:1: SM clock 1100 MHz, other ranks 1980 MHz" in findings["straggler"].evidence[0].text
