"""What is so in each simulated server: the rule that must lead, how bad it is, and what must never be said."""

from __future__ import annotations

from typing import NamedTuple


class Expected(NamedTuple):
    """The truth about a scenario."""

    primary: str
    severity: str
    never: tuple[str, ...] = ()
    by_s: float = 180.0  # after the onset
    mild: tuple[str, ...] = ()  # what may be told, but not as an alarm
    over_s: float | None = None  # when the fault is over by itself
    also: str | None = None  # what is true as well, and says less: what it is the cause of, or what it comes from


WELL = "gpu-bound-healthy"  # what is so where nothing is wrong
EXPECTED = {
    "loader-in-main": Expected("loader-in-main", "warn", ("overhead-bound", "starved-cpu-saturated")),
    "starved-cpu-saturated": Expected("starved-cpu-saturated", "crit", ("starved-cpu-idle", "threads-host")),
    "starved-cpu-saturated-shared": Expected(
        "starved-cpu-saturated", "crit", ("starved-cpu-idle", "threads-host", "neighbour")
    ),
    "starved-cpu-idle": Expected("starved-cpu-idle", "warn", ("starved-cpu-saturated", "io-bound")),
    "starved-cpu-idle-flat": Expected("starved-cpu-idle", "crit", ("small-job", "overhead-bound")),
    "head-of-line": Expected("head-of-line", "warn", ("starved-cpu-idle", "io-bound", "starved-cause-unknown")),
    "worker-respawn": Expected("worker-respawn", "warn", ("checkpoint-stall", "head-of-line", "gpu-idle-cpu-busy")),
    "starved-cause-unknown": Expected(
        "starved-cause-unknown", "warn", ("loader-in-main", "overhead-bound", "small-job", "head-of-line")
    ),
    "tensor-cores-idle": Expected("tensor-cores-idle", "warn", ("busy-not-effective", "mem-bw-bound")),
    "mem-bw-bound": Expected("mem-bw-bound", "info", ("tensor-cores-idle", "busy-not-effective")),
    "busy-not-effective": Expected("busy-not-effective", "warn", ("tensor-cores-idle", "collective-wait")),
    "overhead-bound": Expected("overhead-bound", "crit", ("loader-in-main", "starved-cpu-saturated", "small-job")),
    "sync-log-stall": Expected("sync-log-stall", "warn", ("overhead-bound", "checkpoint-stall", "loader-in-main")),
    "h2d-transfer-bound": Expected("h2d-transfer-bound", "warn", ("overhead-bound", "numa-misplacement")),
    "small-job": Expected(
        "small-job", "info", ("overhead-bound", "starved-cause-unknown", "busy-not-effective"), by_s=1000.0
    ),
    "no-cuda-context": Expected("no-cuda-context", "warn", ("starved-cpu-saturated", "slow-start"), by_s=370.0),
    "gpu-idle-cpu-busy": Expected("gpu-idle-cpu-busy", "warn", ("loader-in-main", "no-cuda-context")),
    "gpu-unused-in-job": Expected("gpu-unused-in-job", "warn", ("gpu-idle-cpu-busy", "dataparallel"), by_s=1900.0),
    "slow-start": Expected("slow-start", "info", ("gpu-idle-cpu-busy", "no-cuda-context"), by_s=340.0),
    "threads-process": Expected("threads-process", "warn", ("threads-host", "starved-cpu-saturated")),
    "threads-host": Expected("threads-host", "crit", ("threads-process", "starved-cpu-saturated")),
    "openblas-on-intel": Expected(
        "openblas-on-intel", "crit", ("threads-process", "cpu-quota"), also="starved-cpu-saturated"
    ),
    "cpu-quota": Expected("cpu-quota", "crit", ("threads-process", "starved-cpu-saturated")),
    "cpu-slow": Expected("cpu-slow", "warn", ("cpu-quota", "neighbour"), also="starved-cpu-saturated"),
    "numa-misplacement": Expected("numa-misplacement", "warn", ("starved-cpu-idle", "h2d-transfer-bound")),
    "neighbour": Expected("neighbour", "warn", ("starved-cpu-saturated", "threads-host")),
    "io-bound": Expected(
        "io-bound", "crit", ("starved-cpu-idle", "starved-cpu-saturated", "io-small-files", "network-fs-bound")
    ),
    "io-small-files": Expected("io-small-files", "crit", ("memory-pressure", "network-fs-bound", "checkpoint-stall")),
    "network-fs-bound": Expected("network-fs-bound", "crit", ("starved-cpu-idle", "io-small-files", "cold-cache")),
    "checkpoint-stall": Expected("checkpoint-stall", "warn", ("io-bound", "starved-cpu-saturated"), by_s=1000.0),
    "shm-nearly-full": Expected("shm-nearly-full", "crit", ("io-bound", "starved-cpu-saturated"), by_s=120.0),
    "stack-vs-gpu": Expected("stack-vs-gpu", "warn", ("slow-start", "no-cuda-context")),
    "memory-pressure": Expected("memory-pressure", "warn", ("io-bound", "host-memory-leak", "starved-cpu-saturated")),
    "host-memory-leak": Expected("host-memory-leak", "warn", ("gmem-leak", "memory-pressure"), by_s=900.0),
    "gmem-nearly-full": Expected("gmem-nearly-full", "warn", ("gmem-leak", "zombie-memory")),
    "gmem-leak": Expected("gmem-leak", "warn", ("gmem-nearly-full", "host-memory-leak"), by_s=900.0),
    "zombie-memory": Expected("zombie-memory", "warn", ("gpu-unused-in-job", "gpu-idle-cpu-busy"), by_s=660.0),
    "gpu-shared": Expected("gpu-shared", "warn", ("zombie-memory", "starved-cpu-idle")),
    "hw-errors": Expected("hw-errors", "crit", ("pcie-degraded", "thermal"), by_s=20.0),
    "dataparallel": Expected("dataparallel", "warn", ("straggler", "gpu-unused-in-job")),
    "model-parallel": Expected(
        "model-parallel", "info", ("gpu-unused-in-job", "starved-cause-unknown", "loader-in-main", "dataparallel")
    ),
    "network-bound": Expected("network-bound", "warn", ("collective-wait", "straggler")),
    "network-bound-tcp": Expected("network-bound", "warn", ("collective-wait", "straggler")),
    "collective-wait": Expected("collective-wait", "warn", ("straggler", "network-bound")),
    "collective-wait-hang": Expected("collective-wait", "crit", ("straggler",), by_s=240.0),
    "straggler": Expected("straggler", "crit", ("collective-wait",), also="thermal"),
    "slowdown": Expected("slowdown", "warn", ("thermal", "starved-cpu-idle"), by_s=1080.0),
    "thermal": Expected("thermal", "warn", ("power", "clocks-low")),
    "power": Expected("power", "warn", ("thermal", "clocks-low")),
    "clocks-low": Expected("clocks-low", "warn", ("thermal", "power")),
    "non-finite": Expected("non-finite", "crit", ("small-job", "busy-not-effective"), by_s=20.0),
    "pcie-degraded": Expected("pcie-degraded", "warn", ("h2d-transfer-bound", "hw-errors")),
    "seen-inside": Expected("seen-inside", "warn", ("loader-in-main", "overhead-bound", "small-job", "head-of-line")),
}
# what is told beside whatever leads, and never leads itself
BESIDE = {
    "cold-cache": Expected("cold-cache", "info", ("starved-cpu-idle",), mild=("io-bound",), over_s=400.0),
    "workers-oversized": Expected("workers-oversized", "info", ("starved-cpu-saturated", "head-of-line")),
    "persistence-off": Expected("persistence-off", "info", ("hw-errors",)),
    "evaluation-phase": Expected("evaluation-phase", "info", ("checkpoint-stall", "slowdown"), by_s=400.0),
    "mig-visibility": Expected("mig-visibility", "info", ("no-cuda-context", "zombie-memory")),
    "self-overhead": Expected("self-overhead", "info", ("neighbour",)),
    "blind-spots": Expected("blind-spots", "info", ("openblas-on-intel", "io-bound", "starved-cpu-idle")),
}
# where nothing is wrong, and what above all must not be said
HEALTHY = {"healthy": ("power", "overhead-bound", "threads-process"), "healthy-plateau": ("gmem-leak",)}
