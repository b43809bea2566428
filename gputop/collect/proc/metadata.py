"""What is asked once of a process: command line, environment, folder, libraries, cgroup. Any of it may never answer."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping

from gputop.collect.filesystems import shared_memory
from gputop.collect.kernel_files import slurp_all, why
from gputop.collect.proc.cgroup import CgroupPath, place, slurm_job
from gputop.collect.proc.proc_files import Values
from gputop.model import Identity, Missing, Reason
from gputop.safe import ptrace_access
from gputop.safe.identity import Stat, read_stat
from gputop.safe.text import LIMIT, decode

MOST_ARGUMENTS = 512
_ENTRY = re.compile(rb"(?:^|\x00)([A-Z][A-Z0-9_]{1,39})=([^\x00]{0,256})")

# the first that is set counts: torch's own names, then launchers that start ranks without them
_NUMBERS: dict[str, tuple[bytes, ...]] = {
    "rank": (b"RANK", b"OMPI_COMM_WORLD_RANK", b"HOROVOD_RANK", b"PMI_RANK", b"PMIX_RANK"),
    "local_rank": (b"LOCAL_RANK", b"OMPI_COMM_WORLD_LOCAL_RANK", b"HOROVOD_LOCAL_RANK", b"MPI_LOCALRANKID"),
    "world_size": (b"WORLD_SIZE", b"OMPI_COMM_WORLD_SIZE", b"HOROVOD_SIZE", b"PMI_SIZE"),
    "omp_threads": (b"OMP_NUM_THREADS",),
    "mkl_threads": (b"MKL_NUM_THREADS",),
}
_SLURM_NUMBERS = {"rank": b"SLURM_PROCID", "local_rank": b"SLURM_LOCALID", "world_size": b"SLURM_NTASKS"}
_WORDS = {
    "visible_gpus": b"CUDA_VISIBLE_DEVICES",
    "slurm_name": b"SLURM_JOB_NAME",
}
_LIBRARIES: dict[str, tuple[bytes, ...]] = {
    "torch": (b"/libtorch_cpu", b"/libtorch_cuda", b"/libtorch_python"),
    "tensorflow": (b"/libtensorflow", b"/_pywrap_tensorflow"),
    "jax": (b"/jaxlib/",),
    "cuda": (b"/libcuda.so", b"/dev/nvidia"),
    "openblas": (b"openblas",),
    "mkl": (b"/libmkl_",),
    "gomp": (b"/libgomp",),
    "iomp5": (b"/libiomp5",),
}
_TORCH = re.compile(rb" (/[^\n]{1,4000}/torch)/lib/libtorch_(?:cpu|cuda|python)")


def command(raw: bytes) -> tuple[str, ...]:
    """The arguments in a cmdline file; empty for a process that has none, or wiped them."""
    text = raw.rstrip(b"\x00")
    if not text:
        return ()
    arguments = text.split(b"\x00", MOST_ARGUMENTS)
    if len(arguments) > MOST_ARGUMENTS:
        arguments[MOST_ARGUMENTS:] = ["…".encode()]
    return tuple(decode(argument, LIMIT) for argument in arguments)


def environment(raw: bytes, slurm: str | None = None) -> Values:
    """Fields of a Process from the environment it was started with; nothing else of it is kept.

    `slurm` is its Slurm job as its cgroup shows it.
    """
    found: dict[bytes, bytes] = dict(_ENTRY.findall(raw))
    values: Values = {}
    for field, names in _NUMBERS.items():
        numbers = (_number(found.get(name)) for name in names)
        values[field] = next((number for number in numbers if number is not None), None)
    # every process of a Slurm step has these, so alone they say nothing
    if values["rank"] is None and (_number(found.get(_SLURM_NUMBERS["world_size"])) or 0) > 1:
        for field, name in _SLURM_NUMBERS.items():
            values[field] = _number(found.get(name))
    for field, name in _WORDS.items():
        values[field] = _word(found, name)
    values["slurm_job"] = slurm_job(slurm, _word(found, b"SLURM_JOB_ID"), _word(found, b"SLURM_JOB_SLUID"))
    address, port = decode(found.get(b"MASTER_ADDR", b""), 256), _number(found.get(b"MASTER_PORT"))
    if port:  # 0 is a port that is chosen later, and differs; the address may be set by the program itself
        values["rendezvous"] = f"{'127.0.0.1' if address == 'localhost' else address}:{port}"
    return {field: value for field, value in values.items() if value is not None}


def libraries(raw: bytes) -> tuple[str, ...]:
    """Which of the libraries that matter are mapped; a mapped NVIDIA device counts as cuda."""
    return tuple(name for name, needles in _LIBRARIES.items() if any(needle in raw for needle in needles))


def torch_package(raw: bytes) -> str | None:
    """The folder of the PyTorch that is mapped, as the process sees it."""
    found = _TORCH.search(raw)
    return os.fsdecode(found[1]) if found else None


def pss(raw: bytes) -> int | None:
    """Bytes of the Pss line of smaps_rollup."""
    start = raw.find(b"\nPss:")
    words = raw[start + 5 : start + 64].split() if start >= 0 else []
    return int(words[0]) * 1024 if words and words[0].isdigit() else None


def folder(path: str) -> str | None:
    """The last part of a working folder's path, clean; None for the root."""
    name = path.removesuffix(" (deleted)").rstrip("/").rpartition("/")[2]
    return decode(name.encode("utf-8", "surrogateescape"), 128) or None


