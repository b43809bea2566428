"""Resources a training job may use here: CPUs, memory, shared memory, and the number of jobs that share them."""

from __future__ import annotations

import re
from math import ceil

from gputop import num_workers
from gputop.collect.cgroups import Cgroups, membership, smallest
from gputop.collect.filesystems import Size, size_of
from gputop.collect.proc.proc_files import cpus
from gputop.doctor.machine import DoctorContext
from gputop.frozen_dataclass import frozen_dataclass

_BATCH_BYTES = 256 * 3 * 224 * 224 * 4  # 256 images of 224 x 224 as float32


@frozen_dataclass(frozen=True, slots=True)
class Share:
    """CPUs as programs count them and as the kernel grants them; `jobs`: one per usable GPU.

    `named`: those GPUs are the ones of CUDA_VISIBLE_DEVICES.
    """

    online: int
    affinity: int  # what PyTorch and nproc see
    quota: float | None  # cores granted by the control group
    memory_limit: int | None  # bytes
    memory_total: int | None
    jobs: int
    named: bool = False

    @property
    def per_gpu(self) -> str:
        """Where the number of jobs comes from."""
        return "one per GPU in CUDA_VISIBLE_DEVICES" if self.named else "one per GPU"

    @property
    def allowed(self) -> int:
        """Usable CPUs: the affinity, or the quota rounded up if that is less."""
        return self.affinity if self.quota is None else max(1, min(self.affinity, ceil(self.quota)))

    @property
    def workers(self) -> int:
        """Initial number of DataLoader workers per job."""
        return num_workers.initial(self.allowed / self.jobs)

    @property
    def threads(self) -> int:
        """Compute threads per job: allowed CPUs // jobs, at least 1."""
        return max(1, self.allowed // self.jobs)

    @property
    def shm_users(self) -> int:
        """Workers of all jobs together, at least one each."""
        return self.jobs * max(1, self.workers)

    @property
    def shm_need(self) -> int:
        """Bytes of shared memory for their batches, at 256 images per batch."""
        return self.shm_users * num_workers.PREFETCH * _BATCH_BYTES


def share(machine: DoctorContext) -> Share:
    """The share of the process in question; OSError if the kernel does not report it."""
    kernel = machine.kernel
    status = machine.status(machine.proc_folder)
    seen = cpus(kernel.sys("devices/system/cpu/online").decode("ascii", "replace"))
    groups = Cgroups(kernel, kernel.proc("self/mountinfo"))
    own = membership(kernel.proc(f"{machine.proc_folder}/cgroup"))
    quota = smallest(groups.cpu_quotas(groups.groups(own, "cpu")))
    memory = smallest(groups.memory_limits(groups.groups(own, "memory")))
    return Share(
        online=len(seen),
        affinity=len(cpus(status["Cpus_allowed_list"]) & seen) or len(seen),
        quota=quota.value if quota else None,
        memory_limit=int(memory.value) if memory else None,
        memory_total=_memory_total(machine),
        jobs=max(1, gpus(machine)),
        named="CUDA_VISIBLE_DEVICES" in (machine.settings or {}),
    )


def gpus(machine: DoctorContext) -> int:
    """GPUs used by a program started here: those of CUDA_VISIBLE_DEVICES, else all."""
    visible = (machine.settings or {}).get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        facts = machine.driver.facts()
        return len(facts.cards) or facts.in_sys
    listed = [entry.strip() for entry in visible.split(",")]
    # CUDA stops at the first invalid entry: -1, or an empty one
    return next((at for at, entry in enumerate(listed) if entry in ("", "-1")), len(listed))


def shared_memory(machine: DoctorContext) -> Size:
    """The size of /dev/shm as the process in question sees it; OSError without one."""
    if machine.pid is None:
        return size_of(machine.kernel.shm)
    return size_of(f"{machine.kernel.proc_root}/{machine.pid}/root/dev/shm")


def _memory_total(machine: DoctorContext) -> int | None:
    found = re.search(rb"^MemTotal:\s+(\d+) kB", machine.kernel.proc("meminfo"), re.MULTILINE)
    return int(found[1]) * 1024 if found else None
