"""Jobs that do not get out of their GPU what it could give: small work, slow workers, unused GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gputop.demo.scenarios.host import of_job
from gputop.demo.scenarios.parts import BEFORE_S, HEALTHY, ONSET_S, PARKED, SOON_S, dgx, each, fault, llama, workstation
from gputop.demo.server import GIB, DemoJob, Dip, Scenario


def busy() -> Iterator[Scenario]:
    """A GPU that is busy all the time, with the wrong things."""
    yield fault(
        "tensor-cores-idle", "a job with matrix products in fp32",
        duty=0.97, fp32=44, tensor=0, dram=20, sm=88, watts=480,
    )  # fmt: skip
    yield fault(
        "mem-bw-bound", "a job bound by GPU memory bandwidth",
        duty=0.95, dram=62, tensor=5, sm=80, watts=430,
    )  # fmt: skip
    yield fault(
        "busy-not-effective", "high utilization, low SM activity: kernels on a single SM",
        duty=1.0, sm=1, occupancy=0.4, tensor=0, dram=0, fp32=0.5, fp16=0, integer=0.3, watts=120,
    )  # fmt: skip


def waiting() -> Iterator[Scenario]:
    """A GPU that waits for its program."""
    yield fault(
        "overhead-bound", "a launch-bound job with many small kernels",
        period_s=0.05, duty=0.46, jitter=0.1, sm=28, tensor=12, dram=14, watts=320, loader_cpu=5, loader_read=20e3,
    )  # fmt: skip
    yield fault(
        "sync-log-stall", "a job that writes an image in every step",
        period_s=0.3, duty=0.68, jitter=0.1, main_writes=2.4e6, main_write_calls=40, loader_cpu=8,
    )  # fmt: skip
    copying = fault(
        "h2d-transfer-bound", "a job that copies batches from pageable memory",
        period_s=0.25, duty=0.55, jitter=0.1, pcie_rx=4.4e9, sm=42, tensor=20, dram=20, watts=330, loader_cpu=25,
    )  # fmt: skip
    yield of_job(copying, pins=False)


def evaluating() -> Scenario:
    """Nothing is wrong: its validation uses the GPU less than its training does."""
    dip = Dip(every_s=110, for_s=24, duty=0.3)
    scenario = fault(
        "evaluation-phase", "training with an evaluation every two minutes", length_s=900, duty=0.97, dip=dip
    )
    return replace(scenario, open_at_s=600)


def profiled() -> Scenario:
    """Logs that go to a slow server: nothing of that shows from outside, but there is a profile."""
    scenario = fault(
        "seen-inside", "a job blocked in logging, shown by a profile", loaders=0,
        period_s=0.8, duty=0.5, jitter=0.2, watts=300, sm=60, tensor=30, dram=25, main_cpu=12,
    )  # fmt: skip
    shown = (
        (ONSET_S, "logs", "main thread logging and drawing in 44 % of 1000 samples", 0.44),
        (ONSET_S, "sync", "main thread reading results back or printing them in 13 % of 1000 samples", 0.13),
    )
    return replace(scenario, server=replace(scenario.server, seen_inside=shown))


def diverged() -> Scenario:
    """Its GPU is as busy as ever, and all that it computes is NaN: only its own notes say so."""
    scenario = fault("non-finite", "training with a NaN loss, noted by the job itself", duty=0.97)
    jobs = tuple(replace(job, nan_s=ONSET_S) for job in scenario.server.jobs)
    return replace(scenario, server=replace(scenario.server, jobs=jobs))


def _efficiency_scenarios() -> Iterator[Scenario]:
    """Each plants the rule it is named after."""
    yield from busy()
    yield from waiting()
    little = fault(
        "small-job", "a model that underuses its GPU", loaders=0, length_s=1500.0,
        period_s=0.05, duty=0.28, jitter=0.1, sm=22, tensor=4, dram=6, watts=190, main_cpu=55, vram_bytes=3 * GIB,
    )  # fmt: skip
    yield replace(little, open_at_s=1200, past_s=1000)
    yield evaluating()
    yield diverged()
    yield profiled()


def crowd() -> Scenario:
    """A job that starts three loaders for every CPU."""
    work = replace(HEALTHY, loader_cpu=22, loader_read=20e3, vram_bytes=30 * GIB, nvlink=0)
    job = replace(llama(((0,),), (ONSET_S, work), loaders=48), started_s=ONSET_S - 11)
    return Scenario(
        name="workers-oversized", title="forty-eight workers on sixteen CPUs", server=workstation(job)
    )  # fmt: skip


def _feed_scenarios() -> Iterator[Scenario]:
    """Each plants the rule it is named after."""
    hungry = {"watts": 300, "sm": 60, "tensor": 30, "dram": 25, "main_cpu": 30}
    yield fault(
        "starved-cpu-saturated", "dataloader-bound, sixteen workers saturate the CPUs",
        loaders=16, period_s=1.3, duty=0.4, jitter=0.1, loader_cpu=96, cpu_pressure=30, **hungry,
    )  # fmt: skip
    yield fault(
        "starved-cpu-idle", "dataloader-bound, two workers are too few",
        loaders=2, period_s=0.8, duty=0.55, jitter=0.1, loader_cpu=97, **hungry,
    )  # fmt: skip
    yield fault(
        "starved-cpu-idle-flat", "the same with steps shorter than the sampling interval",
        loaders=3, period_s=0.15, duty=0.45, jitter=0.1, loader_cpu=98, **hungry,
    )  # fmt: skip
    yield fault(
        "loader-in-main", "data loading in the main process (num_workers=0)",
        loaders=0, period_s=1.0, duty=0.35, jitter=0.1, main_chars=40e6, **{**hungry, "main_cpu": 100},
    )  # fmt: skip
    yield crowd()
    yield fault(
        "head-of-line", "head-of-line blocking on slow samples",
        loaders=4, period_s=0.1, duty=0.4, jitter=0.3, loader_cpu=2, loader_read=20e3, loader_cached=1e6,
        **{**hungry, "main_cpu": 5},
    )  # fmt: skip
    yield fault(
        "worker-respawn", "eight workers that respawn every 41 s while the GPU waits",
        loaders=8, duty=0.97, loader_cpu=20, dip=Dip(every_s=41.0, for_s=3.2, respawn=True),
    )  # fmt: skip
    yield fault(
        "starved-cause-unknown", "a starved GPU, cause unknown",
        loaders=0, period_s=0.8, duty=0.5, jitter=0.2, **{**hungry, "main_cpu": 12},
    )  # fmt: skip


def _plain(job: DemoJob) -> DemoJob:
    return replace(job, launcher="python", launcher_command=(), slurm_job=None)


def on_the_cpu() -> Scenario:
    """A training run that begins and finds no GPU."""
    work = replace(PARKED, main_cpu=100, pool_threads=7, pool_cpu=98.5, run_wait=2, switches=400)
    job = replace(
        _plain(llama(((),), (ONSET_S, work), loaders=0)),
        name="resnet", command=("python", "train.py", "--arch", "resnet18"), started_s=ONSET_S - 11,
        libraries=("torch", "mkl", "gomp"), omp_threads=None,
    )  # fmt: skip
    return Scenario(name="no-cuda-context", title="training on the CPU without a CUDA context", server=workstation(job))


def unused() -> Scenario:
    """Four GPUs, two ranks."""
    work = replace(HEALTHY, vram_bytes=61 * GIB)
    job = replace(llama(each(0, 1), (BEFORE_S, work), loaders=2), visible="0,1,2,3")
    return Scenario(
        name="gpu-unused-in-job", title="a job with four GPUs that uses two", server=dgx(4, job),
        open_at_s=2100, length_s=2400, past_s=SOON_S, watched_s=1950,
    )  # fmt: skip


def starting() -> Scenario:
    """A job that reads its weights for ten minutes."""
    work = replace(PARKED, main_cpu=35, main_read=180e6, main_chars=20e6, main_blocked=8, vram_bytes=0.5 * GIB)
    job = replace(
        _plain(llama(each(0), (ONSET_S, work), loaders=0)), name="llama-70b", started_s=ONSET_S - 11, data="/data"
    )
    return Scenario(
        name="slow-start", title="a job stuck loading its weights", server=workstation(job),
        open_at_s=540,
    )  # fmt: skip


def outdated() -> Scenario:
    """A PyTorch from before its GPU."""
    work = replace(HEALTHY, vram_bytes=30 * GIB, nvlink=0)
    job = replace(
        _plain(llama(each(0), (ONSET_S, work), loaders=2)), torch=("1.13.1+cu117", "11.7"), started_s=ONSET_S - 11
    )
    title = "a PyTorch build too old for the GPU"
    return Scenario(name="stack-vs-gpu", title=title, server=workstation(job))


def _usage_scenarios() -> Iterator[Scenario]:
    """Each plants the rule it is named after."""
    yield on_the_cpu()
    elsewhere = replace(PARKED, main_cpu=99, vram_bytes=30 * GIB, loader_cpu=0.1, loader_read=20e3, loader_cached=0)
    changed = {name: getattr(elsewhere, name) for name in elsewhere.__slots__}
    yield of_job(fault("gpu-idle-cpu-busy", "a job that builds its dataset index in the main process", **changed))
    yield from (unused(), starting(), outdated())


def scenarios() -> Iterator[Scenario]:
    """All of them, by what the GPU does."""
    yield from (*_usage_scenarios(), *_feed_scenarios(), *_efficiency_scenarios())
