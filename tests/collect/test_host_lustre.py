"""Lustre: what the requests to its servers moved, and how long they took, by mount."""

from __future__ import annotations

from pathlib import Path

import pytest

from gputop.collect.host.mounts import file_system_of
from gputop.collect.kernel_files import read_file
from gputop.model import Mount
from tests.host_tree import MOUNTINFO, Server, server
from tests.kernel_trees import write_tree

MOUNTED = "90 27 0:77 / /scratch rw,relatime shared:60 - lustre 10.0.0.1@o2ib:10.0.0.2@o2ib:/scratch rw,flock\n"
PROC, DEBUG = "proc/fs/lustre", "sys/kernel/debug/lustre"


def target(number: int, reads: int = 0, mib: int = 0, written: int = 0, below: str = PROC) -> dict[str, str]:
    """The statistics of one object server after this many reads of 2 ms that moved this many MiB."""
    rows = [
        "snapshot_time             1700000000.123456789 secs.nsecs",
        f"req_waittime              {reads + 5} samples [usec] 24 81230 999999 99999999",
        "req_active                12 samples [reqs] 1 3 14 20",
    ]
    if reads:
        rows.append(f"read_bytes                {reads} samples [bytes] 4096 1048576 {mib << 20}")
        rows.append(f"ost_read                  {reads} samples [usecs] 100 9000 {2000 * reads} 99999")
    if written:
        rows.append(f"write_bytes               7 samples [bytes] 4096 1048576 {written << 20} 12345")
    return {f"{below}/osc/scratch-OST{number:04x}-osc-ffff9d0c5e3b7800/stats": "\n".join([*rows, ""])}


def files(*targets: dict[str, str]) -> dict[str, str]:
    both = {name: text for each in targets for name, text in each.items()}
    return {**server(), **both, "proc/self/mountinfo": MOUNTINFO + MOUNTED}


def scratch(box: Server, after_s: float = 5.0) -> Mount:
    (found,) = (mount for mount in box.look(after_s).mounts if mount.path == "/scratch")
    return found


@pytest.mark.parametrize("below", [PROC, DEBUG], ids=["older versions", "newer ones, as root"])
def test_requests_to_all_servers_of_a_mount(tmp_path: Path, below: str) -> None:
    box = Server(tmp_path, files(target(0, 10, 10, below=below), target(10, below=below)))
    assert scratch(box).read_bytes_per_s is None
    write_tree(tmp_path, {**target(0, 60, 60, below=below), **target(10, 50, 100, 25, below=below)})
    assert scratch(box, 1.0).read_bytes_per_s is None, "not each second"
    mount = scratch(box, 4.0)
    assert (mount.read_bytes_per_s, mount.write_bytes_per_s) == (30 << 20, 5 << 20)
    assert mount.read_rtt_s == pytest.approx(0.002)
    host = box.look(1.0)
    assert (host.read_bytes_per_s, host.write_bytes_per_s) == (30 << 20, 5 << 20)


def test_p16_statistics_that_were_cleared_are_a_gap(tmp_path: Path) -> None:
    box = Server(tmp_path, files(target(0, 10, 10), target(1, 10, 10)))
    scratch(box)
    write_tree(tmp_path, {**target(0), **target(1, 20, 20)})
    assert scratch(box).read_bytes_per_s is None
    write_tree(tmp_path, {**target(0, 5, 5), **target(1, 25, 25)})
    assert scratch(box).read_bytes_per_s == 2 << 20


def test_a_server_that_came_later_makes_no_leap(tmp_path: Path) -> None:
    box = Server(tmp_path, files(target(0, 10, 10)))
    scratch(box)
    write_tree(tmp_path, {**target(0, 20, 20), **target(1, 1000, 1000)})
    assert scratch(box).read_bytes_per_s is None
    assert scratch(box).read_bytes_per_s == 0


def test_p09_statistics_for_root_only_leave_the_disks(tmp_path: Path) -> None:
    def read(path: str) -> bytes:
        if "OST0001" in path:
            raise PermissionError(13, "Permission denied")
        return read_file(path)

    box = Server(tmp_path, files(target(0, 10, 10), target(1, 10, 10)), read)
    scratch(box)
    write_tree(tmp_path, target(0, 20, 20))
    mount = scratch(box)
    assert mount.read_bytes_per_s is mount.read_rtt_s is None
    assert box.look().read_bytes_per_s == 0


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("10.0.0.1@o2ib:/fs", "fs"),
        ("10.0.0.1@o2ib:10.0.0.2@o2ib:/scratch", "scratch"),
        ("mgs@tcp:/home1/projects/a", "home1"),
        ("none", "none"),
    ],
)
def test_a_file_system_by_what_was_mounted(source: str, name: str) -> None:
    assert file_system_of(source) == name
