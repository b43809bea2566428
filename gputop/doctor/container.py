"""The environment: container, PID namespace, and the control group's limits on CPUs, memory and shared memory."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

from gputop import labels, units
from gputop.collect.filesystems import Size
from gputop.collect.proc.cgroup import place, slurm_job
from gputop.doctor.check import CheckLine, check
from gputop.doctor.machine import DoctorContext
from gputop.doctor.share import Share, share, shared_memory
from gputop.safe.identity import initial_pid_namespace

_GIB = 1 << 30
_DOCKER_SHM = 64 << 20  # bytes of /dev/shm in a container by default


@check("container", "Is this a container?", training=False)
def container(machine: DoctorContext) -> Iterator[CheckLine]:
    """Container detection by the usual signs."""
    kinds = (
        ("kubernetes", "KUBERNETES_SERVICE_HOST" in machine.environ),
        ("docker", machine.exists("/.dockerenv")),
        ("podman", machine.exists("/run/.containerenv")),
    )
    kind = next((name for name, is_so in kinds if is_so), machine.environ.get("container"))
    try:
        where = place(machine.kernel.proc("self/cgroup"))
    except OSError:
        where = place(b"")
    said = map(machine.environ.get, ("SLURM_JOB_ID", "SLURM_JOB_SLUID"))
    job = slurm_job(where.slurm_job, *said) if where.slurm_job else None
    value = {"container": machine.in_container, "kind": kind, "slurm_job": job}
    if machine.in_container:
        called = f" ({kind})" if kind else ""
        yield CheckLine("limited", f"a container{called}: run sudo commands on its host", value=value)
    elif job:
        yield CheckLine("ok", f"no container; inside Slurm job {job}", value=value)
    else:
        limits = "; limited by a cgroup (e.g. Slurm, systemd)" if _limited(machine) else ""
        yield CheckLine("ok", f"no container{limits}", value=value)


@check("pids", "Do the driver's PIDs match the processes here?", training=False)
def pids(machine: DoctorContext) -> Iterator[CheckLine]:
    """The driver reports host PIDs; without an answer from it only a foreign namespace is known."""
    if initial_pid_namespace(machine.kernel.proc_root):
        value = {"host_pids": True}
        if machine.driver.facts().cards:
            yield CheckLine("ok", "the driver reports the PIDs of this namespace", value=value)
        else:
            what = "PIDs of the driver not compared with those here: it named no GPU, or was not queried"
            yield CheckLine("unknown", what, value=value)
    else:
        what = "a separate PID namespace: the driver reports host PIDs, so GPU processes cannot be named"
        yield CheckLine("limited", what, "docker run --pid=host IMAGE", {"host_pids": False})


@check("cpus", "How many CPUs are allowed, and how many does PyTorch see?")
def cpus(machine: DoctorContext) -> Iterator[CheckLine]:
    """CPU affinity, which PyTorch honours, and the control group's quota, which it ignores."""
    got = share(machine)
    value = {"online": got.online, "affinity": got.affinity, "quota_cores": got.quota, "allowed": got.allowed}
    if got.quota is not None and ceil(got.quota) < got.affinity:
        what = f"PyTorch sees {got.affinity} CPUs, but the cgroup quota is {got.quota:g} CPUs"
        yield CheckLine("limited", what, f"export OMP_NUM_THREADS={got.threads}", value)
    elif got.affinity < got.online:
        what = f"{got.affinity} of {got.online} CPUs are allowed; os.cpu_count() returns {got.online}"
        yield CheckLine("ok", what, value=value)
    else:
        yield CheckLine("ok", f"all {got.online} CPUs are allowed", value=value)


@check("memory", "How much memory is allowed?")
def memory(machine: DoctorContext) -> Iterator[CheckLine]:
    """The control group's memory limit, which programs do not see."""
    got = share(machine)
    value = {"limit_bytes": got.memory_limit, "total_bytes": got.memory_total}
    if _memory_limited(got):
        seen = units.size(got.memory_total)
        what = f"programs see {seen}; the OOM killer acts above {units.size(got.memory_limit)} (cgroup limit)"
        more = _more_memory(machine)  # without a way to get more the limit is a plain fact
        yield CheckLine("limited" if more else "ok", what, more, value)
    elif got.memory_total is None:
        yield CheckLine("unknown", "the kernel does not report the memory size", value=value)
    else:
        yield CheckLine("ok", f"all {units.size(got.memory_total)} are allowed", value=value)


@check("shm", "Is /dev/shm large enough for DataLoader workers?")
def shm(machine: DoctorContext) -> Iterator[CheckLine]:
    """Shared memory: it carries batches from workers to the trainer."""
    got = share(machine)
    try:
        size = shared_memory(machine)
    except FileNotFoundError:
        yield CheckLine("missing", "/dev/shm does not exist: DataLoader workers fail", _larger(machine, got))
        return
    value: dict[str, object] = {"total_bytes": size.total, "free_bytes": size.free, "need_bytes": got.shm_need}
    yield _shm(machine, size, got, value)


def _shm(machine: DoctorContext, size: Size, got: Share, value: dict[str, object]) -> CheckLine:
    workers = labels.amount(got.shm_users, "worker")
    need = f"{workers} may need {units.size(got.shm_need)} (batches of 256 images)"
    if size.free >= got.shm_need:
        return CheckLine("ok", f"/dev/shm has {units.size(size.free)} free; {need}", value=value)
    if size.total <= _DOCKER_SHM:
        what = f'/dev/shm is {units.size(size.total)} (Docker default): workers die with "Bus error"; {need}'
        return CheckLine("missing", what, _larger(machine, got), value)
    free = f"/dev/shm has {units.size(size.free)} of {units.size(size.total)} free"
    if size.total >= got.shm_need:
        return CheckLine("limited", f"{free}; {need}; list what fills it", "ls -lS /dev/shm | head", value)
    return CheckLine("limited", f"{free}; {need}", _larger(machine, got), value)


def _limited(machine: DoctorContext) -> bool:
    """Whether a control group limits CPUs or memory; False if the kernel does not report it."""
    try:
        got = share(machine)
    except OSError:
        return False
    return got.allowed < got.affinity or _memory_limited(got)


def _memory_limited(got: Share) -> bool:
    return got.memory_limit is not None and (got.memory_total is None or got.memory_limit < got.memory_total)


def _larger(machine: DoctorContext, got: Share) -> str:
    gib = max(1, ceil(1.25 * got.shm_need / _GIB))
    if machine.in_container:
        return f"docker run --shm-size={gib}g IMAGE"
    return f"sudo mount -o remount,size={gib}G /dev/shm"


def _more_memory(machine: DoctorContext) -> str | None:
    if "SLURM_JOB_ID" in machine.environ:
        return "sbatch --mem=0 JOB"  # the node's total
    return "docker run --memory=0 IMAGE" if machine.in_container else None
