"""How many processes are followed closely: a number, fewer where they cost too much, and who comes first."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from heapq import nsmallest

from gputop.collect.jobs.kin import LOADER
from gputop.collect.processes.seen import Seen

# 8 ranks with 32 loaders each, twice over. One costs 0.1 ms of CPU a tick: these are 5 % of a core, 8,000 are 94 %
MOST = 512
FEWEST = 64  # whatever they cost: the ranks of a node and some of their loaders
BUDGET = 0.08  # of a core
_GROWTH = 1.25  # a tick, once they cost less again


class Crowd:
    """The bound on those that are followed only because a GPU process is their kin, or because they work."""

    def __init__(self) -> None:
        self.most = MOST
        self.left_out: frozenset[int] = frozenset()  # pids that would be followed
        self._at_s: float | None = None

    def spent(self, cpu_s: float, count: int, now_s: float) -> None:
        """Take in what it cost to read so many since the last tick; what that is of a core decides how many may be."""
        passed_s, self._at_s = now_s - (now_s if self._at_s is None else self._at_s), now_s
        if passed_s <= 0 or not count:
            return
        share = cpu_s / passed_s
        most = count * BUDGET / share if share > BUDGET else self.most * _GROWTH
        self.most = max(FEWEST, min(MOST, int(most)))

    def bounded(
        self, chosen: set[int], needed: Collection[int], seen: Mapping[int, Seen], now_s: float
    ) -> tuple[set[int], frozenset[int]]:
        """Whom to follow of those chosen, and whose state of being left out has changed. `needed` are in any case."""
        room, before = self.most - len(needed), self.left_out
        if len(chosen) <= max(self.most, len(needed)):
            self.left_out = frozenset()
            return chosen, before
        others = chosen - set(needed)

        def order(pid: int) -> tuple[bool, bool, bool, int]:
            one = seen[pid]
            # loaders first, then busy ones; those that are followed stay, as every change costs a full read
            return not one.stat.comm.startswith(LOADER), one.busy_until_s <= now_s, not one.tracked, pid

        followed = set(nsmallest(max(0, room), others, key=order))
        self.left_out = frozenset(others - followed)
        return chosen - self.left_out, self.left_out ^ before
