"""Jobs that do not get out of their GPU what it could give."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gputop.demo.scenarios.cpu import of_job
from gputop.demo.scenarios.parts import ONSET_S, fault
from gputop.demo.server import GIB, Dip, Scenario


def busy() -> Iterator[Scenario]:
    """A GPU that is busy all the time, with the wrong things."""
    yield fault(
        "tensor-cores-idle", "a job that multiplies its matrices in fp32",
        duty=0.97, fp32=44, tensor=0, dram=20, sm=88, watts=480,
    )  # fmt: skip
    yield fault(
        "mem-bw-bound", "a job whose GPU moves as much memory as it can",
        duty=0.95, dram=62, tensor=5, sm=80, watts=430,
    )  # fmt: skip
    yield fault(
        "busy-not-effective", "a GPU that is busy all the time with one multiprocessor",
        duty=1.0, sm=1, occupancy=0.4, tensor=0, dram=0, fp32=0.5, fp16=0, integer=0.3, watts=120,
    )  # fmt: skip


def waiting() -> Iterator[Scenario]:
    """A GPU that waits for its program."""
    yield fault(
        "overhead-bound", "a job whose main thread launches one small kernel after the other",
        period_s=0.05, duty=0.46, jitter=0.1, sm=28, tensor=12, dram=14, watts=320, loader_cpu=5, loader_read=20e3,
    )  # fmt: skip
    yield fault(
        "sync-log-stall", "a job that stops at every step to write a picture",
        period_s=0.3, duty=0.68, jitter=0.1, main_writes=2.4e6, main_write_calls=40, loader_cpu=8,
    )  # fmt: skip
    copying = fault(
        "h2d-transfer-bound", "a job that copies every batch to its GPU from memory that is not pinned",
        period_s=0.25, duty=0.55, jitter=0.1, pcie_rx=4.4e9, sm=42, tensor=20, dram=20, watts=330, loader_cpu=25,
    )  # fmt: skip
    yield of_job(copying, pins=False)


def evaluating() -> Scenario:
    """Nothing is wrong: its validation uses the GPU less than its training does."""
    dip = Dip(every_s=110, for_s=24, duty=0.3)
    scenario = fault("evaluation-phase", "training that evaluates every two minutes", length_s=900, duty=0.97, dip=dip)
    return replace(scenario, open_at_s=600)


def profiled() -> Scenario:
    """Logs that go to a slow server: nothing of that shows from outside, but somebody has made a profile."""
    scenario = fault(
        "seen-inside", "a job that sleeps in its logging, as a profile has shown", loaders=0,
        period_s=0.8, duty=0.5, jitter=0.2, watts=300, sm=60, tensor=30, dram=25, main_cpu=12,
    )  # fmt: skip
    shown = (
        (ONSET_S, "logs", "its main thread is logging and drawing in 44 % of 1000 samples", 0.44),
        (ONSET_S, "sync", "its main thread is reading results back or printing them in 13 % of 1000 samples", 0.13),
    )
    return replace(scenario, server=replace(scenario.server, seen_inside=shown))


def diverged() -> Scenario:
    """Its GPU is as busy as ever, and all that it computes is NaN: only its own notes say so."""
    scenario = fault("non-finite", "a training whose loss became NaN, as it notes itself", duty=0.97)
    jobs = tuple(replace(job, nan_s=ONSET_S) for job in scenario.server.jobs)
    return replace(scenario, server=replace(scenario.server, jobs=jobs))


def scenarios() -> Iterator[Scenario]:
    """Each plants the rule it is named after."""
    yield from busy()
    yield from waiting()
    little = fault(
        "small-job", "a model that is small for its GPU", loaders=0, length_s=1500.0,
        period_s=0.05, duty=0.28, jitter=0.1, sm=22, tensor=4, dram=6, watts=190, main_cpu=55, vram_bytes=3 * GIB,
    )  # fmt: skip
    yield replace(little, open_at_s=1200, past_s=1000)
    yield evaluating()
    yield diverged()
    yield profiled()
