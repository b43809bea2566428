"""The live source and the monitor on a machine of which some files never answer."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event

import pytest

from gputop.collect.blocking_reads import PendingAnswers
from gputop.collect.filesystems import Size
from gputop.collect.host.mounts import Mounts
from gputop.collect.kernel_files import Kernel
from gputop.collect.live import MOST_NAMED, Live, hanging
from gputop.model import Frame
from tests.collect.test_host_hang import block, freed
from tests.fakeproc import FakeProc, until
from tests.host_tree import server
from tests.kernel_trees import write_tree
from tests.pty_programs import Terminal

__all__ = ["freed"]

BLOCKED = ("proc/meminfo", "sys/class/thermal/thermal_zone1/temp", "sys/fs/cgroup/job/memory.stat", "proc/42/stat")
MONITOR = """
import functools, sys
from gputop.collect import live
live.Live = functools.partial(live.Live, proc=sys.argv[1], sys=sys.argv[2])
del sys.argv[1:3]
from gputop.cli import main
sys.exit(main())
"""


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """Two processes on a server."""
    proc = FakeProc(tmp_path)
    for pid in (42, 43):
        proc.add(pid, "train")
        proc.more(pid)
    return write_tree(tmp_path, server())


@pytest.fixture
def frames(machine: Path) -> Iterator[Callable[[Callable[[Frame], object]], Frame]]:
    """The first frame of which something holds."""
    stop = Event()
    frames = Live(interval_s=0.25, nvml=False, proc=f"{machine}/proc", sys=f"{machine}/sys").frames(stop)

    def first(wanted: Callable[[Frame], object]) -> Frame:
        return next(frame for frame, _ in zip(frames, range(100), strict=False) if wanted(frame))

    yield first
    stop.set()
    assert next(frames, None) is None


@pytest.mark.waits
def test_p37_a_frame_is_whole_but_for_what_hangs(
    machine: Path, freed: list[Path], frames: Callable[[Callable[[Frame], object]], Frame]
) -> None:
    before = frames(lambda frame: frame.host.cpu_percent is None and frame.host.memory_total_bytes)
    assert before.note("not-answering") is None
    for name in BLOCKED:
        block(machine, name, freed)

    def all_seen(frame: Frame) -> bool:
        note = frame.note("not-answering")
        return note is not None and str(machine / BLOCKED[0]) in note.text and frame.host.memory_total_bytes is None

    frame = frames(all_seen)
    assert "memory_total_bytes" in {missing.metric for missing in frame.host.missing}
    assert frame.host.cpus_total == 2
    assert {process.pid for process in frame.processes} == {1, 42, 43}
    later = frames(lambda frame: True)
    assert 0.2 < later.mono_s - frame.mono_s < 5, "no frame waits for it"


@pytest.mark.waits
def test_p37_the_monitor_starts_draws_and_quits_while_files_hang(machine: Path, freed: list[Path]) -> None:
    for name in BLOCKED:
        block(machine, name, freed)
    argv = (sys.executable, "-c", MONITOR, f"{machine}/proc", f"{machine}/sys", "--no-nvml", "--interval", "0.5")
    with Terminal(argv, size=(200, 50)) as terminal:
        terminal.wait_for("Quit", 20)
        terminal.wait_for("Not answering: ", 20)
        terminal.send("q")
        assert terminal.wait_exit(1.5) == 0


def test_one_line_names_what_hangs_longest() -> None:
    hangs = [(f"/mnt/{number}", float(number)) for number in range(MOST_NAMED + 2)]
    assert hanging(hangs).text == "Not answering: /mnt/4 (4 s), /mnt/3 (3 s), /mnt/2 (2 s) and 2 more"
    assert hanging(hangs[:1]).text == "Not answering: /mnt/0 (0 s)"


def test_p37_a_dead_local_disk_costs_its_size(tmp_path: Path) -> None:
    mounts = (
        "27 1 259:2 / / rw - ext4 /dev/nvme0n1p2 rw\n"
        "28 27 259:3 / /scratch rw - xfs /dev/nvme1n1 rw\n"
        "29 27 0:50 / /mnt/usb rw - fuseblk /dev/sdc1 rw\n"
    )
    answers, asked = Event(), []

    def ask(path: str) -> Size:
        asked.append(path)
        if path != "/":
            answers.wait(60)
        return Size(1000, 400)

    write_tree(tmp_path, {"self/mountinfo": mounts})
    reader = Mounts(Kernel(str(tmp_path)), sizes=PendingAnswers(ask))
    until(lambda: reader.read(0.0).mounts[0].total_bytes == 1000)
    for now_s in (3.0, 29.0):
        host = reader.read(now_s)
        assert {mount.path: mount.total_bytes for mount in host.mounts} == {
            "/": 1000,
            "/scratch": None,
            "/mnt/usb": None,
        }
        assert {(missing.metric, missing.reason, missing.unlock) for missing in host.missing} == {
            (f"mount:{path}", "stale", "its disk or FUSE program does not answer") for path in ("/scratch", "/mnt/usb")
        }
        assert {path for path, _ in reader.hang(now_s)} == {"/scratch", "/mnt/usb"}
    assert sorted(asked) == ["/", "/mnt/usb", "/scratch"]
    answers.set()
    until(lambda: not reader.read(30.0).missing)


def test_p37_a_mount_whose_folder_does_not_answer_is_shown(tmp_path: Path) -> None:
    answers = Event()
    text = (
        "27 1 259:2 / / rw - ext4 /dev/a rw\n"
        "28 27 259:3 / /dead rw - xfs /dev/b rw\n"
        "29 27 259:4 /smi /usr/bin/smi rw - ext4 /dev/c rw\n"
    )
    write_tree(tmp_path, {"self/mountinfo": text})
    folders = PendingAnswers(lambda path: path == "/dead" and answers.wait(60))
    mounts = Mounts(Kernel(str(tmp_path)), sizes=PendingAnswers(lambda path: Size(2, 1)), folders=folders)
    assert [mount.path for mount in mounts.read(0.0).mounts] == ["/", "/dead"]
    answers.set()
