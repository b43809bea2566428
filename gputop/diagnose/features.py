"""From what is remembered to the feature vector of a trainer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gputop.diagnose.memory import Memory
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.tree import key
from gputop.history import History
from gputop.model import Frame, Gpu, Job, Process, Role

WINDOW_S = 30.0
WARM_S = 60.0  # age of a CUDA context before anything is said of what it does
_COMPILERS = ("ptxas", "cicc", "nvcc", "cc1plus", "inductor", "triton")
_COMPILING_PERCENT = 20.0  # of one core
# field of Trainer, metric of Gpu, what it is divided by
_GPU_MEANS = (
    ("memory_busy", "memory_busy_percent", 100.0),
    ("sm", "sm_active_percent", 100.0),
    ("occupancy", "sm_occupancy_percent", 100.0),
    ("tensor", "tensor_percent", 100.0),
    ("dram", "dram_percent", 100.0),
    ("fp32", "fp32_percent", 100.0),
    ("pcie_rx", "pcie_rx_bytes_per_s", 1.0),
    ("pcie_tx", "pcie_tx_bytes_per_s", 1.0),
    ("nvlink", "nvlink_rx_bytes_per_s", 1.0),
)
# field of Trainer, metric of Tree
_TREE_MEANS = (
    ("cores", "cores"),
    ("main", "main"),
    ("loader_cpu", "loader_cpu"),
    ("loader_top", "loader_top"),
    ("loader_low", "loader_low"),
    ("loader_blocked", "loader_blocked"),
    ("loader_wait", "loader_wait"),
    ("main_wait", "main_wait"),
    ("run_wait", "run_wait"),
    ("compute_threads", "compute_threads"),
    ("throttled", "throttled"),
    ("read_bytes", "read_bytes_per_s"),
    ("read_chars", "read_chars_per_s"),
    ("read_calls", "read_calls_per_s"),
    ("write_chars", "write_chars_per_s"),
)


def trainer(frame: Frame, history: History, memory: Memory, tree: Sequence[Process], jobs: dict[str, Job]) -> Trainer:
    """The vector of one trainer, whose tree it is."""
    process = tree[0]
    known = memory.trainers[process.identity]
    seconds = max(1.0, min(WINDOW_S, frame.mono_s - known.phase_s))
    means = _Means(history, seconds)
    gpus = tuple(
        gpu for share in process.gpus if share.kind != "graphics" and (gpu := frame.by_uuid.get(share.uuid)) is not None
    )
    first = memory.cards.get(gpus[0].uuid) if gpus else None
    age_s = None if known.context_s is None else frame.mono_s - known.context_s
    about = key(process.identity)
    busy, switches = means.one(about, "busy_percent"), means.one(about, "switches")
    values: dict[str, Any] = {name: means.one(about, metric) for name, metric in _TREE_MEANS}
    values |= {name: means.all(gpus, metric, unit) for name, metric, unit in _GPU_MEANS}
    busy_cores = process.cpu_percent / 100 if process.cpu_percent else None
    return Trainer(
        process=process,
        job=jobs.get(process.job or ""),
        tree=tuple(tree),
        gpus=gpus,
        peers=len({one.pid for gpu in gpus for one in memory.tenants.get(gpu.uuid, ())} - {process.pid}),
        warm=age_s is not None and age_s >= WARM_S and known.worked,
        compiling=any(_compiles(one) for one in tree),
        context_s=age_s,
        phase_s=frame.mono_s - known.phase_s,
        missing=sum((one.missing for one in tree[:2]), ()) + sum((gpu.missing for gpu in gpus), ()),
        duty=None if busy is None else busy / 100,
        shape=first.shape if first else None,
        period=first.period if first else None,
        spacing_s=first.spacing_s if first else 1.0,
        power_share=_power_share(means, memory, gpus),
        clock_share=_clock_share(means, gpus),
        allowed=process.allowed_cpus,
        loaders=sum(one.role is Role.LOADER for one in tree),
        switches=switches / busy_cores if switches is not None and busy_cores else None,
        **values,
    )


class _Means:
    """Means over the window, where at least half of it is known."""

    def __init__(self, history: History, seconds: float) -> None:
        self._history, self._seconds = history, seconds

    def one(self, about: str, metric: str) -> float | None:
        """Of one subject."""
        return self._history.mean(about, metric, self._seconds, WINDOW_S / 2)

    def all(self, gpus: Sequence[Gpu], metric: str, unit: float) -> float | None:
        """Of all GPUs; unknown where it is of one."""
        total = 0.0
        for gpu in gpus:
            value = self.one(gpu.uuid, metric)
            if value is None:
                return None
            total += value
        return total / len(gpus) / unit if gpus else None


def _power_share(means: _Means, memory: Memory, gpus: Sequence[Gpu]) -> float | None:
    shares = []
    for gpu in gpus:
        watts, card = means.one(gpu.uuid, "power_watts"), memory.cards.get(gpu.uuid)
        idle = card.idle_watts(gpu) if card else None
        if watts is None or idle is None or gpu.power_limit_watts is None or gpu.power_limit_watts <= idle:
            return None
        shares.append((watts - idle) / (gpu.power_limit_watts - idle))
    return sum(shares) / len(shares) if shares else None


def _clock_share(means: _Means, gpus: Sequence[Gpu]) -> float | None:
    shares = []
    for gpu in gpus:
        clock = means.one(gpu.uuid, "sm_clock_mhz")
        if clock is None or not gpu.sm_clock_max_mhz:
            return None
        shares.append(clock / gpu.sm_clock_max_mhz)
    return sum(shares) / len(shares) if shares else None


def _compiles(process: Process) -> bool:
    return (process.cpu_percent or 0.0) > _COMPILING_PERCENT and process.name.startswith(_COMPILERS)
