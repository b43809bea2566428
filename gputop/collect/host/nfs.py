"""What NFS mounts do, from /proc/self/mountstats: bytes, round trips, queues, retransmissions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from gputop.collect.growth import Growth, Ledger
from gputop.collect.mountinfo import unescape

NFS = frozenset({"nfs", "nfs4"})  # of clients: `nfsd`, which a server has too, holds no data
_DEVICE = re.compile(rb"device (.*) mounted on (.*) with fstype (\S+)(?: statvers=\S+)?")
_READ_BYTES, _WRITE_BYTES = 4, 5  # of `bytes:`, the ones the server was asked for: the cache's are left out
_OPERATIONS, _SENT, _QUEUE_MS, _RTT_MS = 0, 1, 5, 6  # of each line of per-op statistics
_MILLISECOND = 0.001


class Traffic(NamedTuple):
    """The rates of one NFS mount."""

    read_bytes_per_s: float | None
    write_bytes_per_s: float | None
    reads_per_s: float | None
    read_rtt_s: float | None
    read_queue_s: float | None
    retransmits_per_s: float | None


class Counts(NamedTuple):
    """The counters of one NFS mount."""

    read_bytes: int
    write_bytes: int
    reads: int
    read_queue_ms: int
    read_rtt_ms: int
    retransmits: int


class Nfs:
    """The last look at the NFS mounts of this mount namespace."""

    def __init__(self) -> None:
        self._counters: Ledger[str] = Ledger()

    def traffic(self, now_s: float, mountstats: bytes) -> dict[str, Traffic]:
        """Rates since the last look, by mount path."""
        grown = self._counters.grown(now_s, dict(nfs_counts(mountstats)))
        return {path: _traffic(growth) for path, growth in grown.items()}


def nfs_counts(mountstats: bytes) -> Iterator[tuple[str, Counts]]:
    """The counters of every NFS mount, by its path; a part of the text that is not as documented is left out."""
    for part in re.split(rb"^(?=device )", mountstats, flags=re.MULTILINE):
        head, _, body = part.partition(b"\n")
        device = _DEVICE.fullmatch(head)
        if device and device[3].decode("ascii", "replace") in NFS:
            try:
                yield unescape(device[2]), _counts(body)
            except (ValueError, IndexError, KeyError):
                continue


def _counts(body: bytes) -> Counts:
    rows: dict[bytes, list[int]] = {}
    general, _, operations = body.partition(b"per-op statistics")
    for line in operations.splitlines():
        name, colon, numbers = line.strip().partition(b":")
        if colon:
            rows[name] = [int(number) for number in numbers.split()]
    bytes_line = next((line for line in general.splitlines() if line.lstrip().startswith(b"bytes:")), b"")
    moved = [int(number) for number in bytes_line.split()[1:]]
    read = rows[b"READ"]
    return Counts(
        read_bytes=moved[_READ_BYTES],
        write_bytes=moved[_WRITE_BYTES],
        reads=read[_OPERATIONS],
        read_queue_ms=read[_QUEUE_MS],
        read_rtt_ms=read[_RTT_MS],
        retransmits=sum(max(0, row[_SENT] - row[_OPERATIONS]) for row in rows.values()),
    )


def _traffic(growth: Growth) -> Traffic:
    read_bytes, write_bytes, reads, queue, rtt, retransmits = range(len(Counts._fields))
    rtt_ms, queue_ms = growth.mean(rtt, reads), growth.mean(queue, reads)
    return Traffic(
        read_bytes_per_s=growth.per_s(read_bytes),
        write_bytes_per_s=growth.per_s(write_bytes),
        reads_per_s=growth.per_s(reads),
        read_rtt_s=None if rtt_ms is None else rtt_ms * _MILLISECOND,
        read_queue_s=None if queue_ms is None else queue_ms * _MILLISECOND,
        retransmits_per_s=growth.per_s(retransmits),
    )
