"""The workloads: what is planted, what must be found, what must not, and by which signals it shows.

Every case has a healthy twin: the same command with the fault taken out. Figures are for two CPUs; a case is held to
two of a larger machine. Bounds are (lowest, highest) of the fields of signals.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from gputop.numpy_blas import intel
from tests.workloads.confine import Confine, nothing, quota, slow_disk, small_shm

CPU = Path("/proc/cpuinfo").read_text()
Bounds = dict[str, tuple[float, float]]
ANY = float("inf")
STARVED, FED = (0.02, 0.8), (0.88, 1.0)
NONE, CALM = (0.0, 0.0), (0.0, 0.2)


@dataclass(frozen=True, kw_only=True)
class Case:
    """One planted fault and its healthy twin."""

    name: str
    plants: str  # the rule that must name it
    must_not: tuple[str, ...] = ()
    common: str = ""  # options of train.py
    faulty: str = ""
    healthy: str = ""
    program: str = "train.py"
    environment: dict[str, str] = field(default_factory=dict)
    faulty_environment: dict[str, str] = field(default_factory=dict)
    healthy_environment: dict[str, str] = field(default_factory=dict)
    copies: int = 1  # of the program, each on its own GPU
    ranks: int = 0  # started by torchrun; 0: not
    healthy_ranks: int | None = None  # None: as many
    gpus: int = 1
    confined: Confine = nothing
    healthy_confined: Confine | None = None  # None: as the faulty one
    neighbour: bool = False  # somebody else's program burns both CPUs beside the faulty one
    seconds: int = 150  # until the rule must have spoken: a minute of start, its window, its delay, half a minute
    calm: bool = False  # it leaves the CPUs to others: such cases are played at the same time
    look_s: int = 20  # what the signals need
    shows: Bounds = field(default_factory=dict)
    twin: Bounds = field(default_factory=dict)


CASES: tuple[Case, ...] = (
    Case(
        name="loader in the training process", plants="loader-in-main",
        must_not=("starved-cpu-saturated", "overhead-bound"),
        common="--sync --spin --device-ms 600 --cost-ms 480", faulty="--num-workers 0", healthy="--num-workers 1",
        shows={"duty": (0.25, 0.65), "idle": (0.15, 1), "main": (0.75, 1.1), "loaders": NONE, "cores": (0.75, 1.6)},
        twin={"duty": FED, "loaders": (1, 1)},
    ),
    Case(
        name="too few workers", plants="starved-cpu-idle",
        must_not=("starved-cpu-saturated", "io-bound", "head-of-line"),
        common="--device-ms 200 --cost-ms 280", faulty="--num-workers 1", healthy="--num-workers 2",
        shows={"duty": (0.3, 0.8), "loaders": (1, 1), "loader_low": (0.75, 1.1), "cores": (0.75, 1.2), "main": CALM,
               "blocked": (0, 0.1)},
        twin={"duty": FED, "loader_low": (0.3, 0.8)},
    ),
    Case(
        name="too many workers", plants="workers-oversized",
        must_not=("starved-cpu-saturated", "starved-cpu-idle"),
        common="--device-ms 100 --cost-ms 15", faulty="--num-workers 8", healthy="--num-workers 1", calm=True,
        shows={"duty": FED, "loaders": (8, 8), "loader_cpu": (0, 0.15)}, twin={"duty": FED, "loaders": (1, 1)},
    ),
    Case(
        name="costly transforms", plants="starved-cpu-saturated",
        must_not=("starved-cpu-idle", "threads-process", "threads-host", "head-of-line"),
        common="--device-ms 100 --num-workers 2", faulty="--cost-ms 400", healthy="--cost-ms 80",
        shows={"duty": STARVED, "cores": (1.3, 2.1), "loader_low": (0.6, 1.1), "threads": (0, 2.5)},
        twin={"duty": FED, "loader_cpu": (0.2, 0.6)},
    ),
    Case(
        name="slow samples hold up the rest", plants="head-of-line",
        must_not=("starved-cpu-idle", "io-bound", "starved-cpu-saturated"),
        common="--num-workers 4 --device-ms 60 --cost-ms 2 --latency-ms 20 --slow-one-in 160", healthy="--any-order",
        shows={"duty": STARVED, "loader_cpu": CALM, "blocked": (0, 0.1), "main": CALM}, twin={"duty": (0.8, 1)},
        look_s=30,
    ),
    Case(
        name="workers start anew each epoch", plants="worker-respawn",
        must_not=("checkpoint-stall", "gpu-idle-cpu-busy"),
        common="--num-workers 2 --device-ms 200 --cost-ms 8 --epoch-steps 8 --open-s 0.8",
        healthy="--persistent-workers", look_s=25,
        shows={"duty": (0.4, 0.86), "births": (2, 60), "write_chars": (0, 1e6)}, twin={"duty": FED, "births": NONE},
    ),
    Case(
        name="a picture and .item() each step", plants="sync-log-stall",
        must_not=("starved-cpu-idle", "loader-in-main", "overhead-bound"),
        common="--num-workers 1 --device-ms 60 --cost-ms 10", faulty="--sync --image-every 1",
        healthy="--image-every 100",
        shows={"duty": (0.3, 0.9), "write_chars": (1e5, ANY), "loader_cpu": (0, 0.4)},
        twin={"duty": FED, "write_chars": (0, 1e5)},
    ),
    Case(
        name="training waits for its checkpoints", plants="checkpoint-stall",
        must_not=("io-bound", "starved-cpu-saturated"), look_s=40, seconds=240,
        common="--num-workers 1 --device-ms 100 --cost-ms 10 --checkpoint-every-s 12", healthy="--checkpoint-aside",
        shows={"duty": (0.4, 0.88), "longest_idle_s": (2.5, 20), "idle_writes": (1e8, ANY)},
        twin={"duty": FED, "longest_idle_s": (0, 1.5)},
    ),
    Case(
        name="small files", plants="io-small-files",
        must_not=("starved-cpu-saturated", "starved-cpu-idle"), confined=slow_disk(reads_s=400),
        common="--num-workers 4 --device-ms 50", faulty="--small-files 8", healthy="--read-mb 0.5",
        shows={"duty": STARVED, "mean_read": (1, 65536), "blocked": (0.3, 1), "cores": (0, 1)},
        twin={"duty": FED, "mean_read": (65536, ANY)},
    ),
    Case(
        name="a slow disk", plants="io-bound",
        must_not=("starved-cpu-saturated", "starved-cpu-idle", "io-small-files", "checkpoint-stall"),
        confined=slow_disk(mb_s=40),
        common="--num-workers 4 --device-ms 100 --read-mb 1", healthy_confined=nothing,
        shows={"duty": STARVED, "blocked": (0.3, 1), "cores": (0, 1), "read_bytes": (2e7, 6e7)},
        twin={"duty": FED},
    ),
    Case(
        name="a CPU quota", plants="cpu-quota",
        must_not=("starved-cpu-saturated", "starved-cpu-idle"), confined=quota(0.5),
        common="--num-workers 2 --device-ms 100 --cost-ms 80", healthy_confined=quota(2.0),
        shows={"duty": STARVED, "throttled": (0.3, 1), "allowed": (0.4, 1)},
        twin={"duty": FED, "throttled": (0, 0.1)},
    ),
    Case(
        name="threads of four experiments", plants="threads-host",
        must_not=("starved-cpu-saturated",), copies=4, gpus=4, look_s=25,
        common="--num-workers 0 --device-ms 400 --cost-ms 4 --products 32", faulty="--threads 0",
        shows={"duty": STARVED, "threads": (6, 40), "run_wait": (0.3, 1)},
        twin={"duty": FED, "threads": (0, 5)},
    ),
    Case(
        name="threads of one process", plants="threads-process",
        must_not=("starved-cpu-saturated", "starved-cpu-idle", "loader-in-main"), confined=quota(0.5),
        environment={"OMP_WAIT_POLICY": "active"},  # a pool as large as the machine that spins uses up the quota
        # the main thread needs a third of a CPU: a spinning thread leaves it half of the quota, which is less
        common="--num-workers 1 --device-ms 90 --cost-ms 2 --products 2 --between-ms 24", faulty="--threads 0",
        shows={"duty": STARVED, "threads": (1.5, 4), "run_wait": (0.5, 1), "switches": (0, 1000),
               "throttled": (0.5, 1)},
        twin={"duty": FED, "threads": (0, 1.4), "throttled": (0, 0.5)},
    ),
    Case(
        name="OpenBLAS pools in the workers",
        plants="openblas-on-intel" if intel(CPU) else "starved-cpu-saturated",  # which tells of the pools elsewhere
        must_not=("starved-cpu-idle", "threads-host"), look_s=25,
        common="--num-workers 2 --device-ms 200 --svd 1", healthy_environment={"OPENBLAS_NUM_THREADS": "1"},
        shows={"duty": STARVED, "loader_wait": (0.3, 1), "cores": (1.0, 2.1)}, twin={"duty": FED},
    ),
    Case(
        name="a full /dev/shm", plants="shm-nearly-full",
        must_not=("starved-cpu-saturated", "io-bound"), confined=small_shm(67), calm=True,
        common="--num-workers 2 --device-ms 100 --sample-kb 1400", healthy_confined=small_shm(1024),
        shows={"shm": (0.7, 1)}, twin={"shm": (0, 0.3)},
    ),
    Case(
        name="host memory grows", plants="host-memory-leak",
        must_not=("gmem-leak", "memory-pressure"), seconds=960, look_s=25, calm=True,
        common="--num-workers 1 --device-ms 100", faulty="--keep-losses-mb-s 8",
        shows={"duty": FED, "host_growth": (6e6, 1e7), "vram_growth": (-1e5, 1e5)}, twin={"host_growth": (-1e6, 1e6)},
    ),
    Case(
        name="device memory grows", plants="gmem-leak",
        must_not=("host-memory-leak", "gmem-nearly-full"), seconds=960, look_s=25, calm=True,
        common="--num-workers 1 --device-ms 100", faulty="--vram-growth-mb-s 6",
        shows={"duty": FED, "vram_growth": (5.5e6, 7e6)}, twin={"vram_growth": NONE},
    ),
    Case(
        name="an idle notebook", plants="zombie-memory",
        must_not=("gpu-idle-cpu-busy", "starved-cpu-idle", "starved-cause-unknown"), program="ipykernel_launcher.py",
        common="-f kernel.json", healthy="--busy", seconds=720, calm=True,
        shows={"duty": (0, 0.01), "cores": (0, 0.05), "vram": (4e9, 5e9)}, twin={"duty": FED},
    ),
    Case(
        name="DataParallel", plants="dataparallel",
        must_not=("straggler", "gpu-unused-in-job"), gpus=4,
        common="--num-workers 1 --cost-ms 4 --device-ms 70", faulty="--skew 0.5 --vram-skew-gb 7 --between-ms 20",
        healthy_ranks=4,
        shows={"duty_low": (0.1, 0.5), "duty_high": (0.5, 0.9), "trainers": (1, 1)},
        twin={"duty_low": (0.7, 1), "trainers": (4, 4)},
    ),
    Case(
        name="a straggler", plants="straggler",
        must_not=("collective-wait", "starved-cpu-saturated"), ranks=2, gpus=2,
        common="--num-workers 1 --cost-ms 4 --device-ms 80", faulty="--slow-rank-factor 1.6",
        shows={"duty": (0.8, 1), "watts_low": (300, 480), "watts_high": (500, 620), "trainers": (2, 2)},
        twin={"duty": (0.8, 1), "watts_low": (500, 620)},
    ),
    Case(
        name="no GPU is used", plants="no-cuda-context",
        must_not=("starved-cpu-saturated", "loader-in-main"), seconds=200,
        common="--num-workers 1 --sync --cost-ms 4", faulty="--cpu --products 30 --threads 2",
        healthy="--device-ms 100",
        shows={"duty": NONE, "cores": (0.9, 2.1), "vram": NONE}, twin={"duty": FED},
    ),
    Case(
        name="the GPU waits for the main thread", plants="gpu-idle-cpu-busy",
        must_not=("starved-cpu-saturated", "starved-cpu-idle"),
        common="--num-workers 1 --sync --cost-ms 4 --device-ms 40", faulty="--between-ms 2000",
        shows={"duty": (0.005, 0.05), "main": (0.7, 1.1)}, twin={"duty": FED},
    ),
    Case(
        name="one small kernel after the other", plants="overhead-bound",
        must_not=("starved-cpu-saturated", "starved-cpu-idle", "loader-in-main"),
        common="--num-workers 1 --cost-ms 2 --device-ms 10 --launches 40",
        faulty="--launch-ms 0.5 --effort 0.3",  # small kernels leave most of the chip empty: large ones do not
        healthy="--launch-ms 0.03",
        shows={"duty": (0.2, 0.75), "idle": (0, 0.02), "main": (0.8, 1.1), "loader_cpu": (0, 0.3)},
        twin={"duty": FED, "main": (0, 0.6)},
    ),
    Case(
        name="low SM activity", plants="busy-not-effective",
        must_not=("gpu-bound-healthy", "collective-wait"),
        common="--num-workers 1 --device-ms 100", faulty="--effort 0.12", healthy="--effort 1", calm=True,
        shows={"duty": FED, "watts_high": (75, 200)}, twin={"duty": FED, "watts_high": (500, 620)},
    ),
    Case(
        name="a neighbour takes the CPUs", plants="neighbour",
        must_not=("starved-cpu-saturated", "threads-process", "threads-host"), neighbour=True,
        common="--num-workers 2 --device-ms 100 --cost-ms 110",
        shows={"duty": STARVED, "loader_wait": (0.3, 1)}, twin={"duty": FED},
    ),
)  # fmt: skip
