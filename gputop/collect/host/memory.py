"""Memory of the machine: swap, the cache of ZFS, /dev/shm, and NUMA nodes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from math import inf

from gputop.collect.filesystems import shared_memory
from gputop.collect.kernel_files import Kernel
from gputop.collect.rates import Growth, Ledger
from gputop.model import Host, Missing, Node

_AMOUNT = re.compile(rb"^(\w+): +(\d+) kB$", re.MULTILINE)
_HUGE_FOLDER, _HUGE = "kernel/mm/hugepages", re.compile(r"hugepages-(\d+)kB")
_CHOSEN = re.compile(r"\[(\w+)\]")  # `always [madvise] never`
_ARC = re.compile(rb"^(size|c_min)\s+\d+\s+(\d+)$", re.MULTILINE)
_PAGES = re.compile(rb"^(pswpin|pswpout|workingset_refault(?:_file)?) (\d+)$", re.MULTILINE)


class HostMemory:
    """How much memory there is and how hard it is fought for."""

    fills = (
        "memory_total_bytes",
        "memory_used_bytes",
        "memory_available_bytes",
        "memory_cached_bytes",
        "memory_arc_bytes",
        "swap_total_bytes",
        "swap_used_bytes",
    )
    every_s = 0.0

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def read(self, now_s: float) -> Host:  # noqa: ARG002
        """`used` is what cannot be had without swapping, as free(1) has it: used and available make the total."""
        table = {name: int(kib) * 1024 for name, kib in _AMOUNT.findall(self._kernel.proc("meminfo"))}
        total, free, swap = table[b"MemTotal"], table[b"MemFree"], table.get(b"SwapTotal")
        # shared memory counts as cached, but nothing can be had from it
        cached = sum(table.get(name, 0) for name in (b"Buffers", b"Cached", b"SReclaimable")) - table.get(b"Shmem", 0)
        arc, spare = self._arc()
        if b"AnonPages" in table:  # in a container the cache may be that of a machine whose memory is not shown
            taken = table[b"AnonPages"] + table.get(b"Cached", 0) + table.get(b"Buffers", 0)
            spare = min(spare, max(0, total - free - taken))
        # Linux before 3.14 does not say what is available; no Linux counts what ZFS keeps, and gives back when asked
        available = min(total, (table.get(b"MemAvailable") or free + cached) + spare)
        return Host(
            memory_total_bytes=total,
            memory_used_bytes=total - available,
            memory_available_bytes=available,
            memory_cached_bytes=cached + spare,
            memory_arc_bytes=arc,
            swap_total_bytes=swap,
            swap_used_bytes=None if swap is None else swap - table.get(b"SwapFree", swap),
            missing=(
                *(() if swap is not None else _unsupported("swap_total_bytes", "swap_used_bytes")),
                *(() if arc is not None else _unsupported("memory_arc_bytes")),
            ),
        )

    def _arc(self) -> tuple[int | None, int]:
        """Memory that ZFS keeps as its cache, 0 where it is not loaded, and how much of that it gives back."""
        try:
            found = {name: int(size) for name, size in _ARC.findall(self._kernel.proc("spl/kstat/zfs/arcstats"))}
        except FileNotFoundError:
            return 0, 0
        except OSError:
            return None, 0
        size = found.get(b"size")
        return size, max(0, (size or 0) - found.get(b"c_min", 0))


class HugePages:
    """Memory set aside as huge pages, and whether the kernel makes them by itself."""

    fills = ("huge_total_bytes", "huge_free_bytes", "transparent_huge")
    every_s = 10.0

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def read(self, now_s: float) -> Host:  # noqa: ARG002
        """Those of all sizes; a kernel built without them reports none."""
        sizes = [_HUGE.fullmatch(name) for name in self._kernel.names(_HUGE_FOLDER)]
        pools = {f"{_HUGE_FOLDER}/{size[0]}": int(size[1]) * 1024 for size in sizes if size}
        chosen = _CHOSEN.search(self._kernel.word("kernel/mm/transparent_hugepage/enabled") or "")
        host = Host(
            huge_total_bytes=self._sum("nr_hugepages", pools),
            huge_free_bytes=self._sum("free_hugepages", pools),
            transparent_huge=chosen[1] if chosen else None,
        )
        unknown = (name for name in self.fills if getattr(host, name) is None)
        return replace(host, missing=tuple(Missing(metric=name, reason="absent") for name in unknown))

    def _sum(self, name: str, pools: Mapping[str, int]) -> int | None:
        counts = [(self._kernel.number(f"{pool}/{name}"), each) for pool, each in pools.items()]
        known = [count * each for count, each in counts if count is not None]
        return sum(known) if known and len(known) == len(counts) else None


class Paging:
    """Pages that went to and came from swap, and file pages that were dropped too early."""

    fills = ("swap_in_per_s", "swap_out_per_s", "refaults_per_s")
    every_s = 0.0

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._counters: Ledger[bytes] = Ledger()

    def read(self, now_s: float) -> Host:
        """Pages a second since the last sample."""
        pages = {name: (int(count),) for name, count in _PAGES.findall(self._kernel.proc("vmstat"))}
        grown = self._counters.grown(now_s, pages)
        # Linux 5.9 split the refaults of file pages from those of anonymous ones
        refaults = b"workingset_refault_file" if b"workingset_refault_file" in pages else b"workingset_refault"
        names = dict(zip(self.fills, (b"pswpin", b"pswpout", refaults), strict=True))
        rates = {metric: grown[name].per_s(0) for metric, name in names.items() if name in grown}
        return Host(
            swap_in_per_s=rates.get("swap_in_per_s"),
            swap_out_per_s=rates.get("swap_out_per_s"),
            refaults_per_s=rates.get("refaults_per_s"),
            missing=_unsupported(*(metric for metric, name in names.items() if name not in pages)),
        )


class SharedMemory:
    """/dev/shm, through which DataLoader workers hand over batches; a container has 64 MiB of it."""

    fills = ("shm_total_bytes", "shm_used_bytes")
    every_s = 0.0

    def __init__(self, kernel: Kernel) -> None:
        self.place = self._path = kernel.shm

    def read(self, now_s: float) -> Host:  # noqa: ARG002
        """Its size and use; OSError where it is not mounted."""
        found = shared_memory(self._path)
        return Host(shm_total_bytes=found.total, shm_used_bytes=found.used)


def _unsupported(*names: str) -> tuple[Missing, ...]:
    return tuple(Missing(metric=name, reason="unsupported") for name in names)


_NODES = "devices/system/node"
_STATIC_EVERY_S = 60.0
_MISS, _OTHER = range(2)


class Nodes:
    """The parts of a machine's memory; a small machine is one node, a kernel without NUMA shows none."""

    fills = (
        "nodes",
        "node.total_bytes",
        "node.free_bytes",
        "node.misses_per_s",
        "node.remote_per_s",
    )
    every_s = 5.0

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._counters: Ledger[int] = Ledger()
        self._cpus: dict[int, str] = {}
        self._looked_s = -inf

    def read(self, now_s: float) -> Host:
        """Memory now, rates since the last sample."""
        if now_s - self._looked_s >= _STATIC_EVERY_S:
            self._looked_s = now_s
            found = (re.fullmatch(r"node(\d+)", name) for name in self._kernel.names(_NODES))
            self._cpus = {
                int(match[1]): self._kernel.word(f"{_NODES}/{match[0]}/cpulist") or "" for match in found if match
            }
        if not self._cpus:
            raise FileNotFoundError(2, "no NUMA nodes", _NODES)
        grown = self._counters.grown(now_s, {number: self._served(number) for number in self._cpus})
        return Host(nodes=tuple(self._node(number, grown.get(number)) for number in sorted(self._cpus)))

    def _node(self, number: int, growth: Growth | None) -> Node:
        amounts = dict(re.findall(r"(Mem\w+): +(\d+) kB", self._text(f"node{number}/meminfo")))
        return Node(
            number=number,
            cpus=self._cpus[number],
            total_bytes=int(amounts["MemTotal"]) * 1024 if "MemTotal" in amounts else None,
            free_bytes=int(amounts["MemFree"]) * 1024 if "MemFree" in amounts else None,
            misses_per_s=growth.per_s(_MISS) if growth else None,
            remote_per_s=growth.per_s(_OTHER) if growth else None,
        )

    def _served(self, number: int) -> tuple[int | None, int | None]:
        counts = dict(re.findall(r"^(\w+) (\d+)$", self._text(f"node{number}/numastat"), re.MULTILINE))
        miss, other = counts.get("numa_miss"), counts.get("other_node")
        return int(miss) if miss else None, int(other) if other else None

    def _text(self, name: str) -> str:
        try:
            return self._kernel.sys(f"{_NODES}/{name}").decode("ascii", "replace")
        except OSError:
            return ""
