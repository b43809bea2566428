"""The Python that jobs use, determined from files alone: PyTorch, NumPy's BLAS, threads."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from pathlib import Path

from gputop import labels, pytorch
from gputop import numpy_blas as mkl
from gputop.doctor.check import CheckLine, check
from gputop.doctor.machine import DoctorContext, names, text
from gputop.doctor.share import share
from gputop.frozen_dataclass import frozen_dataclass
from gputop.pytorch import build

_PACKAGES = re.compile(r"(/[^\n]*?/(?:site|dist)-packages)/")
_IN_PATH = re.compile(r"python(\d+\.\d+)")


@frozen_dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python: path, origin, version if known, package folders."""

    path: str
    origin: str
    version: str | None
    packages: tuple[Path, ...]
    prefix: Path | None = None  # location of conda's records
    mapped: str | None = None  # mapped files of a running process

    def release(self, distribution: str) -> str | None:
        """Version of an installed distribution."""
        pattern = re.compile(rf"{distribution}-(\d[^-]*)(?:-py[\d.]+)?\.(?:dist|egg)-info", re.IGNORECASE)
        found = (pattern.fullmatch(name) for folder in self.packages for name in names(folder))
        return next((match[1] for match in found if match), None)

    def source(self, name: str) -> str:
        """Text of a package's file, `torch/version.py`; empty if missing."""
        return next(filter(None, (text(folder / name) for folder in self.packages)), "")

    def listed(self, name: str) -> tuple[str, ...]:
        """Names in a folder beside the packages, `numpy.libs`."""
        return tuple(entry for folder in self.packages for entry in names(folder / name))


def in_use(machine: DoctorContext) -> Interpreter | None:
    """The Python of the process in question, else the one `python` starts here; PermissionError if unreadable."""
    if machine.pid is not None:
        return _of_process(machine, machine.pid)
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        path = Path(machine.environ.get(variable, ""), "bin/python")
        if path.is_absolute() and path.exists():
            return _of_program(machine, path, f"${variable}")
    program = machine.which("python", "python3")
    return _of_program(machine, _behind_shim(machine, Path(program)), "the first on PATH") if program else None


def _of_program(machine: DoctorContext, path: Path, origin: str) -> Interpreter:
    prefix = path.absolute().parent.parent
    virtual = text(prefix / "pyvenv.cfg")
    if not virtual and not _folders(prefix):
        prefix = path.resolve().parent.parent  # a link in ~/.local/bin
    chosen = {key.strip(): value.strip() for key, _, value in (line.partition("=") for line in virtual.splitlines())}
    packages = _folders(prefix)
    version = chosen.get("version_info") or chosen.get("version") or _version(path, packages)
    if not virtual:
        packages = _of_user(machine.environ.get("HOME", ""), version) + packages
    elif chosen.get("include-system-site-packages", "").lower() == "true":
        packages += _folders(Path(chosen.get("home", "/usr/bin")).parent)
    return Interpreter(str(path), origin, _plain(version), packages, prefix)


def _of_process(machine: DoctorContext, pid: int) -> Interpreter | None:
    """By the process's mapped files; without C extensions, by its program."""
    proc = Path(machine.kernel.proc_root, str(pid))
    mapped = machine.kernel.proc(f"{pid}/maps").decode("utf-8", "replace")
    program = str((proc / "exe").readlink()).removesuffix(" (deleted)")
    folders = tuple(dict.fromkeys(_PACKAGES.findall(mapped)))
    name = program.rpartition("/")[2]
    version = _IN_PATH.search(" ".join((name, *folders))) or _IN_PATH.search(mapped)
    if version is None and not folders and "python" not in name:
        return None
    # in a container its paths start at its own root
    packages = tuple(Path(f"{proc}/root{folder}") for folder in folders)
    prefix = Path(f"{proc}/root{folders[0].rpartition('/lib/')[0]}") if folders else None
    return Interpreter(program, f"process {pid}", version[1] if version else None, packages, prefix, mapped)


def _behind_shim(machine: DoctorContext, path: Path) -> Path:
    """The target of a pyenv shim, as far as its files and variables show."""
    if path.parent.name != "shims":
        return path
    root = path.parent.parent
    chosen = machine.environ.get("PYENV_VERSION") or text(Path(".python-version")) or text(root / "version")
    behind = root / "versions" / next(iter(chosen.split()), "").partition(":")[0] / "bin/python"
    return behind if behind.exists() else path


