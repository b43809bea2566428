"""One program on one terminal for some seconds: CPU, memory, bytes, driver calls, first frame."""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from tests.fakenvml import Fake
from tests.pty_programs import Terminal

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_ESCAPES = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-_])")


@dataclass(frozen=True, slots=True)
class Program:
    """How a monitor is started at 1 Hz, and what is on its screen when the first frame is whole."""

    name: str
    argv: tuple[str, ...]
    whole: bytes  # {pid} is a trainer's
    settle_s: float = 16.0  # after the first frame, until what it costs is what it will go on to cost

    @property
    def installed(self) -> bool:
        """Whether it can be run here."""
        return shutil.which(self.argv[0]) is not None


# a minute: its rules look back half of one, and what they say must hold for some seconds before it is on the screen
GPUTOP = Program("gputop", (sys.executable, "-m", "gputop"), b"Quit", settle_s=60.0)
NVITOP = Program("nvitop", (str(Path(sys.executable).parent / "nvitop"), "--interval", "1"), b"PID")
HTOP = Program("htop", ("htop", "-d", "10"), b"Quit")
BTOP = Program("btop", ("btop", "--utf-force"), b"mem")


@dataclass(frozen=True, slots=True)
class Run:
    """What one run cost. CPU is percent of one core over the program and its children."""

    first_frame_s: float
    cpu_percent: float
    rss_mb: float
    bytes_per_s: float
    calls_per_s: float
    driver_ms_per_s: float  # that its calls took, where the driver is made as slow as a real one


def measure(
    program: Program,
    fake: Fake,
    *,
    seconds: float,
    size: tuple[int, int] = (120, 40),
    args: Sequence[str] = (),
    settle_s: float | None = None,
) -> Run:
    """Run a program and measure `seconds` of its steady state, `settle_s` after its first frame: its own by default."""
    settle_s = program.settle_s if settle_s is None else settle_s
    started = time.monotonic()
    with Terminal([*program.argv, *args], size=size, env=environment(fake)) as terminal:
        while program.whole not in _ESCAPES.sub(b"", bytes(terminal.output)):
            if time.monotonic() - started > 30 or terminal.process.poll() is not None:
                raise RuntimeError(f"{program.name} drew nothing: {bytes(terminal.output[-400:])!r}")
            time.sleep(0.005)
        first_frame_s = time.monotonic() - started
        time.sleep(settle_s)
        before = (cpu_s(terminal.pid), len(terminal.output), fake.counts().total(), fake.spent_s(), time.monotonic())
        time.sleep(seconds)
        after = (cpu_s(terminal.pid), len(terminal.output), fake.counts().total(), fake.spent_s(), time.monotonic())
        used_s, sent, calls, spent_s, took_s = (new - old for new, old in zip(after, before, strict=True))
        cpu_percent, driver_ms_per_s = 100 * used_s / took_s, 1e3 * spent_s / took_s
        return Run(first_frame_s, cpu_percent, rss_mb(terminal.pid), sent / took_s, calls / took_s, driver_ms_per_s)


def middle(runs: Sequence[Run]) -> Run:
    """The median of each figure."""
    return Run(*(median(getattr(run, name) for run in runs) for name in Run.__slots__))


def environment(fake: Fake) -> dict[str, str | None]:
    """What a program is started with so that it asks the fake driver."""
    return {**fake.env(), "HOME": str(fake.folder), "PYTHONPATH": str(Path.cwd())}


def _tree(pid: int) -> list[int]:
    """A process and its descendants."""
    pids = [pid]
    for parent in pids:
        try:
            pids += map(int, Path(f"/proc/{parent}/task/{parent}/children").read_text().split())
        except OSError:
            pass
    return pids


def cpu_s(pid: int) -> float:
    """CPU time of a process and its descendants so far."""
    total = 0
    for one in _tree(pid):
        try:
            fields = Path(f"/proc/{one}/stat").read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        total += sum(map(int, fields[11:15]))  # its own and that of children it has waited for
    return total * _TICK_S


def rss_mb(pid: int) -> float:
    """Resident memory of a process and its descendants, in 10^6 bytes; what they share is counted once (PSS)."""
    kilobytes = 0
    for one in _tree(pid):
        try:
            lines = Path(f"/proc/{one}/smaps_rollup").read_text().splitlines()
            kilobytes += next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
        except (OSError, StopIteration):
            pass
    return kilobytes * 1024 / 1e6
