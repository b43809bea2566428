"""The object of the checks: this machine and one process on it, or a copy of their files."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import field
from functools import cached_property
from pathlib import Path

from gputop.collect.kernel_files import Kernel
from gputop.doctor.nvidia import Driver
from gputop.frozen_dataclass import frozen_dataclass
from gputop.safe import files, programs, ptrace_access
from gputop.safe.identity import in_container
from gputop.safe.text import decode

_LONGEST = 1 << 20


@frozen_dataclass(frozen=True, kw_only=True)
class DoctorContext:
    """File locations and user. `pid`: the process the questions are about; None for newly started ones."""

    kernel: Kernel = field(default_factory=Kernel)
    root: str = ""  # prefix of absolute paths outside of /proc, /sys and home folders
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    uid: int = field(default_factory=os.geteuid)
    groups: frozenset[int] = field(default_factory=lambda: frozenset((os.getegid(), *os.getgroups())))
    terminal: tuple[int, int] | None = None  # columns and lines of the terminal on standard output
    encoding: str = "utf-8"  # of standard output
    program: str = sys.executable  # the Python that runs gputop
    pid: int | None = None
    nvml: bool = True
    driver: Driver = field(init=False)  # queried once for all checks

    def __post_init__(self) -> None:
        driver = Driver(self.kernel.sys_root, self.kernel.proc_root, self.root, enabled=self.nvml)
        object.__setattr__(self, "driver", driver)

    @cached_property
    def in_container(self) -> bool:
        """Whether this is a container, judging by the usual signs."""
        return in_container(self.kernel.proc_root, self.environ, self.root)

    @cached_property
    def may_trace_all(self) -> bool:
        """Whether we have CAP_SYS_PTRACE."""
        return ptrace_access.traces_all(self.kernel.proc_root)

    def hidden(self, *arguments: str) -> ptrace_access.Barred:
        """Why we may not read what a process's owner may, and what unlocks it."""
        return ptrace_access.hidden(*arguments, uid=self.uid, confined=self.in_container, proc=self.kernel.proc_root)

    @property
    def proc_folder(self) -> str:
        """The /proc folder of the process in question."""
        return "self" if self.pid is None else str(self.pid)

    def status(self, folder: str) -> dict[str, str]:
        """The fields of /proc/FOLDER/status, tabs replaced by blanks; OSError if unreadable."""
        lines = self.kernel.proc(f"{folder}/status").replace(b"\t", b" ").split(b"\n")
        pairs = (line.partition(b":") for line in lines)
        return {decode(key): decode(value.strip()) for key, colon, value in pairs if colon}

    def exists(self, path: str) -> bool:
        """Whether a file exists outside of /proc and /sys."""
        return Path(f"{self.root}{path}").exists()

    def which(self, *names: str) -> str | None:
        """The first of these programs on PATH."""
        found = (path for name in names for path in programs.candidates(name, self.path))
        return next(filter(os.path.isabs, found), None)

    @property
    def path(self) -> str:
        """The search path for programs."""
        return self.environ.get("PATH", programs.PATH)

    def first_line(self, *command: str, seconds: float = 3.0) -> str | None:
        """The first output line of a program, sanitized; None on failure or timeout; raises NotRun if not started."""
        try:
            code, said = programs.output(command, seconds, {**self.environ, "PATH": programs.PATH})
        except (OSError, programs.ProgramError):
            return None
        return decode(said.split(b"\n")[0].strip(), 200) if code == 0 else None

    @cached_property
    def settings(self) -> Mapping[str, str] | None:
        """The environment the process was started with, or ours; None if unreadable."""
        if self.pid is None:
            return self.environ
        try:
            raw = self.kernel.proc(f"{self.pid}/environ")
        except OSError:
            return None
        pairs = (os.fsdecode(entry).partition("=") for entry in raw.split(b"\0"))
        return {name: value for name, equals, value in pairs if equals}


def text(path: Path) -> str:
    """A small text file, unsanitized; empty if unreadable. Sanitize what is shown."""
    try:
        with os.fdopen(files.opened(path), "rb") as file:
            return file.read(_LONGEST).decode("utf-8", "replace")
    except OSError:
        return ""


def names(folder: Path) -> tuple[str, ...]:
    """Sorted names in a folder; empty if unreadable."""
    try:
        return tuple(sorted(entry.name for entry in folder.iterdir()))
    except OSError:
        return ()
