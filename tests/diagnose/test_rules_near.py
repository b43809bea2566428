"""Each rule just beyond and just inside its thresholds, through the physics of the simulated server.

A new case is a line: the rule, the threshold, on which side of it the rule fires, and what turns a number, as the
threshold counts, into a scenario. Both numbers are worked out from the threshold, so that near stays near.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from gputop import thresholds
from gputop.demo.server import GIB
from gputop.diagnose.rules import RULES
from gputop.model import Pressure
from tests.near import jobs, machines
from tests.near.machines import VRAM
from tests.near.makers import Made, always, gpus, machine, work
from tests.scenario_variants import looks, named, said

ABOVE, BELOW = 1, -1
LATE_S = 14.0  # of the end, in which what was planted is told all the time
MOST = 0.15  # of a threshold, that a dial may be off it


class Near(NamedTuple):
    """One dial. It is off its threshold by a share `off` of that: beyond, the rule fires; inside, it never does."""

    rule: str
    limit: str  # without a table that of the rule
    side: int  # of the limit, on which it fires
    made: Made
    off: float = 0.1
    until_s: float = 230.0
    from_s: float = 60.0
    each_s: int = 2

    @property
    def threshold(self) -> float:
        """What thresholds.toml says."""
        table, _, name = self.limit.rpartition(".")
        return thresholds.shipped()[table or self.rule][name]


def _available(scenario: str, of_bytes: float) -> Made:
    return machine(scenario, memory_available_bytes=lambda share: int(share * of_bytes))


def _swaps(**rates: Callable[[float], Any]) -> Made:
    quiet: dict[str, Any] = {
        "swap_in_per_s": lambda _: 0.0,
        "swap_out_per_s": lambda _: 0.0,
        "memory_pressure": lambda _: _waits(1.0),
    }
    return machine("memory-pressure", **{**quiet, **rates})


def _waits(percent: float) -> Pressure:
    return Pressure(some_percent=percent, full_percent=0.0, some_avg10_percent=percent)


SHORT: dict[str, Any] = {"period_s": 0.1}  # ten steps in each second: all seconds are alike
FEW_WAIT: dict[str, Any] = {
    "loader_read": 30e6,
    "loader_blocked": 25,
}  # what loaders and disk show is then not enough by itself
USAGE = (
    Near("no-cuda-context", "cores", ABOVE, work("no-cuda-context", "main_cpu", 100, pool_threads=0), until_s=330),
    Near("slow-start", "info_s", ABOVE, jobs.starting, until_s=480, off=0.15),
    Near("gpu-idle-cpu-busy", "cores", ABOVE, work("gpu-idle-cpu-busy", "main_cpu", 100), until_s=260),
    Near("gpu-idle-cpu-busy", "busy_percent", BELOW, work("gpu-idle-cpu-busy", "duty", 0.01, **SHORT), until_s=280),
    Near("stack-vs-gpu", "years", ABOVE, jobs.aged),
    Near("gpu-unused-in-job", "others_percent", ABOVE, jobs.unused, until_s=1100, from_s=0, each_s=5),
)
FEED = (
    Near("loader-in-main", "main", ABOVE, work("loader-in-main", "main_cpu", 100, duty=0.6)),
    Near("loader-in-main", "alternation.least", ABOVE, jobs.by_turns),
    Near("loader-in-main", "cores", BELOW, jobs.alone),
    Near("loader-in-main", "empty", ABOVE, jobs.gaps, each_s=1),
    Near("loader-in-main", "read_bytes_per_s", ABOVE, work("loader-in-main", "main_chars", **SHORT)),
    Near("starved-cpu-saturated", "saturation", ABOVE, work("starved-cpu-saturated", "loader_cpu", 100, main_cpu=0.5)),
    Near("starved-cpu-saturated", "loaders_share", ABOVE, jobs.crowd_of),
    Near("starved-cpu-idle", "loader_cpu", ABOVE, work("starved-cpu-idle", "loader_cpu", 100)),
    Near("starved-cpu-idle", "blocked", BELOW, work("starved-cpu-idle", "loader_blocked", 100)),
    Near("starved-cpu-idle", "io_percent", BELOW, work("starved-cpu-idle", "io_pressure")),
    Near("starved-cpu-idle", "starved.duty", BELOW, work("starved-cpu-idle", "duty"), off=0.07),
    Near("workers-oversized", "unneeded", BELOW, lambda cores: jobs.crew(8, cores)),
    Near("head-of-line", "loader_cpu", BELOW, work("head-of-line", "loader_cpu", 100)),
    Near("head-of-line", "main", BELOW, work("head-of-line", "main_cpu", 100)),
    Near("head-of-line", "starved.blocked", BELOW, work("head-of-line", "loader_blocked", 100)),
    Near("head-of-line", "starved.reads_bytes_per_s", BELOW, jobs.reading),
    Near("worker-respawn", "cost_s", ABOVE, jobs.restarts, until_s=330, each_s=1, off=0.15),
    Near("starved-cause-unknown", "starved.duty", BELOW, work("starved-cause-unknown", "duty"), off=0.07),
    Near("seen-inside", "share", ABOVE, jobs.inside),
)
EFFICIENCY = (
    Near("mem-bw-bound", "dram", ABOVE, work("mem-bw-bound", "dram", 80 / 0.95)),
    Near("mem-bw-bound", "tensor", BELOW, work("mem-bw-bound", "tensor", 93 / 0.95)),
    Near("gpu-bound-healthy", "busy_percent", ABOVE, work("healthy", "duty", 0.01, **SHORT), off=0.06),
    Near("gpu-bound-healthy", "sm", ABOVE, work("healthy", "sm", 100 / 0.98, tensor=20, dram=20)),
    Near("tensor-cores-idle", "busy_percent", ABOVE, work("tensor-cores-idle", "duty", 0.01, **SHORT, fp32=50)),
    Near("tensor-cores-idle", "fp32", ABOVE, work("tensor-cores-idle", "fp32", 100 / 0.97)),
    Near("tensor-cores-idle", "tensor", BELOW, work("tensor-cores-idle", "tensor", 100 / 0.97)),
    Near("busy-not-effective", "busy_percent", ABOVE, always("busy-not-effective", "duty", 0.01, **SHORT), off=0.06),
    Near("busy-not-effective", "sm", BELOW, work("busy-not-effective", "sm", 100)),
    Near("busy-not-effective", "tensor", BELOW, work("busy-not-effective", "tensor", 93, sm=40)),
    Near("busy-not-effective", "dram", BELOW, work("busy-not-effective", "dram", 80, sm=40)),
    Near("sync-log-stall", "write_bytes_per_s", ABOVE, work("sync-log-stall", "main_writes"), off=0.12),
    Near("sync-log-stall", "duty", BELOW, work("sync-log-stall", "duty"), off=0.06),
    Near("sync-log-stall", "loader_cpu", BELOW, work("sync-log-stall", "loader_cpu", 100)),
    Near("h2d-transfer-bound", "bytes_per_s", ABOVE, work("h2d-transfer-bound", "pcie_rx", 1 / 0.55)),
    Near("h2d-transfer-bound", "sm", BELOW, work("h2d-transfer-bound", "sm", 100 / 0.55)),
    Near("h2d-transfer-bound", "main", ABOVE, work("h2d-transfer-bound", "main_cpu", 100)),
    Near("overhead-bound", "main", ABOVE, work("overhead-bound", "main_cpu", 100)),
    Near("overhead-bound", "duty", BELOW, work("overhead-bound", "duty", sm=20), off=0.06),
    Near("overhead-bound", "sm", BELOW, work("overhead-bound", "sm", 100 / 0.46)),
    Near("slowdown", "slower", ABOVE, jobs.slower, until_s=1200, from_s=0, off=0.15),
    Near("small-job", "vram", BELOW, work("small-job", "vram_bytes", VRAM), until_s=1120),
    Near("small-job", "duty", BELOW, work("small-job", "duty", watts=150), until_s=1120),
    Near("small-job", "power_share", BELOW, jobs.drawing, until_s=1120),
)
CPUS = (
    Near("openblas-on-intel", "loader_cores", ABOVE, jobs.blas, off=0.07),
    Near("cpu-slow", "cap_share", BELOW, machines.capped_cpus),
    Near("cpu-slow", "clock_share", BELOW, machines.low_cpus),
    Near("neighbour", "run_wait", ABOVE, work("neighbour", "run_wait", 100)),
    Near("neighbour", "pressure_percent", ABOVE, work("neighbour", "cpu_pressure")),
    Near("neighbour", "cpu_percent", ABOVE, machines.built, off=0.05),
    Near("numa-misplacement", "cores", ABOVE, work("numa-misplacement", "main_cpu", 100, loader_cpu=0.1)),
    Near("cpu-quota", "throttled", ABOVE, work("cpu-quota", "throttled", 100, stopped_cpus=0.03)),
    Near("cpu-quota", "waiting", ABOVE, work("cpu-quota", "stopped_cpus", throttled=5)),
    Near("threads-process", "threads", ABOVE, lambda each: jobs.pool("threads-process", 16 * each)),
    Near("threads-process", "run_wait", ABOVE, work("threads-process", "run_wait", 100)),
    Near("threads-host", "threads", ABOVE, jobs.threads_of_all),
    Near("threads-host", "run_wait", ABOVE, work("threads-host", "run_wait", 100, cpu_pressure=20)),
    Near("threads-host", "pressure_percent", ABOVE, work("threads-host", "cpu_pressure", run_wait=20)),
    Near("self-overhead", "cpu_percent", ABOVE, machines.monitor),
)
STORAGE = (
    Near("io-bound", "storage.delayed", ABOVE, work("io-bound", "loader_blocked", 100, loader_read=60e6)),
    Near("io-bound", "storage.full_pressure_percent", ABOVE, work("io-bound", "io_pressure", 1 / 0.6, **FEW_WAIT)),
    Near("network-fs-bound", "rtt_s", ABOVE, machines.far_server),
    Near("network-fs-bound", "storage.blocked", ABOVE, work("network-fs-bound", "loader_blocked", 100, loader_cpu=70)),
    Near("cold-cache", "available", ABOVE, _available("cold-cache", 2015 * GIB), from_s=0),
    Near("io-small-files", "read_bytes", BELOW, machines.small_reads),
    Near("checkpoint-stall", "written_bytes", ABOVE, machines.saving, until_s=420, each_s=1),
    Near("evaluation-phase", "share", BELOW, machines.validating, until_s=520, off=0.15),
    Near("checkpoint-stall", "idle_s", ABOVE, machines.pausing, until_s=420, each_s=1, off=0.15),
    Near("shm-nearly-full", "used", ABOVE, machines.shm),
)
MEMORY = (
    Near("gmem-leak", "urgent_s", BELOW, machines.leaks, until_s=640, from_s=0, off=0.15),
    Near("host-memory-leak", "crit_s", BELOW, machines.host_leaks, until_s=640, from_s=0, off=0.15),
    Near("gmem-nearly-full", "info_share", ABOVE, work("gmem-nearly-full", "vram_bytes", VRAM, vram_per_s=0), off=0.03),
    Near("memory-pressure", "left", BELOW, _available("memory-pressure", 256 * GIB)),
    Near("memory-pressure", "pages_per_s", ABOVE, _swaps(swap_in_per_s=float)),
    Near("memory-pressure", "pressure_percent", ABOVE, _swaps(memory_pressure=_waits)),
    Near("gpu-shared", "together_percent", ABOVE, work("gpu-shared", "duty", 0.005)),
    Near("zombie-memory", "least_bytes", ABOVE, work("zombie-memory", "vram_bytes"), until_s=800, from_s=0),
    Near("zombie-memory", "idle_cores", BELOW, work("zombie-memory", "main_cpu", 100), until_s=800, from_s=0),
)
RANKS = (
    Near("dataparallel", "skew", ABOVE, jobs.first_gpu, off=0.08),
    Near("dataparallel", "together", ABOVE, jobs.together),
    Near("model-parallel", "least", ABOVE, work("model-parallel", "duty", 0.25)),
    Near("dataparallel", "alike", BELOW, jobs.unlike, off=0.15),
    Near("network-bound", "full", ABOVE, work("network-bound", "ethernet", 10e9 / 8)),
    Near("network-bound", "tcp_bytes_per_s", ABOVE, work("network-bound-tcp", "ethernet")),
    Near("straggler", "effect", ABOVE, jobs.late_card, until_s=320, off=0.15),
    Near("collective-wait", "pipe_percent", BELOW, work("collective-wait", "tensor")),
    Near("collective-wait", "dram_percent", BELOW, work("collective-wait", "dram", 0.8)),
)
DEVICES = (
    Near("thermal", "soft_percent", ABOVE, machines.by_driver, until_s=260),
    Near("thermal", "hard_percent", ABOVE, machines.in_hardware, until_s=260),
    Near("thermal", "slowdown_distance_celsius", BELOW, machines.hot, until_s=400, off=0.15),
    Near("power", "capped_percent", ABOVE, machines.capped, until_s=260),
    Near("power", "brake_percent", ABOVE, gpus("power", throttled_brake_percent=float)),
    Near("clocks-low", "clock_share", BELOW, gpus("clocks-low", sm_clock_mhz=lambda share: 1980 * share)),
    Near("clocks-low", "busy_percent", ABOVE, always("clocks-low", "duty", 0.01, **SHORT)),
    Near("hw-errors", "remapped_uncorrected", ABOVE, gpus("hw-errors", remapped_uncorrected=round)),
    Near("hw-errors", "retired_pages", ABOVE, gpus("hw-errors", retired_pages=round)),
    Near("pcie-degraded", "busy_percent", ABOVE, always("pcie-degraded", "duty", 0.01, **SHORT)),
    Near("mig-visibility", "used_share", BELOW, machines.instance, until_s=1020, from_s=0),
)
NEAR = (*USAGE, *FEED, *EFFICIENCY, *CPUS, *STORAGE, *MEMORY, *RANKS, *DEVICES)
WITHOUT = {
    "persistence-off": "a setting of the driver, that is on or off",
    "non-finite": "a number that is none, as the job says itself",
    "blind-spots": "what may not be read: that is hidden or not",
}


@pytest.mark.parametrize("near", NEAR, ids=lambda near: f"{near.rule}-{near.limit}")
def test_a_rule_fires_beyond_its_threshold_and_not_inside_of_it(near: Near) -> None:
    limit, off = near.threshold, near.side * near.off
    assert 0 < near.off <= MOST
    seen = {}
    for where, value in (("beyond", limit * (1 + off)), ("inside", limit * (1 - off))):
        seen[where] = [*looks(near.made(value), near.until_s, near.from_s, near.each_s)]
    late = [verdict for t, verdict in seen["beyond"] if t >= near.until_s - LATE_S]
    assert late, "no look at its end"
    assert all(near.rule in named(verdict) for verdict in late), f"beyond: {said(seen['beyond'])}"
    assert not any(near.rule in named(verdict) for _, verdict in seen["inside"]), f"inside: {said(seen['inside'])}"


def test_one_loader_more_than_cpus_is_too_many() -> None:
    for loaders, many in ((17, True), (16, False)):
        seen = [*looks(jobs.crew(loaders), 230)]
        assert ("workers-oversized" in named(seen[-1][1])) == many, said(seen)


def test_every_rule_has_a_dial_or_a_reason() -> None:
    dialled = {near.rule for near in NEAR}
    assert not dialled & set(WITHOUT)
    assert dialled | set(WITHOUT) == set(RULES)
