"""What Lustre mounts do: bytes and round trips of the requests to the servers, from the statistics of each target.

Those of llite, one layer above, count what programs asked for: what came from the cache too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from math import inf
from typing import NamedTuple

from gputop.collect.growth import Growth, Ledger, total
from gputop.collect.host.aside import Aside
from gputop.collect.host.nfs import Traffic
from gputop.collect.kernel import Kernel

_EVERY_S = 5.0
_MANY, _MORE_RARELY_S = 64, 20.0  # targets: the kernel adds up each one's statistics over all CPUs
_LAYERS = ("osc", "mdc")  # object servers; metadata servers, which keep small files
_TARGET = re.compile(r"(.+)-(?:OST|MDT)[0-9a-f]{4}-(?:osc|mdc)-[0-9a-f]+")  # scratch-OST000a-osc-ffff9d0c5e3b7800
_ROW = re.compile(rb"^(read_bytes|write_bytes|ost_read) +(\d+) samples \[\w+\] \d+ \d+ (\d+)", re.MULTILINE)
_READ_BYTES, _WRITE_BYTES, _READS, _READ_US = range(4)
_MICROSECOND = 1e-6


class _Target(NamedTuple):
    """One server's part of a file system."""

    file_system: str
    in_proc: bool  # else below /sys, where newer versions show it to root only
    file: str

    def text(self, kernel: Kernel) -> bytes:
        return kernel.proc(self.file) if self.in_proc else kernel.sys(self.file)


class Lustre(Aside):
    """The last look at the targets of all mounted Lustre file systems; a reader beside that of the mounts.

    Its files are the file system's own code, which may hang with a server.
    """

    def __init__(self, kernel: Kernel) -> None:
        super().__init__()
        self._kernel = kernel
        self._counters: Ledger[_Target] = Ledger()
        self._traffic: dict[str, Traffic] = {}
        self._next_s = -inf

    def traffic(self, now_s: float) -> dict[str, Traffic]:
        """Rates by the name of the file system, as of the last 5 s; nothing where they are not for us to read."""
        return {} if self.late(now_s) else self._traffic

    def look(self, now_s: float) -> None:
        """Look again when it is time."""
        if now_s < self._next_s:
            return
        table = {target: _counts(text) for target, text in self._texts().items()}
        self._next_s = now_s + (_MORE_RARELY_S if len(table) > _MANY else _EVERY_S)
        grown = self._counters.grown(now_s, table)
        self._traffic = {
            name: _sum([grown.get(target) for target in table if target.file_system == name])
            for name in {target.file_system for target in table}
        }

    def _texts(self) -> dict[_Target, bytes]:
        """Of the file systems of which every target can be read: a sum without one would be wrong."""
        texts, hidden = {}, set()
        for target in self._targets():
            try:
                texts[target] = target.text(self._kernel)
            except OSError:
                hidden.add(target.file_system)
        return {target: text for target, text in texts.items() if target.file_system not in hidden}

    def _targets(self) -> Iterator[_Target]:
        for layer in _LAYERS:
            for in_proc, folder, names in (
                (True, f"fs/lustre/{layer}", self._kernel.proc_names),
                (False, f"kernel/debug/lustre/{layer}", self._kernel.names),
            ):
                for name in names(folder):
                    if match := _TARGET.fullmatch(name):
                        yield _Target(match[1], in_proc, f"{folder}/{name}/stats")


def file_system_of(source: str) -> str:
    """The name of the file system in what was mounted: `10.0.0.1@o2ib:/scratch/projects` is scratch."""
    return source.rpartition(":/")[2].partition("/")[0]


def _counts(text: bytes) -> tuple[int, int, int, int]:
    """Bytes read and written, reads, and the microseconds they took; a row is there after its first event."""
    rows = {name: (int(count), int(summed)) for name, count, summed in _ROW.findall(text)}
    none = (0, 0)
    return (rows.get(b"read_bytes", none)[1], rows.get(b"write_bytes", none)[1], *rows.get(b"ost_read", none))


def _sum(grown: Iterable[Growth | None]) -> Traffic:
    parts = list(grown)
    known = [growth for growth in parts if growth is not None]
    if len(known) < len(parts):
        return Traffic(None, None, None, None, None, None)
    reads, waited_us = total(growth.by[_READS] for growth in known), total(growth.by[_READ_US] for growth in known)
    return Traffic(
        read_bytes_per_s=total(growth.per_s(_READ_BYTES) for growth in known),
        write_bytes_per_s=total(growth.per_s(_WRITE_BYTES) for growth in known),
        reads_per_s=total(growth.per_s(_READS) for growth in known),
        read_rtt_s=waited_us / reads * _MICROSECOND if reads and waited_us is not None else None,
        read_queue_s=None,
        retransmits_per_s=None,
    )
