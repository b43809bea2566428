"""py-spy as a child process: location, own session, deadline, and its outcome as text."""

from __future__ import annotations

import errno
import os
import re
import resource
import shlex
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import IO, Any

from gputop.invocation import as_root
from gputop.safe import programs, ptrace_access
from gputop.safe.identity import in_container, read_stat
from gputop.safe.ptrace_access import Barred
from gputop.safe.text import clean

NAME = "py-spy"


def find() -> str | Barred:
    """The absolute path of py-spy, or why it cannot be run."""
    try:
        return programs.find(NAME, os.environ.get("PATH", programs.PATH), first=os.path.dirname(sys.executable))
    except programs.NotFound as why:
        return Barred(str(why), f"{shlex.quote(sys.executable)} -m pip install py-spy")
    except programs.NotRun as why:
        return Barred(str(why), "sudo python3 -m pip install py-spy" if os.geteuid() == 0 else None)


MOST_BYTES = 256 << 20  # of the file it writes
MOST_PRINTED = 32 << 20  # of one stack dump
MOST_SAID = 4 << 20  # of its other output
_NO_PYTHON = "is not a Python program that py-spy can read"
_TELLING = re.compile(r"^(Error: |Permission Denied)")
_COUNTS = re.compile(r"Samples: (\d+) Errors: (\d+)")
_WRITES_S, _ENDS_S = 10.0, 1.0  # after SIGINT, on which it writes its data; otherwise, and after SIGTERM


def start(program: str, pid: int, arguments: Sequence[str], *, seconds: float, to_file: bool) -> Child | Barred:
    """Run py-spy on a process with a deadline; its data go to standard output, or `to_file`."""
    try:
        out, said = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115  closed by close()
    except OSError as error:
        return Barred(f"{tempfile.gettempdir()}: {error.strerror}: set TMPDIR to another disk")
    place = ["--output", f"/proc/self/fd/{out.fileno()}"] if to_file else []
    command = [program, *arguments, "--pid", str(pid), *place]
    try:
        process = _spawn(command, pid, (out, said), to_file)
    except (OSError, programs.ProgramError) as error:
        out.close()
        said.close()
        return _start_failure(program, pid, error)
    except programs.NotRun as why:
        out.close()
        said.close()
        return Barred(str(why))
    return Child(pid, process, (out, said), time.monotonic() + seconds, _WRITES_S if to_file else _ENDS_S)


def _start_failure(program: str, pid: int, error: OSError | programs.ProgramError) -> Barred:
    if isinstance(error, PermissionError):  # usually root's own folder, while the target's user is to run it
        return Barred(f"the user of process {pid} cannot run {program}: install py-spy where every user can read it")
    why = error.strerror if isinstance(error, OSError) else str(error)
    return Barred(f"{program} does not run here: {why}")


