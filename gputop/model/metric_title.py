"""What a person calls a metric where its name in JSON would say less: in skipped checks and reasons."""

from __future__ import annotations

import re
from functools import cache

from gputop.model.gpu import Gpu
from gputop.model.host import Disk, Host, Network
from gputop.model.metric import metrics
from gputop.model.process import GpuShare, Process

_OWNERS = (Gpu, GpuShare, Process, Host, Disk, Network)  # of equal names, the first one's meaning counts
_HELP_END = re.compile(r"[:;,(]")
# where the help begins with no noun, or says what only its table adds; fields that are no metrics
_TITLES = {
    "allowed_cpus": "CPUs it may use",
    "blocked_percent": "time in state D",
    "boost_clock_max_mhz": "maximum graphics clock",
    "busy_threads": "runnable threads",
    "command": "command line",
    "compute_capability": "compute capability",
    "cpu_pressure": "PSI cpu",
    "dram_percent": "memory bandwidth",
    "ecc_uncorrected": "uncorrectable ECC errors",
    "facts": "facts of a profile or trace",
    "fp32_percent": "fp32 pipe activity",
    "gpus": "GPU processes",
    "io_pressure": "PSI io",
    "libraries": "loaded libraries",
    "local_cpus": "CPUs of the GPU's NUMA node",
    "memory_pressure": "PSI memory",
    "memory_total_bytes": "host memory installed",
    "pressure": "PSI",
    "power_watts": "board power",
    "processes": "GPU processes",
    "pss_bytes": "PSS",
    "read_bytes_per_s": "bytes read from storage",
    "read_chars_per_s": "bytes read by system calls",
    "receive_bytes_per_s": "bytes received",
    "send_bytes_per_s": "bytes sent",
    "shm_total_bytes": "size of /dev/shm",
    "shm_used_bytes": "/dev/shm in use",
    "swap_in_per_s": "pages swapped in",
    "tensor_percent": "tensor core activity",
    "throttled_percent": "CPU quota throttling",
    "torch_version": "torch version",
    "visible_gpus": "CUDA_VISIBLE_DEVICES",
    "vram_bytes": "device memory of the process",
    "waiting_in": "kernel function it sleeps in",
    "world_size": "WORLD_SIZE",
    "write_bytes_per_s": "bytes written to storage",
    "write_chars_per_s": "bytes written by system calls",
}


@cache
def metric_title(name: str) -> str:
    """`GPU busy` of busy_percent; of alternatives, such as `power_watts or busy_percent`, all; unknown as it is."""
    return " or ".join(_titles().get(one, one) for one in name.split(" or "))


@cache
def _titles() -> dict[str, str]:
    """The title of each metric: the beginning of its help, unless it has one of its own."""
    found: dict[str, str] = {}
    for owner in _OWNERS:
        for metric in metrics(owner):
            found.setdefault(metric.name, _HELP_END.split(metric.help)[0].strip())
    return found | _TITLES
