"""A /proc in a folder, its text copied from real kernels, for the readers of processes."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gputop.collect.proc.gpu_processes import ProcessTable
from gputop.collect.proc.metadata_lane import MetadataLane
from gputop.collect.proc.proc_files import Scale
from gputop.collect.proc.reader import ProcessReader
from gputop.model import Process
from gputop.source import Interest

BOOT_S = 10_000.0  # time since boot when the clock is 0

# Linux 6.18, x86-64
STAT = (
    "{pid} ({comm}) {state} {parent} {pid} 2457 34816 -1 4194304 1902 0 {faults} 0 {user} {system} 0 0 20 {nice} "
    "{threads} 0 {started} 113840128 {rss} 18446744073709551615 94601692438528 94601692458409 140733689145968 0 0 0 0 "
    "16781312 134235778 1 0 0 17 {cpu} 0 0 {delay} 0 0 94601692474416 94601692476032 94601827942400 140733689150165 "
    "140733689150185 140733689150185 140733689151467 0\n"
)
STATUS = """Name:\t{comm}
Umask:\t0022
State:\t{state} (sleeping)
Tgid:\t{pid}
Pid:\t{pid}
PPid:\t{parent}
TracerPid:\t0
Uid:\t1000\t1000\t1000\t1000
Groups:\t4 24 27 30 46 116 1000
NStgid:\t{pid}
VmPeak:\t  113840 kB
VmSize:\t  113840 kB
VmRSS:\t  120000 kB
RssAnon:\t   80000 kB
RssFile:\t   36000 kB
RssShmem:\t    4000 kB
VmSwap:\t     128 kB
Threads:\t{threads}
Cpus_allowed:\tff
Cpus_allowed_list:\t0-3,6
Mems_allowed_list:\t0
voluntary_ctxt_switches:\t{voluntary}
nonvoluntary_ctxt_switches:\t{involuntary}
"""
IO = "rchar: {}\nwchar: {}\nsyscr: {}\nsyscw: {}\nread_bytes: {}\nwrite_bytes: {}\ncancelled_write_bytes: 0\n"
MOUNTINFO = """22 27 0:21 / /proc rw,relatime - proc proc rw
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
"""


class FakeProc:
    """The folder, a clock that only moves when told, and a reader on both."""

    def __init__(self, folder: Path, *, private: bool = False, page_bytes: int = 4096) -> None:
        self.proc, self.sys = folder / "proc", folder / "sys"
        self.now_s = 100.0
        self.asked: list[int] = []
        (self.proc / "self/ns").mkdir(parents=True)
        (self.proc / "self/ns/pid").symlink_to("pid:[4026532999]" if private else "pid:[4026531836]")
        self.write("self/mountinfo", MOUNTINFO)
        self.write("sys/kernel/task_delayacct", "1\n")
        (self.sys / "devices/system/cpu").mkdir(parents=True)
        (self.sys / "devices/system/cpu/online").write_text("0-7\n")
        self.add(1, "systemd", parent=0, started=1)
        self.names = MetadataLane(str(self.proc), self.clock, find_user=self.find_user, passwd=str(folder / "passwd"))
        self.reader = ProcessReader(
            str(self.proc),
            self.clock,
            self.names,
            sys=str(self.sys),
            boot=lambda: BOOT_S + self.now_s,
            scale=Scale(ticks_per_s=100, page_bytes=page_bytes),
            cpu_clock=lambda: 0.0,
        )

    def clock(self) -> float:
        return self.now_s

    def find_user(self, uid: int) -> str | None:
        self.asked.append(uid)
        return {0: "root", 1000: "alice"}.get(uid)

    def write(self, name: str, text: str | bytes) -> Path:
        path = self.proc / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text)
        return path

    def add(self, pid: int, comm: str = "python", **values: Any) -> int:
        """A process with the files that every kernel has; called again it changes what it shows."""
        given = {
            "pid": pid, "comm": comm, "state": "S", "parent": 1, "user": 0, "system": 0, "faults": 0, "nice": 0,
            "threads": 1, "started": 500_000, "rss": 1000, "cpu": 2, "delay": 0, "voluntary": 10, "involuntary": 5,
        } | values  # fmt: skip
        self.write(f"{pid}/stat", STAT.format(**given))
        self.write(f"{pid}/status", STATUS.format(**given))
        return pid

    def more(self, pid: int, *, io: tuple[int, ...] = (0,) * 6, run: int = 1, wait: int = 0, slices: int = 9) -> None:
        """The files that are read of those followed closely; `io` in the order of the file, times in nanoseconds."""
        self.write(f"{pid}/io", IO.format(*io))
        self.write(f"{pid}/schedstat", f"{run} {wait} {slices}\n")
        self.write(f"{pid}/statm", "27793 30000 10000 5 0 2000 0\n")
        self.write(f"{pid}/wchan", "do_poll.constprop.0")
        for number in range(3):
            self.write(f"{pid}/fd/{number}", "")
        if not (root := self.proc / f"{pid}/root").is_symlink():
            root.symlink_to("/")  # its /dev/shm is that of this machine

    def thread(self, pid: int, tid: int, comm: str, run: int, wait: int = 0, voluntary: int = 0) -> None:
        self.write(f"{pid}/task/{tid}/schedstat", f"{run} {wait} 9\n")
        self.write(f"{pid}/task/{tid}/comm", f"{comm}\n")
        status = STATUS.format(
            pid=tid, comm=comm, state="R", parent=1, threads=9, voluntary=voluntary, involuntary=voluntary // 2
        )
        self.write(f"{pid}/task/{tid}/status", status)

    def remove(self, pid: int) -> None:
        shutil.rmtree(self.proc / str(pid))

    def look(
        self,
        *gpu_pids: int,
        after_s: float = 1.0,
        open_: int | None = None,
        every: bool = False,
        sight: int | None = None,
    ) -> ProcessTable:
        """Let time pass and look."""
        self.now_s += after_s
        pids, shown = (frozenset(() if pid is None else (pid,)) for pid in (open_, sight))
        return self.reader.read(gpu_pids, Interest(pids=pids, sight=shown, every_process=every))

    def process(self, pid: int, *gpu_pids: int, **how: Any) -> Process:
        """Look and give this one."""
        return find(self.look(*gpu_pids, **how), pid)


def find(table: ProcessTable, pid: int) -> Process:
    """The process with this pid; there must be one and only one."""
    (process,) = (process for process in table.processes if process.pid == pid)
    return process


def own(path: Path, uid: int) -> None:
    """Give a process's folder to a user, as the kernel does."""
    os.chown(path, uid, uid)


def opened(folder: Path | str, work: Callable[[], object]) -> int:
    """How many files `work` opens below a folder, in this thread."""
    seen, on, here = [0], [True], threading.get_ident()

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if on[0] and event == "open" and threading.get_ident() == here and str(args[0]).startswith(f"{folder}/"):
            seen[0] += 1

    sys.addaudithook(hook)
    try:
        work()
    finally:
        on[0] = False  # a hook cannot be removed
    return seen[0]


def until(done: Callable[[], bool], seconds: float = 10.0) -> None:
    """Wait for another thread, no longer than this."""
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.002)


def named(proc: FakeProc, pid: int, ready: Callable[[Process], object], *gpu_pids: int, **how: bool) -> Process:
    """Look, a clock tick at a time, until the names lane has answered."""
    found: list[Process] = []

    def done() -> bool:
        found[:] = [proc.process(pid, *gpu_pids, after_s=0.06, **how)]
        return bool(ready(found[0]))

    until(done)
    return found[0]


@pytest.fixture
def proc(tmp_path: Path) -> Iterator[FakeProc]:
    """One whose names lane answers."""
    proc = FakeProc(tmp_path)
    proc.names.start()
    yield proc
    proc.names.stop()
