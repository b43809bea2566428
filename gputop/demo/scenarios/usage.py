"""Jobs that do not use their GPUs, or not yet."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gputop.demo.scenarios.cpu import of_job
from gputop.demo.scenarios.parts import BEFORE_S, HEALTHY, ONSET_S, PARKED, SOON_S, dgx, each, fault, llama, workstation
from gputop.demo.server import GIB, Job, Scenario


def _plain(job: Job) -> Job:
    return replace(job, launcher="python", launcher_command=(), slurm_job=None)


def on_the_cpu() -> Scenario:
    """A training run that begins and finds no GPU."""
    work = replace(PARKED, main_cpu=100, pool_threads=7, pool_cpu=98.5, run_wait=2, switches=400)
    job = replace(
        _plain(llama(((),), (ONSET_S, work), loaders=0)),
        name="resnet", command=("python", "train.py", "--arch", "resnet18"), started_s=ONSET_S - 11,
        libraries=("torch", "mkl", "gomp"), omp_threads=None,
    )  # fmt: skip
    return Scenario(
        name="no-cuda-context", title="a training run that uses the CPU and no GPU", server=workstation(job)
    )


def unused() -> Scenario:
    """Four GPUs, two ranks."""
    work = replace(HEALTHY, vram_bytes=61 * GIB)
    job = replace(llama(each(0, 1), (BEFORE_S, work), loaders=2), visible="0,1,2,3")
    return Scenario(
        name="gpu-unused-in-job", title="a job that has four GPUs and runs on two", server=dgx(4, job),
        open_at_s=2100, length_s=2400, past_s=SOON_S, watched_s=1950,
    )  # fmt: skip


def starting() -> Scenario:
    """A job that reads its weights for ten minutes."""
    work = replace(PARKED, main_cpu=35, main_read=180e6, main_chars=20e6, main_blocked=8, vram_bytes=0.5 * GIB)
    job = replace(
        _plain(llama(each(0), (ONSET_S, work), loaders=0)), name="llama-70b", started_s=ONSET_S - 11, data="/data"
    )
    return Scenario(
        name="slow-start", title="a job that reads its weights and does not begin", server=workstation(job),
        open_at_s=540,
    )  # fmt: skip


def outdated() -> Scenario:
    """A PyTorch from before its GPU."""
    work = replace(HEALTHY, vram_bytes=30 * GIB, nvlink=0)
    job = replace(
        _plain(llama(each(0), (ONSET_S, work), loaders=2)), torch=("1.13.1+cu117", "11.7"), started_s=ONSET_S - 11
    )
    title = "a job with a PyTorch that is older than its GPU"
    return Scenario(name="stack-vs-gpu", title=title, server=workstation(job))


def scenarios() -> Iterator[Scenario]:
    """Each plants the rule it is named after."""
    yield on_the_cpu()
    elsewhere = replace(PARKED, main_cpu=99, vram_bytes=30 * GIB, loader_cpu=0.1, loader_read=20e3, loader_cached=0)
    changed = {name: getattr(elsewhere, name) for name in elsewhere.__slots__}
    yield of_job(
        fault("gpu-idle-cpu-busy", "a job that indexes its data in the main process while its GPU waits", **changed)
    )
    yield from (unused(), starting(), outdated())