def _word(found: Mapping[bytes, bytes], name: bytes) -> str | None:
    return decode(found[name], 256) if name in found else None


def _number(raw: bytes | None) -> int | None:
    return int(raw) if raw and raw.isdigit() and len(raw) < 10 else None


PSS_FILLS, SHM_FILLS = ("pss_bytes",), ("shm_total_bytes", "shm_used_bytes")
WEIGHT_FILLS = (*PSS_FILLS, *SHM_FILLS)
CGROUP, CMDLINE, ENVIRON, MAPS, ROLLUP = 1 << 16, 1 << 15, 1 << 20, 1 << 23, 1 << 14

# the environment has the last word on the Slurm job: it is read with what the cgroup says
_FILES = ("cgroup", "environ", "cmdline", "cwd", "maps", "build", "smaps_rollup", "root")
_MEASURED = ("smaps_rollup", "root")
_FROM_ENVIRON = ("rank", "local_rank", "world_size", "rendezvous", "omp_threads", "mkl_threads", "visible_gpus")


class ProcessMetadata:
    """The answers of one process so far: fields of a Process, and its place among the cgroups."""

    def __init__(self, identity: Identity, root: str = "/proc") -> None:
        self.identity, self.root = identity, root
        self.values: Values = {}  # swapped whole: another thread reads it
        self.place: CgroupPath | None = None
        self.package: str | None = None  # folder of the PyTorch it has mapped, from our root
        self.file = "stat"  # that was asked last
        self._names: tuple[str, ...] = ()  # fields of it
        self._answers: dict[str, Values] = {}
        self._missing: dict[str, tuple[Missing, ...]] = {}

    def ask(self, deep: bool, tell: Callable[[], None]) -> None:
        """Read it all, what cannot hang first; `tell` after each answer. OSError when the process has ended."""
        stat = self._alive()
        self._keep("cgroup", (), lambda: self._belongs(self._raw("cgroup", CGROUP)), tell)
        if stat.kernel_thread or stat.state in "ZX":  # nothing to ask, and of a zombie it would be a mistake
            return
        self._keep("cmdline", ("command",), lambda: {"command": command(self._raw("cmdline", CMDLINE))}, tell)
        if deep:
            self._answers["cwd"] = {"folder": self._folder()}
            self._keep("environ", _FROM_ENVIRON, self._environment, tell)
            self._keep("maps", ("libraries",), lambda: self._mapped(self._raw("maps", MAPS)), tell)
        self._alive()

    def weigh(self, tell: Callable[[], None]) -> None:
        """Read its PSS: slow, as the kernel walks all its pages."""
        self._alive()
        self._keep("smaps_rollup", PSS_FILLS, lambda: {"pss_bytes": pss(self._raw("smaps_rollup", ROLLUP))}, tell)

    def ask_shm(self, tell: Callable[[], None]) -> None:
        """Read how full its /dev/shm is, which is another one in a container."""
        self._alive()
        self._keep("root", SHM_FILLS, self._shm, tell, "absent")

    def learn(self, build: Values, tell: Callable[[], None]) -> None:
        """Take in what another thread found out: which build of PyTorch it has mapped."""
        self._alive()
        self._answers["build"] = build
        self._sum()
        tell()

    def lose(self) -> None:
        """Say that the file which is being read does not answer, and the command line does not come, if it has not.

        What was measured before is no longer known; what it was started with holds.
        """
        if self.file in _MEASURED:
            self._answers.pop(self.file, None)
        if self.file not in self._answers:
            self._missing[self.file] = tuple(Missing(metric=name, reason="lost") for name in self._names)
        if "cmdline" not in self._answers:
            self._missing["cmdline"] = (Missing(metric="command", reason="lost"),)
        self._sum()

    def _alive(self) -> Stat:
        """The stat record, as long as it is still the same process; else what was read belongs to another."""
        stat = read_stat(self.identity.pid, self.root)
        if stat is None or stat.started_ticks != self.identity.started_ticks:
            self.values, self.place = {}, None
            raise ProcessLookupError
        return stat

    def _keep(
        self,
        what: str,
        names: tuple[str, ...],
        read: Callable[[], Values],
        tell: Callable[[], None],
        gone: Reason = "unsupported",  # where the file is not there; it is not read if the process is not
    ) -> None:
        self.file, self._names = what, names
        try:
            self._answers[what] = read()
            self._missing.pop(what, None)
        except OSError as error:
            reason = why(error)
            known: Reason = gone if reason == "gone" else reason
            unlock = ptrace_access.unlock() if reason == "denied" else None
            self._answers.pop(what, None)
            self._missing[what] = tuple(Missing(metric=name, reason=known, unlock=unlock) for name in names)
        self._sum()
        tell()

    def _raw(self, file: str, size: int) -> bytes:
        return slurp_all(f"{self.root}/{self.identity.pid}/{file}", size)

    def _shm(self) -> Values:
        found = shared_memory(f"{self.root}/{self.identity.pid}/root/dev/shm")
        return {"shm_total_bytes": found.total, "shm_used_bytes": found.used}

    def _sum(self) -> None:
        values: Values = {}
        for file in _FILES:
            values.update(self._answers.get(file, {}))
        values["missing"] = tuple(one for many in self._missing.values() for one in many)
        self.values = values

    def _belongs(self, raw: bytes) -> Values:
        self.place = place(raw)
        at = self.place
        found = {"cgroup": at.path, "container": at.container, "pod": at.pod}
        found |= {"slurm_job": at.slurm_job, "slurm_step": at.slurm_step}
        return {name: value for name, value in found.items() if value is not None}

    def _environment(self) -> Values:
        raw = self._raw("environ", ENVIRON)
        return environment(raw, self.place.slurm_job if self.place else None)

    def _mapped(self, raw: bytes) -> Values:
        package = torch_package(raw)
        self.package = f"{self.root}/{self.identity.pid}/root{package}" if package else None
        return {"libraries": libraries(raw)}

    def _folder(self) -> str | None:
        try:
            return folder(os.readlink(f"{self.root}/{self.identity.pid}/cwd"))
        except OSError:
            return None
