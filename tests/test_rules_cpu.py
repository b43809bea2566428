"""Threads, BLAS, limits on CPUs: each rule fires, just does not, and abstains."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gputop import blas as mkl
from gputop.diagnose.engine import Verdict
from gputop.model import Cgroup, Frame, GpuShare, Job, Pressure
from tests.judged import Machine, after, found, judged, refused, silent

POOL: dict[str, Any] = {
    "busy_threads": 21,
    "run_wait_percent": 71.0,
    "voluntary_switches_per_s": 4.0,
    "cpu_percent": 1000.0,
    "affinity": "0-15",
    "libraries": ("torch", "cuda"),
}
HUNGRY: dict[str, Any] = {"busy_percent": 30.0, "power_watts": 250.0}
CROWDED = Pressure(some_percent=60.0)


@pytest.mark.parametrize(
    ("trainer", "gpu", "severity"),
    [
        ({}, HUNGRY, "warn"),
        ({}, {}, "info"),  # the GPU is busy all the same
        ({"busy_threads": 19}, HUNGRY, None),
        ({"run_wait_percent": 29.0}, HUNGRY, None),
        ({"voluntary_switches_per_s": 11_000.0}, HUNGRY, None),  # they sleep while they wait: harmless
        # a pool for 16 CPUs under a quota of 8, and what shows that it hurts
        ({"busy_threads": 3, "allowed_cpus": 8.0, "throttled_percent": 11.0}, HUNGRY, "info"),
        ({"busy_threads": 3, "allowed_cpus": 8.0, "run_wait_percent": 5.0}, HUNGRY, None),
        ({"busy_threads": 3, "allowed_cpus": 9.0, "throttled_percent": 11.0}, HUNGRY, None),
        ({"busy_threads": 3, "allowed_cpus": 8.0, "throttled_percent": 11.0, "omp_threads": 8}, HUNGRY, None),
    ],
)
def test_threads_process(trainer: dict[str, Any], gpu: dict[str, Any], severity: str | None) -> None:
    finding = found(Machine(gpu=gpu, trainer=POOL | trainer).verdict(), "threads-process")
    assert (finding and finding.severity) == severity


def test_threads_process_says_how_many_are_too_many() -> None:
    trainer = POOL | {"busy_threads": 64, "allowed_cpus": 8.0, "affinity": "0-63"}
    finding = found(Machine(gpu=HUNGRY, trainer=trainer).verdict(), "threads-process")
    assert finding is not None
    assert finding.headline == "runs 64 compute threads on 8 CPUs"
    assert [item.text for item in finding.evidence] == [
        "64 compute threads want to run on 8 CPUs",
        "71 % of their time they wait for a CPU",
        "0 voluntary switches a CPU second: they spin while they wait",
        "PyTorch and OpenMP see 64 CPUs, the quota allows 8",
    ]
    assert finding.steps[0].command == "export OMP_NUM_THREADS=8 MKL_NUM_THREADS=8 OPENBLAS_NUM_THREADS=8"
    assert finding.lost_share == pytest.approx(0.7)


def test_threads_process_abstains_where_the_kernel_counts_no_waiting() -> None:
    assert silent(Machine(trainer=refused("run_wait_percent")).verdict(70), "threads-process") is not None


def experiments(count: int = 2, host: dict[str, Any] | None = None, **trainer: Any) -> Callable[[float], Frame]:
    """So many trainers on a GPU each."""
    machine = Machine(gpu=HUNGRY, trainer=POOL | {"busy_threads": 11} | trainer, host=host or {})

    def frame(t: float) -> Frame:
        one = machine.frame(t)
        gpus = tuple(replace(one.gpus[0], uuid=f"G{n}", index=str(n)) for n in range(count))
        processes = tuple(
            replace(one.processes[0], pid=100 + n, job=f"j{n}", gpus=(GpuShare(uuid=f"G{n}"),)) for n in range(count)
        )
        jobs = tuple(Job(key=f"j{n}", name=f"j{n}", ranks=(processes[n].identity,)) for n in range(count))
        return replace(one, gpus=gpus, processes=processes, jobs=jobs)

    return frame


@pytest.mark.parametrize(
    ("count", "trainer", "host", "severity"),
    [
        (2, {}, {}, "crit"),
        (1, {}, {}, None),
        (2, {"busy_threads": 9}, {}, None),
        (2, {"run_wait_percent": 29.0}, {}, None),
        (2, {"run_wait_percent": 29.0}, {"cpu_pressure": CROWDED}, "crit"),
        (2, {"run_wait_percent": 29.0}, {"cpu_pressure": Pressure(some_percent=49.0)}, None),
        (32, {"busy_threads": 1}, {}, None),  # single threads are no pools
        (4, {"busy_threads": 11, "omp_threads": 1}, {}, None),
        (2, {"affinity": "0-31", "allowed_cpus": 32.0, "busy_threads": 19}, {"cpus_total": 32}, None),
    ],
)
def test_threads_host(count: int, trainer: dict[str, Any], host: dict[str, Any], severity: str | None) -> None:
    finding = found(after(experiments(count, host, **trainer)), "threads-host")
    assert (finding and finding.severity) == severity


def test_threads_host_divides_the_cpus() -> None:
    finding = found(after(experiments(4)), "threads-host")
    assert finding is not None
    assert finding.primary
    assert finding.evidence[0].text == "4 trainers with 11 compute threads each, 44 on 16 CPUs"
    assert finding.evidence[-1].text == "OMP_NUM_THREADS is unset in all 4"
    assert finding.steps[1].command == "torch.set_num_threads(4)"
    assert finding.steps[2].command == "taskset -c 0-3 python train.py"


def test_threads_host_abstains_where_threads_are_not_known() -> None:
    assert silent(after(experiments(2, **refused("busy_threads")), 70), "threads-host") is not None


INTEL = {"cpu_model": "Intel(R) Xeon(R) Gold 6248"}
BLAS = {"libraries": ("torch", "openblas")}


def blas(
    cpu: float = 170.0, libraries: tuple[str, ...] = BLAS["libraries"], model: str | None = INTEL["cpu_model"]
) -> Verdict:
    loader, trainer = {"cpu_percent": cpu, "libraries": libraries}, {"libraries": libraries, "cpu_percent": 50.0}
    machine = Machine(gpu=HUNGRY, trainer=trainer, loader=loader, host={"cpu_model": model}, loaders=8)
    return machine.verdict()


@pytest.mark.parametrize(
    ("dials", "fires"),
    [
        ({}, True),
        ({"libraries": ("torch", "openblas", "mkl")}, False),
        ({"libraries": ("torch",)}, False),
        ({"model": "AMD EPYC 7763"}, False),
        ({"cpu": 160.0}, False),  # the CPUs are not full
    ],
)
def test_openblas_on_intel(dials: dict[str, Any], fires: bool) -> None:
    told = found(blas(**dials), "starved-cpu-saturated")
    assert (told is not None and "openblas-on-intel" in told.causes) == fires
    if fires and told:
        assert told.headline.endswith("; it may lose CPU time in OpenBLAS, which is slow on Intel CPUs")
        assert told.steps[-5].command == mkl.IN_CONDA_FORGE


def test_loaders_of_one_thread_each_are_no_pool() -> None:
    loader, trainer = {"cpu_percent": 99.0, **BLAS}, {"cpu_percent": 50.0, **BLAS}
    said = Machine(gpu=HUNGRY, trainer=trainer, loader=loader, host=INTEL, loaders=16).verdict()
    assert "openblas-on-intel" not in {cause for finding in said.findings for cause in finding.causes}
    assert found(said, "openblas-on-intel") is None


@pytest.mark.parametrize(("waits", "fires"), [(45.0, True), (25.0, False)])
def test_where_cpus_are_short_pools_show_by_what_they_wait_for(waits: float, fires: bool) -> None:
    """16 loaders on 16 CPUs get one core each, however many threads compute; each wants 1.7, or 1.3."""
    loader, trainer = {"cpu_percent": 95.0, "run_wait_percent": waits, **BLAS}, {"cpu_percent": 50.0, **BLAS}
    said = Machine(gpu=HUNGRY, trainer=trainer, loader=loader, host=INTEL, loaders=16).verdict()
    told = found(said, "starved-cpu-saturated")
    assert told is not None
    assert ("openblas-on-intel" in told.causes) == fires
    assert any("each wants 1.7 cores and gets 1.0:" in one.text for one in told.evidence) == fires


@pytest.mark.parametrize("dials", [{"libraries": ()}, {"model": None}])
def test_openblas_on_intel_abstains(dials: dict[str, Any]) -> None:
    one = silent(blas(**dials), "openblas-on-intel")
    assert one is not None
    assert one.unlock or "model" in dials


def confined(
    throttled_cpus: float | None, loaders: int = 0, ranks: int = 1, quota: float = 4.0, **trainer: Any
) -> Callable[[float], Frame]:
    """Ranks of a job under one quota, on 16 CPUs."""
    own = {"cgroup": "/c", "allowed_cpus": quota} | trainer
    machine = Machine(gpu=HUNGRY, trainer=own, host={"cpu_percent": 29.0}, loaders=loaders)
    group = Cgroup(path="/c", cpu_quota=quota, throttled_cpus=throttled_cpus)

    def frame(t: float) -> Frame:
        one = machine.frame(t)
        more = tuple(replace(one.processes[0], pid=1000 + n) for n in range(1, ranks))
        job = replace(one.jobs[0], ranks=(*one.jobs[0].ranks, *(rank.identity for rank in more)))
        return replace(one, processes=(*one.processes, *more), jobs=(job,), cgroups=(group,))

    return frame


@pytest.mark.parametrize(
    ("waiting", "trainer", "severity"),
    [
        (None, {"throttled_percent": 10.1}, "warn"),
        (None, {"throttled_percent": 9.9}, None),
        (None, {"throttled_percent": 51.0}, "crit"),
        (0.06, {"throttled_percent": 3.0}, "warn"),
        (0.04, {"throttled_percent": 3.0}, None),
        (0.009, {"throttled_percent": 20.0}, None),  # bursts
    ],
)
def test_cpu_quota(waiting: float | None, trainer: dict[str, Any], severity: str | None) -> None:
    finding = found(after(confined(waiting, **trainer)), "cpu-quota")
    assert (finding and finding.severity) == severity


@pytest.mark.parametrize("every_s", [2.0, 5.0, 8.0])
@pytest.mark.parametrize(("stopped", "fires"), [(0.1, False), (0.3, True)])  # CPUs, in three seconds of ten
def test_cpu_quota_goes_by_the_mean_of_what_was_stopped(stopped: float, fires: bool, every_s: float) -> None:
    at_times, never = (confined(cpus, throttled_percent=3.0) for cpus in (stopped, 0.0))
    frames = ((at_times if t % 10 < 3 else never)(float(t)) for t in range(240))
    *_, (_, said) = judged(frames, every_s=every_s)
    assert (found(said, "cpu-quota") is not None) == fires


def test_cpu_quota_says_what_to_ask_for() -> None:
    told = found(after(confined(2.4, loaders=4, throttled_percent=63.0, container="abc")), "cpu-quota")
    assert told is not None
    assert [item.text for item in told.evidence] == [
        "the limit of 4.0 CPUs ran out in 63 % of periods",
        "2.4 CPUs' worth of work was stopped meanwhile",
        "the machine itself is 71 % idle",
    ]
    assert [step.command for step in told.steps] == [
        "docker update --cpus 8 abc",
        "DataLoader(..., num_workers=3)",
        "torch.set_num_threads(4)",
    ]
    slurm = found(after(confined(2.4, throttled_percent=63.0, slurm_job="7")), "cpu-quota")
    assert slurm is not None
    assert slurm.steps[0].command == "#SBATCH --cpus-per-task=8"


@pytest.mark.parametrize(
    ("dials", "told"),
    [
        ({"ranks": 2, "quota": 8.0}, ["docker update --cpus 16 abc", "num_workers=3", "set_num_threads(4)"]),
        ({"ranks": 4}, ["docker update --cpus 8 abc", "num_workers=1", "set_num_threads(1)"]),
        ({"quota": 12.0}, ["docker update --cpus 16 abc", "set_num_threads(12)"]),
        ({"quota": 15.5}, ["docker update --cpus 16 abc", "set_num_threads(15)"]),
        ({"quota": 16.0}, ["set_num_threads(16)"]),  # the machine has no more
        ({"affinity": "0-5"}, ["docker update --cpus 6 abc", "num_workers=3", "set_num_threads(4)"]),
        ({"affinity": "4-7"}, ["num_workers=3", "set_num_threads(4)"]),
        ({"ranks": 4, "slurm_job": "7"}, ["cpus-per-task=2", "num_workers=1", "set_num_threads(1)"]),
        ({"ranks": 4, "slurm_job": "7", "quota": 14.0}, ["cpus-per-task=4", "num_workers=2", "set_num_threads(3)"]),
        ({"ranks": 4, "slurm_job": "7", "quota": 5.0, "affinity": "0-5"}, ["num_workers=1", "set_num_threads(1)"]),
    ],
)
def test_cpu_quota_shares_it_among_ranks_and_asks_for_what_there_is(dials: dict[str, Any], told: list[str]) -> None:
    finding = found(after(confined(2.4, 4, throttled_percent=63.0, container="abc", **dials)), "cpu-quota")
    assert finding is not None
    assert all(part in (step.command or "") for step, part in zip(finding.steps, told, strict=True))


@pytest.mark.parametrize(
    ("trainer", "fires"),
    [
        ({}, True),
        ({"affinity": "0-2"}, False),
        ({"cpu_percent": 15.0}, False),  # that CPU is not full
        ({"last_cpu": 7}, False),
    ],
)
def test_an_affinity_of_one_cpu(trainer: dict[str, Any], fires: bool) -> None:
    of_all = {"affinity": "0", "last_cpu": 0, "allowed_cpus": 1.0}
    machine = Machine(
        gpu=HUNGRY, trainer=of_all | {"cpu_percent": 30.0} | trainer, loader=of_all | {"cpu_percent": 17.0}, loaders=4
    )
    told = [finding for finding in machine.verdict().findings if "cpu-quota" in (finding.rule, *finding.causes)]
    assert bool(told) == fires
    if told:
        assert told[0].headline.endswith("because it may run on 1 of 16 CPUs only")
        assert told[0].steps[0].command == "taskset -acp 0-15 100"


def test_cpu_quota_abstains_where_the_group_cannot_be_read() -> None:
    assert silent(Machine(trainer=refused("throttled_percent")).verdict(70), "cpu-quota") is not None
