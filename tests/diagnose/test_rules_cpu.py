"""Threads and BLAS: each rule fires, just does not, and abstains."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gputop import numpy_blas as mkl
from gputop.diagnose.engine import Verdict
from gputop.model import Frame, GpuShare, Job, Pressure
from tests.rule_cases import Machine, after, found, refused, silent

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
        ({"busy_threads": 1, "allowed_cpus": 0.5}, HUNGRY, None),  # half a CPU: one thread is in nobody's way
        ({"busy_threads": 2, "allowed_cpus": 0.5}, HUNGRY, "warn"),
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
    assert finding.headline == "CPU oversubscribed, 64 compute threads on 8 CPUs"
    assert [item.text for item in finding.evidence] == [
        "64 runnable compute threads on 8 CPUs",
        "its threads waited for a CPU 71 % of their runnable time",
        "0 voluntary switches per CPU second: threads spin while waiting",
        "PyTorch and OpenMP detect 64 CPUs, the quota allows 8",
    ]
    assert finding.steps[0].command == "export OMP_NUM_THREADS=8 MKL_NUM_THREADS=8 OPENBLAS_NUM_THREADS=8"
    assert finding.lost_share == pytest.approx(0.7)


def test_a_part_of_a_cpu_is_told_as_one() -> None:
    trainer = POOL | {"busy_threads": 2, "allowed_cpus": 0.5}
    finding = found(Machine(gpu=HUNGRY, trainer=trainer).verdict(), "threads-process")
    assert finding is not None
    assert finding.headline == "CPU oversubscribed, 2 compute threads on 0.5 CPUs"


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
        (4, {"busy_threads": 16, "omp_threads": 1}, {}, "crit"),  # the program has set itself one for each CPU
        (2, {"affinity": "0-31", "allowed_cpus": 32.0, "busy_threads": 19}, {"cpus_total": 32}, None),
    ],
)
def test_threads_host(count: int, trainer: dict[str, Any], host: dict[str, Any], severity: str | None) -> None:
    finding = found(after(experiments(count, host, **trainer)), "threads-host")
    assert (finding and finding.severity) == severity


@pytest.mark.parametrize(
    ("asked", "first"),
    [
        (None, "export OMP_NUM_THREADS=4 "),
        (16, "export OMP_NUM_THREADS=4 "),
        (1, "torch.set_num_threads(4)"),  # it does not do as its environment says
    ],
)
def test_threads_host_begins_with_what_the_program_heeds(asked: int | None, first: str) -> None:
    finding = found(after(experiments(4, busy_threads=16, omp_threads=asked)), "threads-host")
    assert finding is not None
    assert (finding.steps[0].command or "").startswith(first)


def test_threads_host_divides_the_cpus() -> None:
    finding = found(after(experiments(4)), "threads-host")
    assert finding is not None
    assert finding.primary
    assert finding.evidence[0].text == "4 trainers with 11 compute threads each, 44 on 16 CPUs"
    assert finding.evidence[-1].text == "OMP_NUM_THREADS unset in all 4"
    assert finding.steps[1].command == "torch.set_num_threads(4)"
    assert finding.steps[2].command == "taskset -c 0-3 python train.py"


@pytest.mark.parametrize(
    ("trainer", "near", "text", "cpus"),
    [
        ({"affinity": "0-15"}, None, "Give each 8 exclusive CPUs: 0-7, 8-15", "0-7"),
        ({"affinity": "0-15"}, "8-15", "Give each 8 exclusive CPUs: 8-15, 0-7", "8-15"),
        ({"affinity": "4-7,12-15", "allowed_cpus": 8.0}, None, "Give each 4 exclusive CPUs: 4-7, 12-15", "4-7"),
        ({"affinity": "4-5", "allowed_cpus": 2.0}, None, "Give each 1 exclusive CPU: 4, 5", "4"),
        ({"affinity": None}, None, "Give each 8 exclusive CPUs: 0-7, 8-15", "0-7"),
        ({"affinity": None, "allowed_cpus": 8.0}, None, None, None),  # nobody knows which
    ],
)
def test_threads_host_gives_each_cpus_that_it_may_use(
    trainer: dict[str, Any], near: str | None, text: str | None, cpus: str | None
) -> None:
    frame = experiments(2, **{"busy_threads": 21, **trainer})

    def placed(t: float) -> Frame:
        one = frame(t)
        return replace(one, gpus=(replace(one.gpus[0], local_cpus=near), *one.gpus[1:]))

    finding = found(after(placed), "threads-host")
    assert finding is not None
    pins = [(step.text, step.command) for step in finding.steps if "taskset" in (step.command or "")]
    assert pins == ([] if text is None else [(text, f"taskset -c {cpus} python train.py")])


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
        assert told.headline.endswith("; possibly NumPy uses OpenBLAS, slow on Intel CPUs")
        commands = [step.command for step in told.steps]
        assert commands[0] == mkl.UNTIL_THEN  # a variable to set comes before what changes the program
        assert commands[-3:] == [mkl.IN_CONDA_FORGE, mkl.AFTER_PIP, mkl.IN_DEFAULTS]


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


@pytest.mark.parametrize(
    ("dials", "text"),
    [
        ({"model": "AMD EPYC 7763"}, "Try one compute thread per worker: each uses several"),
        ({"libraries": ("torch", "mkl")}, "Try one compute thread per worker: each uses several"),
        ({"libraries": ()}, "Try one compute thread per worker: each uses several (library hidden)"),
        ({}, None),  # the rule about OpenBLAS says so, and more
    ],
)  # fmt: skip
def test_pools_of_threads_in_loaders_are_told_on_any_cpu(dials: dict[str, Any], text: str | None) -> None:
    told = found(blas(**dials), "starved-cpu-saturated")
    assert told is not None
    one_thread = [step for step in told.steps if "one compute thread per worker" in step.text]
    assert [step.text for step in one_thread] == ([text] if text else [])
    assert sum("OPENBLAS_NUM_THREADS=1" in (step.command or "") for step in told.steps) == 1


@pytest.mark.parametrize("dials", [{"libraries": ()}, {"model": None}])
def test_openblas_on_intel_abstains(dials: dict[str, Any]) -> None:
    one = silent(blas(**dials), "openblas-on-intel")
    assert one is not None
    assert one.unlock or "model" in dials
