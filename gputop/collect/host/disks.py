"""Block devices, from /proc/diskstats: the physical ones, so that no byte is counted twice."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import inf

from gputop.collect.blocking_reads import PendingAnswers
from gputop.collect.kernel_files import Kernel
from gputop.collect.rates import Growth, Ledger, total
from gputop.model import Disk, Host
from gputop.safe.text import decode

# stacked on other disks, in memory, removable
_NOT_PHYSICAL = re.compile(r"loop|ram|zram|dm-|md|bcache|drbd|sr\d|fd\d")
_PATH = re.compile(r"(nvme\d+)c\d+(n\d+)")  # one path of many to the same NVMe disk
_PARTITION = re.compile(r"(.*\d)p\d+|(.*\D)\d+")
_SECTOR = 512  # in this file, whatever the device says of itself
_MILLISECOND = 0.001
_FLAG = "block/{}/queue/rotational"

# columns of Documentation/admin-guide/iostats.rst
_READS, _READ_SECTORS, _READ_MS, _WRITES, _WRITE_SECTORS, _WRITE_MS, _BUSY_MS, _QUEUE_MS = range(8)
_COLUMNS = (3, 5, 6, 7, 9, 10, 12, 13)


class Disks:
    """What the disks do."""

    fills = (
        "disks",
        "disk.read_bytes_per_s",
        "disk.write_bytes_per_s",
        "disk.reads_per_s",
        "disk.writes_per_s",
        "disk.busy_percent",
        "disk.await_s",
        "disk.queued",
    )
    every_s = 0.0

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._counters: Ledger[str] = Ledger()
        # the queue's files may wait for a dead disk
        self._rotational = PendingAnswers(self._flag, every_s=inf)

    def read(self, now_s: float) -> Host:
        """Rates since the last sample, by disk."""
        table = disk_counters(self._kernel.proc("diskstats"))
        grown = self._counters.grown(now_s, table)
        self._rotational.keep(table)
        self._rotational.ask(table, now_s)
        return Host(disks=tuple(self._disk(name, grown.get(name), now_s) for name in table))

    def hang(self, now_s: float) -> list[tuple[str, float]]:
        """Files of disks that do not answer, and since when."""
        return [(self._file(name), since_s) for name, since_s in self._rotational.hang(now_s)]

    def _file(self, name: str) -> str:
        return f"{self._kernel.sys_root}/{_FLAG.format(name.replace('/', '!'))}"

    def _flag(self, name: str) -> bool:
        return bool(int(self._kernel.sys(_FLAG.format(name.replace("/", "!")))))

    def _disk(self, name: str, growth: Growth | None, now_s: float) -> Disk:
        known = self._rotational.answer(name, now_s)
        rotational = known if isinstance(known, bool) else None
        if growth is None:
            return Disk(name=name, rotational=rotational)
        reads, writes = growth.per_s(_READS), growth.per_s(_WRITES)
        read_sectors, write_sectors = growth.per_s(_READ_SECTORS), growth.per_s(_WRITE_SECTORS)
        queue_ms = growth.per_s(_QUEUE_MS)
        return Disk(
            name=name,
            rotational=rotational,
            read_bytes_per_s=None if read_sectors is None else read_sectors * _SECTOR,
            write_bytes_per_s=None if write_sectors is None else write_sectors * _SECTOR,
            reads_per_s=reads,
            writes_per_s=writes,
            busy_percent=growth.percent(_BUSY_MS, _MILLISECOND),
            await_s=_await_s(growth),
            queued=None if queue_ms is None else queue_ms * _MILLISECOND,
        )


def disk_counters(raw: bytes) -> Mapping[str, Sequence[int]]:
    """The counters of every physical disk that was ever used, by name; partitions are part of their disk."""
    table: dict[str, tuple[int, ...]] = {}
    paths: dict[str, list[tuple[int, ...]]] = {}
    for line in raw.splitlines():
        columns = line.split()
        if len(columns) >= 14 and columns[3:14].count(b"0") < 11:
            name, counters = decode(columns[2]), tuple(int(columns[column]) for column in _COLUMNS)
            if path := _PATH.fullmatch(name):
                paths.setdefault(path[1] + path[2], []).append(counters)
            else:
                table[name] = counters
    for name, several in paths.items():
        # before Linux 6.2 only the paths count what is done, since then the disk itself does too
        table.setdefault(name, tuple(map(sum, zip(*several, strict=True))))
    return {
        name: counters
        for name, counters in table.items()
        if not _NOT_PHYSICAL.match(name) and not _is_partition(name, table)
    }


def _is_partition(name: str, of: Mapping[str, object]) -> bool:
    match = _PARTITION.fullmatch(name)
    return match is not None and (match[1] or match[2]) in of


def _await_s(growth: Growth) -> float | None:
    waited_ms = total((growth.by[_READ_MS], growth.by[_WRITE_MS]))
    requests = total((growth.by[_READS], growth.by[_WRITES]))
    return waited_ms / requests * _MILLISECOND if waited_ms is not None and requests else None