def _folders(prefix: Path) -> tuple[Path, ...]:
    """Package folders of an installation, including Debian's."""
    roots = [prefix / "lib", prefix / "lib64", *([Path("/usr/local/lib")] if prefix == Path("/usr") else [])]
    found = [
        root / name / kind
        for root in roots
        for name in names(root)
        if re.fullmatch(r"python3(\.\d+)?", name)
        for kind in ("site-packages", "dist-packages")
    ]
    # lib64 is often a link to lib
    return tuple(dict.fromkeys(folder.resolve() for folder in found if folder.is_dir()))


def _of_user(home: str, version: str | None) -> tuple[Path, ...]:
    """Packages installed with `pip install --user`."""
    number = ".".join((version or "").split(".")[:2])
    folder = Path(home, ".local/lib", f"python{number}", "site-packages")
    return (folder,) if folder.is_absolute() and folder.is_dir() else ()


def _version(path: Path, packages: tuple[Path, ...]) -> str | None:
    """By the resolved program name, else by the name of the package folder."""
    found = _IN_PATH.search(path.resolve().name) or _IN_PATH.search(" ".join(map(str, packages)))
    return found[1] if found else None


def _plain(version: str | None) -> str | None:
    """Shorten a version: `3.12.3.final.0` is 3.12.3."""
    found = re.match(r"\d+\.\d+(\.\d+)?", version or "")
    return found[0] if found else None


_CHOOSE = "https://pytorch.org/get-started has the command for this driver"
# first release whose wheels have kernels for a compute capability, by its major number: PyTorch's release notes
_FIRST_FOR = {8: (1, 7), 9: (2, 0), 10: (2, 7), 12: (2, 7)}
_BLAS_IN_USE = re.compile(r"/lib(mkl_rt|scipy_openblas|openblas|blis)[^/\n]*\.so")
_LOADED = re.compile(r"/numpy/[^\n]*\.so")
_BLAS_OF_BUILD = re.compile(r"""["']blas["']:\s*\{\s*["']name["']:\s*["']([\w.-]+)["']""")
_BLAS_OF_CONDA = re.compile(r"(?:libblas|blas)-\d[^_]*?(?:_[^_]+)*?[-_](mkl|openblas|blis|netlib)\.json")
_VENDORS = {"mkl": "MKL", "openblas": "OpenBLAS", "blis": "BLIS", "accelerate": "Accelerate"}
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


@check("python", "Which Python do jobs use?")
def python(machine: DoctorContext) -> Iterator[CheckLine]:
    """The jobs' Python, unless it is the same as ours."""
    found = in_use(machine)
    if found is None:
        what = "no Python" if machine.pid is None else f"process {machine.pid} is not Python"
        yield CheckLine("unknown", what, value={"path": None})
    else:
        version = f"Python {found.version}" if found.version else "Python of unknown version"
        value = {"path": found.path, "version": found.version, "by": found.origin}
        yield CheckLine("ok", f"{version}: {found.path} ({found.origin})", value=value)


@check("torch", "Does its PyTorch match the driver and the GPUs?")
def torch(machine: DoctorContext) -> Iterator[CheckLine]:
    """PyTorch from its version file, without importing it."""
    found = in_use(machine)
    version, cuda = _torch(found) if found else (None, None)
    value = {"version": version, "cuda": cuda}
    if version is None:
        yield CheckLine("unknown", "no PyTorch in that Python", value=value)
        return
    facts = machine.driver.facts()
    capabilities = [card.capability for card in facts.cards if card.capability]
    newest = max(capabilities, default=None)
    replaced = pytorch.reinstall(facts.cuda, capabilities) or _CHOOSE
    first = _FIRST_FOR.get(newest[0]) if newest else None
    if cuda is None and (facts.cards or facts.in_sys):
        what = f"PyTorch {version} is built without CUDA: it cannot use a GPU"
        yield CheckLine("missing", what, replaced, value)
    elif cuda and facts.cuda and _major(cuda) > _major(facts.cuda):
        what = f"PyTorch {version} needs CUDA {cuda}, the driver supports up to {facts.cuda}: upgrade the driver, or"
        yield CheckLine("missing", what, replaced, value)
    elif newest and first and (pytorch.release(version) or (0, 0)) < first:
        what = f"PyTorch {version} predates these GPUs (compute capability {newest[0]}.{newest[1]})"
        yield CheckLine("limited", what, replaced, value)
    else:
        built = f"CUDA {cuda}" if cuda else "without CUDA"
        yield CheckLine("ok", f"PyTorch {version}, {built}", value=value)


