"""Whose turn it is to be looked at, of the many that sleep: some at each tick, the soundest sleepers rarely."""

from __future__ import annotations

from collections import deque
from math import ceil, inf

from gputop.collect.files import slurp
from gputop.collect.gate import Gate
from gputop.collect.processes.seen import Seen
from gputop.source import Interest

EVERY_S = 5.0
DEEP_EVERY_S = 15.0  # of those that did not move at many looks, as long as nobody unseen works
ON_SCREEN_A_S = 1000.0  # with all of them on screen: at each tick, but no more of them a second than this
UNSEEN_CORES, UNSEEN_SHARE = 0.5, 0.02  # so much CPU time, of all there is, that nobody followed accounts for


class Turns:
    """Sleepers in the order of their turns."""

    def __init__(self, gate: Gate, proc: str = "/proc") -> None:
        self._gate = gate
        self._at_once: list[Seen] = []
        self._light: deque[Seen] = deque()
        self._deep: deque[Seen] = deque()
        self._proc = proc
        self._before: tuple[float, float] | None = None
        self._looked_s = inf

    def put(self, seen: Seen) -> None:
        """Let it wait for its turn, unless it does already or is looked at at each tick anyway."""
        if seen.waiting or seen.tracked or seen.gone:
            return
        seen.waiting = True
        if seen.unsettled:
            self._at_once.append(seen)
        else:
            (self._deep if seen.deep else self._light).append(seen)

    def take(self, now_s: float, interest: Interest, followed_cores: float, cpus: int) -> list[Seen]:
        """Those whose turn has come; who is followed or has ended by now is not among them."""
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
