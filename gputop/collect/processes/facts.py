"""What a process says about itself: its command line, the environment it began with, what it has mapped. Pure."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from gputop.collect.processes.cgroup import slurm_job
from gputop.collect.processes.readings import Values
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

    `slurm` is its Slurm job as its cgroup tells it.
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