class Child:
    """A run of py-spy; must be closed."""

    def __init__(
        self,
        pid: int,
        process: programs.Running[bytes],
        files: tuple[IO[bytes], IO[bytes]],
        until_s: float,
        patience_s: float,
    ) -> None:
        self.pid = pid
        self._process, self._until_s, self._patience_s = process, until_s, patience_s
        self._out, self._said = files
        self._late = False

    def running(self) -> bool:
        """Whether it runs; ends it after its deadline."""
        if self._process.poll() is not None:
            return False
        if time.monotonic() > self._until_s:
            self._late = True
            self.stop()
        return self._process.poll() is None

    def stop(self) -> None:
        """End it: first by a signal on which it writes its data; takes seconds if it does not respond."""
        for number, wait_s in ((signal.SIGINT, self._patience_s), (signal.SIGTERM, _ENDS_S)):
            self._signal(number)
            try:
                self._process.wait(wait_s)
                return
            except programs.Timeout:
                continue
        self._signal(signal.SIGKILL)
        try:
            self._process.wait(_ENDS_S)
        except programs.Timeout:
            pass  # it is blocked in the kernel: `trouble` reports that

    def wait(self) -> None:
        """Wait until it has ended, at most until its deadline."""
        try:
            self._process.wait(max(0.0, self._until_s - time.monotonic()))
        except programs.Timeout:
            self._late = True
            self.stop()

    def messages(self) -> list[str]:
        """Lines of its other output so far, sanitized."""
        return [
            clean(line)
            for line in _content(self._said, MOST_SAID).decode("utf-8", "replace").replace("\r", "\n").split("\n")
        ]

    def errors(self) -> int:
        """Number of failed samples so far."""
        return sum("Failed to get stack trace" in line for line in self.messages())

    def counts(self) -> tuple[int, int]:
        """Samples and failed samples of a finished recording, as py-spy reports them."""
        found = next((match for line in self.messages() if (match := _COUNTS.search(line))), None)
        return (int(found[1]), int(found[2])) if found else (0, self.errors())

    def cpu_s(self) -> float:
        """CPU seconds used so far; 0 after its end."""
        stat = read_stat(self._process.pid)
        ticks = (stat.user_ticks or 0) + (stat.system_ticks or 0) if stat else 0
        return ticks / os.sysconf("SC_CLK_TCK")

    def output(self) -> bytes:
        """Its data; empty if there are none."""
        return _content(self._out, MOST_BYTES)

    def trouble(self) -> Barred | None:
        """Why there is no result after its end; None if there is one."""
        code = self._process.returncode
        if self._late:
            return Barred(f"py-spy timed out and was killed: process {self.pid} may be blocked in the kernel")
        if code == 0:
            return None
        if code is None:
            return Barred("py-spy does not exit, even after SIGKILL")
        if code == -signal.SIGXFSZ or any("File too large" in line for line in self.messages()):
            return Barred("the output of py-spy is too large: use a shorter --for or a lower --rate")
        if code < 0:
            return Barred(f"py-spy was killed by signal {-code} ({signal.strsignal(-code)})")
        line = next((line for line in self.messages() if _TELLING.match(line)), "")
        return _failure(line, self.pid) or Barred(f"py-spy: {line.removeprefix('Error: ') or f'exit code {code}'}")

    def close(self) -> None:
        """Close its files."""
        self._out.close()
        self._said.close()

    def _signal(self, number: int) -> None:
        try:
            if self._process.poll() is None:
                os.killpg(self._process.pid, number)  # not reaped yet: the PID is still its own
        except (ProcessLookupError, PermissionError):
            pass


def may_be_native(trouble: Barred) -> bool:
    """Whether py-spy itself failed, perhaps due to native frames, which it cannot unwind across PID namespaces."""
    return trouble.text.startswith("py-spy: ") or _NO_PYTHON in trouble.text


def _spawn(command: list[str], pid: int, files: tuple[IO[bytes], IO[bytes]], to_file: bool) -> programs.Running[bytes]:
    out, said = files
    most = MOST_BYTES if to_file else MOST_PRINTED
    owner = _target_ids(pid)
    rights: dict[str, Any] = {}
    if owner is not None:
        for file in files:
            os.fchown(file.fileno(), *owner)
        rights = {"user": owner[0], "group": owner[1], "extra_groups": []}
    process = programs.start(
        command,
        stdin=programs.DEVNULL,
        stdout=said if to_file else out,
        stderr=said,
        pass_fds=(out.fileno(),),
        start_new_session=True,
        cwd="/",
        env={"PATH": programs.PATH, "LC_ALL": "C.UTF-8", "RUST_LOG": "warn"},
        **rights,
    )
    try:
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (most, most))
    except (OSError, ValueError):
        pass
    return process


def _content(file: IO[bytes], most: int) -> bytes:
    return os.pread(file.fileno(), min(os.fstat(file.fileno()).st_size, most), 0)


def _target_ids(pid: int) -> tuple[int, int] | None:
    """uid and gid sufficient to read a process, if gputop runs as root and another user owns it."""
    if os.geteuid() != 0 or not ptrace_access.by_its_user(pid):
        return None
    try:
        owner = os.stat(f"/proc/{pid}")
    except OSError:
        return None
    return (owner.st_uid, owner.st_gid) if owner.st_uid else None


def _failure(line: str, pid: int) -> Barred | None:
    """The reason for a failure from py-spy's last lines."""
    stat = read_stat(pid)
    gone = stat is None or stat.state in "ZX"  # py-spy finds no Python there
    unread = line.startswith("Error: Failed to get process executable name") or os.strerror(errno.ESRCH) in line
    no_python = line.startswith(("Error: Failed to find python version", "Error: No python processes found"))
    if unread or (no_python and gone):
        return Barred(f"process {pid} exited")
    if no_python:
        return Barred(f"process {pid} {_NO_PYTHON}")
    if line.startswith("Permission Denied"):
        return ptrace_access.refusal(pid, as_root("stack", str(pid)), uid=os.geteuid(), confined=in_container())
    if "No space left on device" in line:
        return Barred(f"no space left in {tempfile.gettempdir()}: set TMPDIR to another disk")
    return None
