"""The Python that jobs use, as files describe it: nothing of it is run or imported, and it may be another user's."""

from __future__ import annotations

import re
from pathlib import Path

from gputop.declare import record
from gputop.doctor.machine import Machine, names, text

_PACKAGES = re.compile(r"(/[^\n]*?/(?:site|dist)-packages)/")
_IN_PATH = re.compile(r"python(\d+\.\d+)")


@record(frozen=True, slots=True)
class Interpreter:
    """A Python: where it is and how it was found, its version as far as known, the folders of its packages."""

    path: str
    origin: str
    version: str | None
    packages: tuple[Path, ...]
    prefix: Path | None = None  # where conda keeps its records
    mapped: str | None = None  # what a running process has mapped

    def release(self, distribution: str) -> str | None:
        """The version of an installed distribution."""
        pattern = re.compile(rf"{distribution}-(\d[^-]*)(?:-py[\d.]+)?\.(?:dist|egg)-info", re.IGNORECASE)
        found = (pattern.fullmatch(name) for folder in self.packages for name in names(folder))
        return next((match[1] for match in found if match), None)

    def source(self, name: str) -> str:
        """The text of a file of a package, `torch/version.py`; nothing where it is not there."""
        return next(filter(None, (text(folder / name) for folder in self.packages)), "")

    def listed(self, name: str) -> tuple[str, ...]:
        """What a folder beside the packages holds, `numpy.libs`."""
        return tuple(entry for folder in self.packages for entry in names(folder / name))


def in_use(machine: Machine) -> Interpreter | None:
    """That of the process in question, else the one `python` starts here; PermissionError if it is hidden from us."""
    if machine.pid is not None:
        return _of_process(machine, machine.pid)
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        path = Path(machine.environ.get(variable, ""), "bin/python")
        if path.is_absolute() and path.exists():
            return _of_program(machine, path, f"${variable}")
    program = machine.which("python", "python3")
    return _of_program(machine, _behind_shim(machine, Path(program)), "the first on PATH") if program else None


def _of_program(machine: Machine, path: Path, origin: str) -> Interpreter:
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


def _of_process(machine: Machine, pid: int) -> Interpreter | None:
    """By what the process has mapped; one without packages in C has a program only."""
    proc = Path(machine.kernel.proc_root, str(pid))
    mapped = machine.kernel.proc(f"{pid}/maps").decode("utf-8", "replace")
    program = str((proc / "exe").readlink()).removesuffix(" (deleted)")
    folders = tuple(dict.fromkeys(_PACKAGES.findall(mapped)))
    name = program.rpartition("/")[2]
    version = _IN_PATH.search(" ".join((name, *folders))) or _IN_PATH.search(mapped)
    if version is None and not folders and "python" not in name:
        return None
    # the process may be in a container: its paths begin at its own root
    packages = tuple(Path(f"{proc}/root{folder}") for folder in folders)
    prefix = Path(f"{proc}/root{folders[0].rpartition('/lib/')[0]}") if folders else None
    return Interpreter(program, f"process {pid}", version[1] if version else None, packages, prefix, mapped)


def _behind_shim(machine: Machine, path: Path) -> Path:
    """What a shim of pyenv starts, as far as its files and variables tell."""
    if path.parent.name != "shims":
        return path
    root = path.parent.parent
    chosen = machine.environ.get("PYENV_VERSION") or text(Path(".python-version")) or text(root / "version")
    behind = root / "versions" / next(iter(chosen.split()), "").partition(":")[0] / "bin/python"
    return behind if behind.exists() else path


def _folders(prefix: Path) -> tuple[Path, ...]:
    """Where an installation keeps packages, Debian's own places included."""
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
    """Packages that `pip install --user` put there."""
    number = ".".join((version or "").split(".")[:2])
    folder = Path(home, ".local/lib", f"python{number}", "site-packages")
    return (folder,) if folder.is_absolute() and folder.is_dir() else ()


def _version(path: Path, packages: tuple[Path, ...]) -> str | None:
    """By the name of the program behind the links, else by that of the folder of its packages."""
    found = _IN_PATH.search(path.resolve().name) or _IN_PATH.search(" ".join(map(str, packages)))
    return found[1] if found else None


def _plain(version: str | None) -> str | None:
    """`3.12.3.final.0` is 3.12.3."""
    found = re.match(r"\d+\.\d+(\.\d+)?", version or "")
    return found[0] if found else None