@check("blas", "Which BLAS does its NumPy use?")
def blas(machine: DoctorContext) -> Iterator[CheckLine]:
    """OpenBLAS on Intel is slower than MKL, and known to keep every core busy while the GPU waits.

    On any other CPU it is the right one.
    """
    found = in_use(machine)
    vendor = _vendor(found) if found else None
    intel = mkl.intel(machine.kernel.proc("cpuinfo").decode("utf-8", "replace"))
    value = {"blas": vendor, "intel": intel}
    if found is not None and found.mapped is not None and not _LOADED.search(found.mapped):
        yield CheckLine("unknown", f"process {machine.pid} has not loaded NumPy", value=value)
    elif found is None or vendor is None:
        yield CheckLine("unknown", "no NumPy with a known BLAS in that Python", value=value)
    elif vendor == "openblas" and intel:
        what = (
            "NumPy uses OpenBLAS on an Intel CPU: in data code with linear algebra it is slower than MKL, and can keep "
            "all cores busy while the GPU waits"
        )
        where = "" if _records(found) else "; only conda has NumPy with MKL"
        yield CheckLine("limited", f"{what}{where}", _to_mkl(found), value)
    else:
        fits = ", the right choice here: MKL is for Intel CPUs" if vendor == "openblas" else ""
        yield CheckLine("ok", f"NumPy uses {_VENDORS.get(vendor, vendor)}{fits}", value=value)


@check("threads", "How many compute threads does a job start?")
def threads(machine: DoctorContext) -> Iterator[CheckLine]:
    """OMP_NUM_THREADS and similar variables; unset, every process starts one thread per visible CPU."""
    got, settings = share(machine), machine.settings
    if settings is None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), f"/proc/{machine.pid}/environ")
    chosen = {name: settings[name] for name in _THREADS if settings.get(name)}
    value = {"set": chosen, "suggested": got.threads}
    unlock = f"export OMP_NUM_THREADS={got.threads}"
    too_many = [f"{name}={text}" for name, text in chosen.items() if not text.isdecimal() or int(text) > got.allowed]
    if too_many:
        what = f"{' '.join(too_many)[:80]}, but only {labels.amount(got.allowed, 'CPU')} allowed"
        yield CheckLine("limited", what, unlock, value)
    elif "OMP_NUM_THREADS" in chosen:
        yield CheckLine("ok", ", ".join(f"{name}={text}" for name, text in chosen.items()), value=value)
    elif got.jobs > 1:
        what = f"OMP_NUM_THREADS is unset: {got.jobs} jobs, {got.per_gpu}, start {got.jobs} x {got.affinity} threads"
        where = f"on {labels.amount(got.allowed, 'CPU')} (not under torchrun, which sets 1)"
        yield CheckLine("limited", f"{what} {where}", unlock, value)
    else:
        what = f"OMP_NUM_THREADS is unset: one thread per CPU ({labels.amount(got.affinity, 'CPU')})"
        if got.allowed < got.affinity:
            yield CheckLine("limited", f"{what}, but the cgroup quota is {got.quota:g} CPUs", unlock, value)
        else:
            yield CheckLine("ok", what, value=value)


def _torch(found: Interpreter) -> tuple[str | None, str | None]:
    """PyTorch's version and the CUDA it was built for."""
    version, cuda = build(found.source("torch/version.py"))
    return version or found.release("torch"), cuda


def _vendor(found: Interpreter) -> str | None:
    """The BLAS vendor by mapped files, the wheel's own libraries, conda's records, or NumPy's build configuration."""
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
    """The command that switches to MKL, by installer: conda and its channel, or pip."""
    records = _records(found)
    if not records:
        return mkl.WITHOUT_CONDA
    if found.listed("numpy.libs"):
        return mkl.AFTER_PIP
    return mkl.IN_CONDA_FORGE if any(name.startswith("libblas-") for name in records) else mkl.IN_DEFAULTS


def _major(version: str) -> int:
    return int(version.partition(".")[0])
