"""A process of a copied /proc with everything that its details are read from."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gputop.collect.details.inspector import Inspector
from gputop.model import Detail, Identity, Process
from gputop.source import EVERYTHING, DetailWish
from tests.fakeproc import FakeProc

STARTED = 500_000
OWNER = 1000  # of every process there, as its status says
# Linux 6.18
LIMITS = "\n".join(
    f"{name:25} {soft:20} {hard:20} {unit:10}"
    for name, soft, hard, unit in (
        ("Limit", "Soft Limit", "Hard Limit", "Units"),
        ("Max cpu time", "unlimited", "unlimited", "seconds"),
        ("Max open files", "20000", "1048576", "files"),
        ("Max processes", "96551", "96551", "processes"),
        ("Max nice priority", "0", "0", ""),
        ("Max realtime timeout", "unlimited", "1000", "us"),
    )
)
ROLLUP = """5572716b9000-7fffbcf24000 ---p 00000000 00:00 0                          [rollup]
Rss:                1704 kB
Pss:                 310 kB
Private_Clean:        40 kB
Private_Dirty:       112 kB
AnonHugePages:      2048 kB
"""
NUMA = """561c67463000 default file=/usr/bin/cat mapped=2 N0=2 kernelpagesize_kB=4
7f0000000000 default anon=3 dirty=3 N0=1 N1=2 kernelpagesize_kB=2048
7fff00000000 default stack
"""


class OpenProc(FakeProc):
    """A copied /proc whose processes can be opened; `uid` is who looks."""

    def __init__(self, folder: Path, uid: int = OWNER) -> None:
        super().__init__(folder)
        self.folder = folder
        self.processes: list[Process] = []
        self.inspector = Inspector(lambda: self.processes, str(self.proc), self.clock, uid)
        for name in ("mnt", "pid", "net", "user"):
            (self.proc / f"self/ns/{name}").unlink(missing_ok=True)
            (self.proc / f"self/ns/{name}").symlink_to(f"{name}:[1]")

    def whole(self, pid: int, environ: bytes = b"RANK=0\x00", parent: int = 1) -> Identity:
        """A process of which everything can be read."""
        self.add(pid, parent=parent, started=STARTED)
        self.more(pid, io=(9, 8, 7, 6, 5, 4))
        self.task(pid, pid, "python")
        self.write(f"{pid}/limits", LIMITS)
        self.write(f"{pid}/smaps_rollup", ROLLUP)
        self.write(f"{pid}/numa_maps", NUMA)
        self.write(f"{pid}/environ", environ)
        self.write(f"{pid}/oom_score", "667\n")
        self.write(f"{pid}/oom_score_adj", "-5\n")
        for name, target in {"exe": "/usr/bin/python3", "cwd": "/home/alice/llama"}.items():
            (self.proc / f"{pid}/{name}").symlink_to(target)
        (self.proc / f"{pid}/ns").mkdir()
        for name in ("mnt", "pid", "net", "user"):
            (self.proc / f"{pid}/ns/{name}").symlink_to(f"{name}:[{2 if name == 'mnt' else 1}]")
        for descriptor in (self.proc / f"{pid}/fd").iterdir():
            descriptor.unlink()
        self.processes.append(Process(pid=pid, started_ticks=STARTED, parent_pid=parent, uid=OWNER, threads=3))
        return Identity(pid, STARTED)

    def task(self, pid: int, tid: int, comm: str, state: str = "S", run: int = 1, wait: int = 0, **more: Any) -> None:
        """A thread with its stat, and where it sleeps."""
        self.thread(pid, tid, comm, run, wait, more.get("voluntary", 0))
        stat = (self.proc / f"{pid}/stat").read_text()
        head, _, tail = stat.partition(" (python) ")
        self.write(f"{pid}/task/{tid}/stat", f"{head} ({comm}) {state}{tail[1:]}")
        self.write(f"{pid}/task/{tid}/wchan", more.get("wchan", "futex_do_wait"))
        self.write(f"{pid}/task/{tid}/syscall", more.get("syscall", "-1 0x0 0x0\n"))

    def file(self, pid: int, fd: int, target: str | Path, position: int = 0, flags: str = "0100000") -> None:
        """A descriptor."""
        link = self.proc / f"{pid}/fd/{fd}"
        link.unlink(missing_ok=True)
        link.symlink_to(target)
        self.write(f"{pid}/fdinfo/{fd}", f"pos:\t{position}\nflags:\t{flags}\nmnt_id:\t24\n")

    def detail(self, identity: Identity, wish: DetailWish = EVERYTHING, after_s: float = 0.0) -> Detail:
        """Let time pass, have it read, and give what was read then."""
        self.now_s += after_s
        self.inspector.inspect(identity, wish)
        assert self.inspector.settled(time.monotonic() + 10)
        detail = self.inspector.inspect(identity, wish)  # at the same time of its clock: nothing is read again
        assert isinstance(detail, Detail), detail
        return detail


def why(detail: Detail) -> Mapping[str, tuple[str, str | None]]:
    """The reason and what unlocks it, by what is missing."""
    return {one.metric: (one.reason, one.unlock) for one in detail.missing}
