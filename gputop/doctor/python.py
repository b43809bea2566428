"""The Python that jobs use: PyTorch against driver and GPUs, NumPy's linear algebra, threads by the environment."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator

from gputop import blas as mkl
from gputop import pytorch, words
from gputop.collect.pytorch import build
from gputop.doctor.check import Line, check
from gputop.doctor.interpreter import Interpreter, in_use
from gputop.doctor.machine import Machine, names
from gputop.doctor.share import share

_CHOOSE = "https://pytorch.org/get-started names the command for this driver"
# the first release whose wheels have kernels for a compute capability, by its major number: PyTorch's release notes
_FIRST_FOR = {8: (1, 7), 9: (2, 0), 10: (2, 7), 12: (2, 7)}
_BLAS_IN_USE = re.compile(r"/lib(mkl_rt|scipy_openblas|openblas|blis)[^/\n]*\.so")
_LOADED = re.compile(r"/numpy/[^\n]*\.so")
_BLAS_OF_BUILD = re.compile(r"""["']blas["']:\s*\{\s*["']name["']:\s*["']([\w.-]+)["']""")
_BLAS_OF_CONDA = re.compile(r"(?:libblas|blas)-\d[^_]*?(?:_[^_]+)*?[-_](mkl|openblas|blis|netlib)\.json")
_VENDORS = {"mkl": "MKL", "openblas": "OpenBLAS", "blis": "BLIS", "accelerate": "Accelerate"}
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


@check("python", "Which Python do jobs use?")
def python(machine: Machine) -> Iterator[Line]:
    """Not ours, unless it is the same."""
    found = in_use(machine)
    if found is None:
        what = "no Python" if machine.pid is None else f"process {machine.pid} is no Python"
        yield Line("unknown", what, value={"path": None})
    else:
        version = f"Python {found.version}" if found.version else "Python of unknown version"
        value = {"path": found.path, "version": found.version, "by": found.origin}
        yield Line("ok", f"{version}: {found.path} ({found.origin})", value=value)


@check("torch", "Does its PyTorch fit the driver and the GPUs?")
def torch(machine: Machine) -> Iterator[Line]:
    """Its version file is read; it is not imported."""
    found = in_use(machine)
    version, cuda = _torch(found) if found else (None, None)
    value = {"version": version, "cuda": cuda}
    if version is None:
        yield Line("unknown", "no PyTorch in that Python", value=value)
        return
    facts = machine.driver.facts()
    capabilities = [card.capability for card in facts.cards if card.capability]
    newest = max(capabilities, default=None)
    replaced = pytorch.reinstall(facts.cuda, capabilities) or _CHOOSE
    first = _FIRST_FOR.get(newest[0]) if newest else None
    if cuda is None and (facts.cards or facts.in_sys):
        what = f"PyTorch {version} is built without CUDA: it cannot use a GPU"
        yield Line("missing", what, replaced, value)
    elif cuda and facts.cuda and _major(cuda) > _major(facts.cuda):
        what = f"PyTorch {version} needs CUDA {cuda}, this driver supports up to {facts.cuda}: upgrade the driver, or"
        yield Line("missing", what, replaced, value)
    elif newest and first and (pytorch.release(version) or (0, 0)) < first:
        what = f"PyTorch {version} is older than these GPUs (compute capability {newest[0]}.{newest[1]})"
        yield Line("limited", what, replaced, value)
    else:
        built = f"CUDA {cuda}" if cuda else "without CUDA"
        yield Line("ok", f"PyTorch {version}, {built}", value=value)


@check("blas", "Which linear algebra does its NumPy use?")
def blas(machine: Machine) -> Iterator[Line]:
    """OpenBLAS on an Intel CPU is slower than MKL, and known to keep every core busy while the GPU waits.

    On any other CPU it is the right one.
    """
    found = in_use(machine)
    vendor = _vendor(found) if found else None
    intel = mkl.intel(machine.kernel.proc("cpuinfo").decode("utf-8", "replace"))
    value = {"blas": vendor, "intel": intel}
    if found is not None and found.mapped is not None and not _LOADED.search(found.mapped):
        yield Line("unknown", f"process {machine.pid} has not loaded NumPy", value=value)
    elif found is None or vendor is None:
        yield Line("unknown", "no NumPy whose BLAS is known in that Python", value=value)
    elif vendor == "openblas" and intel:
        what = "NumPy uses OpenBLAS on an Intel CPU: if all cores are busy and the GPU is not, this may be why"
        where = "" if _records(found) else "; NumPy with MKL comes from conda, not from pip"
        yield Line("limited", f"{what}{where}", _to_mkl(found), value)
    else:
        fits = ", which is right here: MKL is for Intel CPUs" if vendor == "openblas" else ""
        yield Line("ok", f"NumPy uses {_VENDORS.get(vendor, vendor)}{fits}", value=value)


@check("threads", "How many compute threads does a job start?")
def threads(machine: Machine) -> Iterator[Line]:
    """OMP_NUM_THREADS and its like; unset, every process starts as many threads as it sees CPUs."""
    got, settings = share(machine), machine.settings
    if settings is None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), f"/proc/{machine.pid}/environ")
    chosen = {name: settings[name] for name in _THREADS if settings.get(name)}
    value = {"set": chosen, "suggested": got.threads}
    unlock = f"export OMP_NUM_THREADS={got.threads}"
    too_many = [f"{name}={text}" for name, text in chosen.items() if not text.isdecimal() or int(text) > got.allowed]
    if too_many:
        what = f"{' '.join(too_many)[:80]}, and {words.amount(got.allowed, 'CPU')} may be used"
        yield Line("limited", what, unlock, value)
    elif "OMP_NUM_THREADS" in chosen:
        yield Line("ok", ", ".join(f"{name}={text}" for name, text in chosen.items()), value=value)
    elif got.jobs > 1:
        what = f"OMP_NUM_THREADS is unset: with a job on each of {got.jobs} GPUs, {got.jobs} x {got.affinity} threads"
        yield Line("limited", f"{what} on {words.amount(got.allowed, 'CPU')} (torchrun sets 1)", unlock, value)
    else:
        what = f"OMP_NUM_THREADS is unset: one thread for each of {words.amount(got.affinity, 'CPU')}"
        if got.allowed < got.affinity:
            yield Line("limited", f"{what}, and {got.quota:g} may be used at a time", unlock, value)
        else:
            yield Line("ok", what, value=value)


def _torch(found: Interpreter) -> tuple[str | None, str | None]:
    """Its version and the CUDA it was built for."""
    version, cuda = build(found.source("torch/version.py"))
    return version or found.release("torch"), cuda


def _vendor(found: Interpreter) -> str | None:
    """By what is mapped, the wheel's own libraries, conda's records, what NumPy says it was built with."""
    if found.mapped is not None:
        mapped = set(_BLAS_IN_USE.findall(found.mapped))
        known = {name.removeprefix("scipy_").removesuffix("_rt") for name in mapped}
        return next((name for name in ("mkl", "openblas", "blis") if name in known), None)
    if any("openblas" in name for name in found.listed("numpy.libs")):
        return "openblas"
    for name in _records(found):
        if record := _BLAS_OF_CONDA.fullmatch(name):
            return record[1]
    built = _BLAS_OF_BUILD.search(found.source("numpy/__config__.py"))
    if built is None:
        return None
    name = built[1].lower()
    return next((vendor for vendor in _VENDORS if vendor in name), name)


def _records(found: Interpreter) -> tuple[str, ...]:
    return names(found.prefix / "conda-meta") if found.prefix else ()


def _to_mkl(found: Interpreter) -> str:
    """By who installed it: conda, from which channel, or pip, in an environment of conda or outside."""
    records = _records(found)
    if not records:
        return mkl.WITHOUT_CONDA
    if found.listed("numpy.libs"):
        return mkl.AFTER_PIP
    return mkl.IN_CONDA_FORGE if any(name.startswith("libblas-") for name in records) else mkl.IN_DEFAULTS


def _major(version: str) -> int:
    return int(version.partition(".")[0])
