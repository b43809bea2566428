"""One host that holds up a job on several hosts, though all its own ranks are alike."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gputop.hosts.slow_host import HOLDS_S, SlowHosts, outlier
from gputop.hosts.spanning import SpanningJob, spanning_jobs
from gputop.model import Frame
from tests.hosts.test_spanning import part

ByHost = dict[str, dict[str, Any]]


def job(gpu: ByHost | None = None, rank: ByHost | None = None, hosts: int = 3) -> SpanningJob:
    """A job of two ranks a host; changes of the GPUs and of the ranks by host."""
    frames = {}
    for place in range(hosts):
        name, frame = f"n{place}", part(2 * place, world=2 * hosts)(0.0)
        gpus = tuple(replace(each, **(gpu or {}).get(name, {})) for each in frame.gpus)
        ranks = tuple(replace(each, **(rank or {}).get(name, {})) for each in frame.processes)
        frames[name] = replace(frame, gpus=gpus, processes=ranks)
    (one,) = spanning_jobs(frames)
    return one


def named(one: SpanningJob) -> tuple[str, str] | None:
    found = outlier(one.parts)
    return (found.host, found.text) if found else None


def test_a_host_with_a_lower_clock_is_named() -> None:
    assert named(job({"n1": {"sm_clock_mhz": 1100.0}})) == ("n1", "SM clock 1,100 MHz (other hosts 1,980 MHz)")
    assert named(job({"n1": {"sm_clock_mhz": 1100.0}}, hosts=2)) == ("n1", "SM clock 1,100 MHz (other hosts 1,980 MHz)")


@pytest.mark.parametrize("name", ["data_wait_percent", "run_wait_percent"])
def test_a_host_that_waits_is_named_among_three(name: str) -> None:
    usual = {f"n{place}": {name: 5.0} for place in range(3)}
    found = named(job(rank=usual | {"n2": {name: 40.0}}))
    assert found is not None
    assert found[0] == "n2"
    assert "40 % of" in found[1]
    assert "(other hosts 5 %" in found[1]
    assert named(job(rank={"n0": {name: 5.0}, "n1": {name: 40.0}}, hosts=2)) is None


@pytest.mark.parametrize(
    "gpu",
    [
        {},
        {"n1": {"sm_clock_mhz": 1900.0}},
        {"n1": {"sm_clock_mhz": 1100.0}, "n2": {"sm_clock_mhz": 1100.0}},
        {"n1": {"sm_clock_mhz": None}},
        {"n1": {"sm_clock_mhz": 300.0, "busy_percent": 0.0}},
        {"n1": {"sm_clock_mhz": 1100.0, "name": "A100"}},
        {"n0": {"sm_clock_mhz": 1500.0}, "n1": {"sm_clock_mhz": 1100.0}},
    ],
)
def test_hosts_that_are_alike_unknown_idle_or_different_are_not_compared(gpu: dict[str, dict[str, Any]]) -> None:
    assert named(job(gpu)) is None


def test_it_is_named_only_once_it_has_lasted_and_while_it_does() -> None:
    slow, fine = job({"n1": {"sm_clock_mhz": 1100.0}}), job()
    watch = SlowHosts()
    said = [bool(watch.update([slow], float(second))) for second in range(int(HOLDS_S) + 2)]
    assert said == [False] * int(HOLDS_S) + [True, True]
    assert watch.update([fine], 40.0) == {}
    assert watch.update([slow], 41.0) == {}


def test_a_job_that_has_gone_is_forgotten() -> None:
    watch, slow = SlowHosts(), job({"n1": {"sm_clock_mhz": 1100.0}})
    watch.update([slow], 0.0)
    watch.update([], 20.0)
    assert watch.update([slow], 31.0) == {}


def test_frames_without_gpus_are_no_fault() -> None:
    one = job()
    bare: list[Frame] = [replace(each.frame, gpus=()) for each in one.parts]
    parts = tuple(replace(each, frame=frame) for each, frame in zip(one.parts, bare, strict=True))
    assert outlier(parts) is None
