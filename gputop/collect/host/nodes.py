"""NUMA nodes: their CPUs, how full their memory is, and how often it had to serve others."""

from __future__ import annotations

import re
from math import inf

from gputop.collect.growth import Growth, Ledger
from gputop.collect.kernel import Kernel
from gputop.model import Host, Node

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
        """Memory now, rates since the last look."""
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
