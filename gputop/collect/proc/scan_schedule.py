"""Which processes are read at this tick: those tracked closely, and some of the many that sleep."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from heapq import nsmallest
from math import ceil, inf

from gputop.collect.jobs.ancestry import LOADER
from gputop.collect.kernel_files import slurp
from gputop.collect.lane import LaneGate
from gputop.collect.proc.process_state import ProcessState
from gputop.source import Interest

# 8 ranks with 32 loaders each, twice over. One costs 0.1 ms of CPU a tick: these are 5 % of a core, 8,000 are 94 %
MOST = 512
FEWEST = 64  # whatever they cost: the ranks of a node and some of their loaders
BUDGET = 0.08  # of a core
_GROWTH = 1.25  # a tick, once they cost less again


class TrackingBudget:
    """The bound on those that are followed only because a GPU process is their kin, or because they work."""

    def __init__(self) -> None:
        self.most = MOST
        self.left_out: frozenset[int] = frozenset()  # pids that would be followed
        self._at_s: float | None = None

    def spent(self, cpu_s: float, count: int, now_s: float) -> None:
        """Take in what the reads since the last tick cost; what that is of a core decides how many there may be."""
        passed_s, self._at_s = now_s - (now_s if self._at_s is None else self._at_s), now_s
        if passed_s <= 0 or not count:
            return
        share = cpu_s / passed_s
        most = count * BUDGET / share if share > BUDGET else self.most * _GROWTH
        self.most = max(FEWEST, min(MOST, int(most)))

    def bounded(
        self, chosen: set[int], needed: Collection[int], seen: Mapping[int, ProcessState], now_s: float
    ) -> tuple[set[int], frozenset[int]]:
        """Which of those chosen to follow, and which ones are newly left out or in. `needed` are in any case."""
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


EVERY_S = 5.0
DEEP_EVERY_S = 15.0  # of those that did not move in many samples, as long as nothing unseen works
ON_SCREEN_A_S = 1000.0  # with all of them on screen: at each tick, but no more of them a second than this
UNSEEN_CORES, UNSEEN_SHARE = 0.5, 0.02  # CPU time, also of all there is, that no followed process accounts for


class ScanTurns:
    """Sleepers in the order of their turns."""

    def __init__(self, gate: LaneGate, proc: str = "/proc") -> None:
        self._gate = gate
        self._at_once: list[ProcessState] = []
        self._light: deque[ProcessState] = deque()
        self._deep: deque[ProcessState] = deque()
        self._proc = proc
        self._before: tuple[float, float] | None = None
        self._looked_s = inf

    def put(self, seen: ProcessState) -> None:
        """Let it wait for its turn, unless it does already or is read at each tick anyway."""
        if seen.waiting or seen.tracked or seen.gone:
            return
        seen.waiting = True
        if seen.unsettled:
            self._at_once.append(seen)
        else:
            (self._deep if seen.deep else self._light).append(seen)

    def take(self, now_s: float, interest: Interest, followed_cores: float, cpus: int) -> list[ProcessState]:
        """Those that are due; followed and ended ones are not among them."""
        passed_s = max(0.0, now_s - self._looked_s)
        self._looked_s = now_s
        every_s = EVERY_S
        if interest.every_process:
            count = len(self._at_once) + len(self._light) + len(self._deep)
            every_s = count / ON_SCREEN_A_S if count > ON_SCREEN_A_S else 0.0
        calm = not interest.every_process and self._calm(followed_cores, cpus)
        due, self._at_once = self._at_once, []
        for queue, cadence_s in ((self._light, every_s), (self._deep, DEEP_EVERY_S if calm else every_s)):
            part = passed_s / cadence_s if cadence_s else 1.0
            due.extend([queue.popleft() for _ in range(min(len(queue), ceil(len(queue) * part)))])
        for seen in due:
            seen.waiting = False
        return [seen for seen in due if not seen.tracked and not seen.gone]

    def _calm(self, followed_cores: float, cpus: int) -> bool:
        """Whether those that are followed account for what the CPUs did since the last tick, by and large."""
        try:
            path = f"{self._proc}/uptime"
            uptime_s, idle_s = map(float, self._gate.ask(path, slurp, path, 128).split())
        except (OSError, ValueError):
            return False
        before, self._before = self._before, (uptime_s, idle_s)
        if before is None or uptime_s <= before[0]:
            return False
        busy_cores = cpus - (idle_s - before[1]) / (uptime_s - before[0])
        return 0 <= busy_cores <= followed_cores + max(UNSEEN_CORES, UNSEEN_SHARE * cpus)
