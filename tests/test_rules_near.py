"""Each rule just beyond and just inside one of its thresholds, through the physics of the simulated server."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from gputop import thresholds
from gputop.demo.server import GIB
from gputop.diagnose.rules import RULES
from tests import planted
from tests.dials import looks, named, said
from tests.planted import VRAM, Made, gpus, machine, work

ABOVE, BELOW = 1, -1
LATE_S = 14.0  # of the end, in which what was planted is told all the time
MOST = 0.15  # of a threshold, that a dial may be off it


class Near(NamedTuple):
    """One dial. It is off its threshold by a share `off` of that: beyond, the rule fires; inside, it never does."""

    rule: str
    limit: str  # as the rules name it: without a table that of the rule
    side: int
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


MEMORY = 256 * GIB  # of the workstation
NEAR = (
    Near("no-cuda-context", "cores", ABOVE, work("no-cuda-context", "main_cpu", 100, pool_threads=0), until_s=330),
    Near("slow-start", "info_s", ABOVE, planted.starting, off=0.15, until_s=480),
    Near("gpu-idle-cpu-busy", "cores", ABOVE, work("gpu-idle-cpu-busy", "main_cpu", 100), until_s=260),
    Near("stack-vs-gpu", "years", ABOVE, planted.aged),
    Near(
        "gpu-unused-in-job",
        "others_percent",
        ABOVE,
        work("gpu-unused-in-job", "duty", 0.01),
        until_s=1100,
        each_s=5,
        from_s=0,
    ),
    Near("loader-in-main", "main", ABOVE, work("loader-in-main", "main_cpu", 100)),
    Near("starved-cpu-saturated", "saturation", ABOVE, work("starved-cpu-saturated", "loader_cpu", 100, main_cpu=0.5)),
    Near("starved-cpu-idle", "loader_cpu", ABOVE, work("starved-cpu-idle", "loader_cpu", 100)),
    Near("starved-cpu-idle", "starved.duty", BELOW, work("starved-cpu-idle", "duty"), off=0.07),
    Near("workers-oversized", "unneeded", BELOW, lambda cores: planted.crew(8, cores)),
    Near("head-of-line", "loader_cpu", BELOW, work("head-of-line", "loader_cpu", 100)),
    Near("head-of-line", "main", BELOW, work("head-of-line", "main_cpu", 100)),
    Near("worker-respawn", "cost_s", ABOVE, planted.restarts, off=0.15, until_s=330, each_s=1),
    Near("mem-bw-bound", "dram", ABOVE, work("mem-bw-bound", "dram", 80 / 0.95)),
    Near("gpu-bound-healthy", "busy_percent", ABOVE, work("healthy", "duty", 0.01, period_s=0.1), off=0.06),
    Near("tensor-cores-idle", "fp32", ABOVE, work("tensor-cores-idle", "fp32", 100 / 0.97)),
    Near("tensor-cores-idle", "tensor", BELOW, work("tensor-cores-idle", "tensor", 100 / 0.97), off=0.15),
    Near("busy-not-effective", "sm", BELOW, work("busy-not-effective", "sm", 100)),
    Near("sync-log-stall", "write_bytes_per_s", ABOVE, work("sync-log-stall", "main_writes"), off=0.12),
    Near("h2d-transfer-bound", "bytes_per_s", ABOVE, work("h2d-transfer-bound", "pcie_rx", 1 / 0.55)),
    Near("overhead-bound", "main", ABOVE, work("overhead-bound", "main_cpu", 100)),
    Near("overhead-bound", "duty", BELOW, work("overhead-bound", "duty", sm=20), off=0.06),
    Near("slowdown", "slower", ABOVE, planted.slower, off=0.15, until_s=1200, from_s=0),
    Near("small-job", "vram", BELOW, work("small-job", "vram_bytes", VRAM), until_s=1120),
    Near("openblas-on-intel", "loader_cores", ABOVE, planted.blas, off=0.07),
    Near("cpu-slow", "cap_share", BELOW, planted.slow_cpus),
    Near("neighbour", "run_wait", ABOVE, work("neighbour", "run_wait", 100)),
    Near("numa-misplacement", "cores", ABOVE, work("numa-misplacement", "main_cpu", 100, loader_cpu=0.1)),
    Near("cpu-quota", "throttled", ABOVE, work("cpu-quota", "throttled", 100, stopped_cpus=0.03)),
    Near("threads-process", "threads", ABOVE, lambda each: planted.pool("threads-process", 16 * each)),
    Near("threads-process", "run_wait", ABOVE, work("threads-process", "run_wait", 100)),
    Near("threads-host", "threads", ABOVE, planted.threads_of_all),
    Near("io-bound", "storage.delayed", ABOVE, work("io-bound", "loader_blocked", 100, loader_read=60e6)),
    Near("network-fs-bound", "rtt_s", ABOVE, planted.far_server),
    Near(
        "cold-cache",
        "available",
        ABOVE,
        machine("cold-cache", memory_available_bytes=lambda share: int(share * 2015 * GIB)),
        from_s=0,
    ),
    Near("io-small-files", "read_bytes", BELOW, planted.small_reads),
    Near("checkpoint-stall", "written_bytes", ABOVE, planted.saving, until_s=420, each_s=1),
    Near("shm-nearly-full", "used", ABOVE, planted.shm),
    Near("gmem-leak", "urgent_s", BELOW, planted.leaks, off=0.15, until_s=640, from_s=0),
    Near("host-memory-leak", "crit_s", BELOW, planted.host_leaks, off=0.15, until_s=640, from_s=0),
    Near(
        "gmem-nearly-full", "info_share", ABOVE, work("gmem-nearly-full", "vram_bytes", VRAM, vram_per_s=0.0), off=0.03
    ),
    Near(
        "memory-pressure",
        "left",
        BELOW,
        machine("memory-pressure", memory_available_bytes=lambda share: int(share * MEMORY)),
    ),
    Near("gpu-shared", "together_percent", ABOVE, work("gpu-shared", "duty", 0.005)),
    Near("zombie-memory", "least_bytes", ABOVE, work("zombie-memory", "vram_bytes"), until_s=800, from_s=0),
    Near("dataparallel", "skew", ABOVE, planted.first_gpu, off=0.08),
    Near("network-bound", "full", ABOVE, work("network-bound", "ethernet", 10e9 / 8)),
    Near("straggler", "effect", ABOVE, planted.late_card, off=0.15, until_s=320),
    Near("collective-wait", "pipe_percent", BELOW, work("collective-wait", "tensor")),
    Near("thermal", "soft_percent", ABOVE, planted.hot, until_s=260),
    Near("power", "capped_percent", ABOVE, planted.capped, until_s=260),
    Near("clocks-low", "clock_share", BELOW, gpus("clocks-low", sm_clock_mhz=lambda share: 1980 * share)),
    Near("hw-errors", "remapped_uncorrected", ABOVE, gpus("hw-errors", remapped_uncorrected=round)),
    Near("pcie-degraded", "busy_percent", ABOVE, planted.eight_lanes),
    Near("mig-visibility", "used_share", BELOW, planted.instance, until_s=1020, from_s=0),
    Near("starved-cause-unknown", "starved.duty", BELOW, work("starved-cause-unknown", "duty"), off=0.07),
    Near("seen-inside", "share", ABOVE, planted.inside),
    Near("self-overhead", "cpu_percent", ABOVE, planted.monitor),
)
WITHOUT = {
    "persistence-off": "a setting of the driver, that is on or off",
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


def test_every_rule_has_a_dial_or_a_reason() -> None:
    dialled = {near.rule for near in NEAR}
    assert not dialled & set(WITHOUT)
    assert dialled | set(WITHOUT) == set(RULES)
