"""Where the memory and the traffic of a process are: status, smaps_rollup, numa_maps, io."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from gputop.collect.kernel_files import slurp, slurp_all, why
from gputop.collect.proc.proc_files import Values, line
from gputop.model import Identity, Io, Memory, Missing, Reason
from gputop.safe import ptrace_access

IO_FILLS, FILLS = ("io",), ("memory",)
WEIGH_EVERY_S, WEIGH_SHARE = 15.0, 0.01  # the kernel walks every page, and blocks the process from mapping more
MOST_BYTES = 1 << 23

_STATUS = {
    "virtual_bytes": b"\nVmSize:", "peak_bytes": b"\nVmHWM:", "anonymous_bytes": b"\nRssAnon:",
    "file_bytes": b"\nRssFile:", "shared_bytes": b"\nRssShmem:", "locked_bytes": b"\nVmLck:",
    "pinned_bytes": b"\nVmPin:", "swap_bytes": b"\nVmSwap:",
}  # fmt: skip
_IO = {
    "read_bytes": b"\nread_bytes:", "written_bytes": b"\nwrite_bytes:", "cancelled_bytes": b"\ncancelled_write_bytes:",
    "read_chars_bytes": b"\nrchar:", "written_chars_bytes": b"\nwchar:", "read_calls": b"\nsyscr:",
    "write_calls": b"\nsyscw:",
}  # fmt: skip
_NODE = re.compile(rb" N(\d{1,5})=(\d+)")
_PAGE = re.compile(rb" kernelpagesize_kB=(\d+)")


def io(root: str, identity: Identity) -> Values:
    """Its traffic so far; OSError for another user's process."""
    raw = b"\n" + slurp(f"{root}/{identity.pid}/io")
    return {"io": Io(**{name: _number(raw, field) for name, field in _IO.items()})}


class MemoryReader:
    """The memory of one process. What the kernel walks pages for is asked the more rarely the longer that takes."""

    def __init__(self, root: str, identity: Identity, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder, self._clock = f"{root}/{identity.pid}", clock
        self._walked: dict[str, Any] = {}
        self._missing: tuple[Missing, ...] = ()
        self._again_s: float | None = None

    def read(self) -> Values:
        """The memory, pages walked or not; OSError when not even its status may be read."""
        raw = slurp(f"{self._folder}/status", 16384)
        plain: dict[str, Any] = {name: _kilobytes(raw, field) for name, field in _STATUS.items()}
        if plain["virtual_bytes"] is None:  # it has ended, or belongs to the kernel
            return {"missing": (Missing(metric="memory", reason="absent"),)}
        began_s = self._clock()
        if self._again_s is None or began_s >= self._again_s:
            self._walk()
            ended_s = self._clock()
            self._again_s = ended_s + max(WEIGH_EVERY_S, (ended_s - began_s) / WEIGH_SHARE)
        return {"memory": Memory(**plain, **self._walked), "missing": self._missing}

    def _walk(self) -> None:
        walked: dict[str, Any] = {}
        missing: list[Missing] = []
        try:
            raw = slurp_all(f"{self._folder}/smaps_rollup", 1 << 14)
            clean_pages, dirty = _kilobytes(raw, b"\nPrivate_Clean:"), _kilobytes(raw, b"\nPrivate_Dirty:")
            walked["pss_bytes"] = _kilobytes(raw, b"\nPss:")
            walked["huge_bytes"] = _kilobytes(raw, b"\nAnonHugePages:")
            walked["uss_bytes"] = None if clean_pages is None or dirty is None else clean_pages + dirty
        except OSError as error:
            missing += _refused(("pss_bytes", "uss_bytes", "huge_bytes"), error)
        try:
            walked["nodes"] = nodes(slurp_all(f"{self._folder}/numa_maps", MOST_BYTES))
        except OSError as error:
            missing += _refused(("nodes",), error)
        self._walked, self._missing = walked, tuple(missing)


def nodes(raw: bytes) -> tuple[tuple[int, int], ...] | None:
    """Bytes on each NUMA node from a numa_maps file; None when it is longer than we read, or says nothing."""
    if len(raw) >= MOST_BYTES:
        return None
    found: Counter[int] = Counter()
    for row in raw.splitlines():
        size = _PAGE.search(row)
        page = 1024 * int(size[1]) if size else 0
        for node, pages in _NODE.findall(row):
            found[int(node)] += page * int(pages)
    return tuple(sorted(found.items())) or None


def _refused(names: tuple[str, ...], error: OSError) -> list[Missing]:
    known = why(error)
    reason: Reason = "unsupported" if known == "gone" else known  # the process's own end is noticed elsewhere
    unlock = ptrace_access.unlock() if reason == "denied" else None
    return [Missing(metric=name, reason=reason, unlock=unlock) for name in names]


def _number(raw: bytes, field: bytes) -> int | None:
    words = line(raw, field).split()
    return int(words[0]) if words and words[0].isdigit() else None


def _kilobytes(raw: bytes, field: bytes) -> int | None:
    number = _number(raw, field)
    return None if number is None else number * 1024
