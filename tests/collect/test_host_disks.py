"""Disks: physical ones only, rates from the counters of /proc/diskstats."""

from __future__ import annotations

from pathlib import Path

import pytest

from gputop.collect.host.disks import disk_counters
from tests.host_tree import DISKSTATS, Server

NUMBERS = "1 0 8 1 1 0 8 1 0 1 1"
USED_AND_PHYSICAL = {
    "sda sda1 sda2 sdaa sdaa1": ["sda", "sdaa"],
    "nvme0n1 nvme0n1p1 nvme0n1p15 nvme10n1 nvme0c0n1": ["nvme0n1", "nvme10n1"],
    "vda vdb1 xvda1": ["vda", "vdb1", "xvda1"],  # a virtual disk may come without its whole
    "mmcblk0 mmcblk0p1 mmcblk0boot0": ["mmcblk0", "mmcblk0boot0"],
    "nbd1 nbd10 nbd1p1 rbd0": ["nbd1", "nbd10", "rbd0"],
    "dm-0 md127 md127p1 loop3 ram0 zram0 sr0 bcache0 drbd1": [],
}


@pytest.mark.parametrize(("names", "physical"), USED_AND_PHYSICAL.items())
def test_only_what_is_not_part_of_another(names: str, physical: list[str]) -> None:
    text = "".join(f" 8 {minor} {name} {NUMBERS}\n" for minor, name in enumerate(names.split()))
    assert list(disk_counters(text.encode())) == physical


def test_a_disk_that_was_never_used_is_not_shown() -> None:
    assert disk_counters(b"  43 0 nbd0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n") == {}


def test_a_disk_with_paths_that_count_for_it_is_their_sum_under_its_name(tmp_path: Path) -> None:
    quiet, moved = "0 " * 11, "{0} 0 {0}000 {0} {0} 0 {0}000 {0} 0 {0} {0}"
    names = ("nvme0n1", "nvme0c0n1", "nvme0c1n1", "nvme1n1", "nvme1c2n1")
    both = moved.format(4)  # nvme1 as Linux 6.2 counts it

    def text(*counts: str) -> str:
        return "".join(f" 259 {n} {name} {line}\n" for n, (name, line) in enumerate(zip(names, counts, strict=True)))

    flags = {f"sys/block/{name}/queue/rotational": "0\n" for name in ("nvme0n1", "nvme1n1")}
    before = text(quiet, moved.format(1), moved.format(2), both, both)
    box = Server(tmp_path, {**flags, "proc/diskstats": before})
    box.look()
    host = box.look(1.0, diskstats=text(quiet, moved.format(2), moved.format(5), moved.format(6), moved.format(6)))
    found = {disk.name: (disk.reads_per_s, disk.read_bytes_per_s, disk.rotational) for disk in host.disks}
    assert found == {"nvme0n1": (4, 4000 * 512, False), "nvme1n1": (2, 2000 * 512, False)}
    assert host.read_bytes_per_s == 6000 * 512, "no byte counts twice"


def test_rates_times_and_queue(tmp_path: Path) -> None:
    box = Server(tmp_path)
    box.look()
    host = box.look(
        2.0,
        diskstats=" 259 0 nvme0n1 1100 0 84000 600 2300 0 170000 4300 5 1400 9500 0 0 0 0 9 9\n 259 1 nvme1n1 "
        + NUMBERS,
    )
    known, new = host.disks
    assert (known.name, known.rotational, new.name, new.rotational) == ("nvme0n1", False, "nvme1n1", None)
    assert (known.reads_per_s, known.writes_per_s) == (50, 150)
    assert (known.read_bytes_per_s, known.write_bytes_per_s) == (4000 * 512 / 2, 10000 * 512 / 2)
    assert (known.busy_percent, known.queued) == (25, 2.5)
    assert known.await_s == pytest.approx(0.001)
    assert new.read_bytes_per_s is None
    assert host.read_bytes_per_s is None  # a sum of which a part is unknown
    host = box.look(diskstats=(tmp_path / "proc/diskstats").read_text())
    assert (host.read_bytes_per_s, host.disks[0].await_s) == (0, None)


def test_p16_a_counter_that_wraps_is_a_gap(tmp_path: Path) -> None:
    box = Server(tmp_path)
    box.look(diskstats=DISKSTATS.replace(" 80000 ", f" {2**32 - 8} "))
    host = box.look(diskstats=DISKSTATS.replace(" 80000 ", " 8 "))
    assert (host.disks[0].read_bytes_per_s, host.disks[0].write_bytes_per_s) == (None, 0)
    assert (host.read_bytes_per_s, host.write_bytes_per_s) == (None, 0)
