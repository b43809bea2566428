"""The threads of trainers, some at each tick: how many want to run, how long they wait for a CPU, their names."""

from __future__ import annotations

import os
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping

from gputop.collect.kernel_files import CachedFile, FdCache, slurp
from gputop.collect.proc.proc_files import Values, line, run_and_wait, switches, waited_percent
from gputop.collect.rates import Counters
from gputop.model import Identity
from gputop.safe.text import decode

THREAD_FILLS = ("busy_threads", "run_wait_percent", "backward_percent")
_BACKWARD = "pt_autograd"  # PyTorch launches the kernels of a backward pass from a thread of this name for each GPU
READS_A_TICK = 250  # over all processes that are not open; a pass over more threads takes several ticks
READS_OPEN = 2000  # of one process whose details are open
PASS_EVERY_S = 3.0  # over the threads of one process, unless its details are open
PARKED_PASSES, PARKED_EVERY = 2, 4  # a thread that did not run in this number of passes is read at every fourth
LIST_EVERY = 10  # passes
BUSY = 0.10  # share of its time that a thread ran or wanted to: CPU share alone misses starved threads
MOST_NAMES = 64


Counts = Mapping[Identity, int | None]  # how many threads each process has, where that is known


class _Thread:
    """One thread from pass to pass."""

    __slots__ = ("counters", "name", "parked", "run", "schedstat", "switches", "switching", "wait")

    def __init__(self, folder: str, shelf: FdCache) -> None:
        self.schedstat = CachedFile(f"{folder}/schedstat", shelf)
        self.name: str | None = None
        self.counters, self.switches = Counters(), Counters()
        self.run: float | None = None  # nanoseconds a second
        self.wait: float | None = None
        self.switching: tuple[float | None, ...] = (None, None)
        self.parked = 0  # passes in a row in which it did nothing

    @property
    def busy(self) -> bool:
        """Whether it ran or wanted to run a tenth of the time."""
        return self.run is not None and self.wait is not None and self.run + self.wait >= BUSY * 1e9

    @property
    def backward(self) -> bool:
        """Whether autograd runs backward passes in it."""
        return self.name is not None and self.name.startswith(_BACKWARD)


class _Family:
    """The threads of one process. A pass may be interrupted when a tick's reads are used up."""

    def __init__(self, identity: Identity, root: str, shelf: FdCache) -> None:
        self.identity, self.folder = identity, f"{root}/{identity.pid}/task"
        self._shelf = shelf
        self.threads: dict[int, _Thread] = {}
        self.left: list[int] = []
        self.passes, self.began_s = 0, 0.0
        self.values: Values = {}
        self.blocked = False  # a thread was in state D in this pass
        self._names: tuple[tuple[str, int], ...] | None = None  # None: to be counted again
        self._listed = 0  # in which pass the threads were listed
        self.others = (0.0, 0.0)  # context switches a second of busy threads, the main one excluded

    def due(self, now_s: float) -> bool:
        """Whether to go on with a pass or to begin another; rates need two, so those come soon."""
        return bool(self.left) or self.passes < 2 or now_s - self.began_s >= PASS_EVERY_S

    def step(self, reads: int, clock: Callable[[], float], count: int | None, every: bool = False) -> int:
        """Go on with the pass for this many reads; how many are left over. At its end the values are new.

        `count` is how many threads there are, None if that is not known.
        """
        if not self.left:
            self._begin(clock(), count, every)
            reads -= 1
        while self.left and reads > 0:
            tid = self.left.pop()
            thread = self.threads.get(tid)
            if thread is None:
                thread = self.threads[tid] = _Thread(f"{self.folder}/{tid}", self._shelf)
            try:
                reads -= self._read(tid, thread, clock())
            except (OSError, ValueError):
                self._forget([tid])
                reads -= 1
        if not self.left:
            self._end()
        return reads

    def _begin(self, now_s: float, count: int | None, every: bool) -> None:
        self.passes, self.began_s, self.blocked = self.passes + 1, now_s, False
        here = self._list(count)
        if not every:
            parked = (tid for tid, thread in self.threads.items() if thread.parked >= PARKED_PASSES)
            here.difference_update([tid for tid in parked if (tid + self.passes) % PARKED_EVERY])
        self.left = list(here)

    def _list(self, count: int | None) -> set[int]:
        """All threads: as many as known, and each of them answered, are the same as before, or soon found not to be."""
        if len(self.threads) == count and self.passes - self._listed < LIST_EVERY:
            return set(self.threads)
        try:
            here = {int(name) for name in os.listdir(self.folder)}
        except (OSError, ValueError):
            here = set()
        self._listed = self.passes
        self._forget(self.threads.keys() - here)
        return here

    def close(self) -> None:
        """Keep no file open."""
        self._forget(list(self.threads))

    def _forget(self, tids: Iterable[int]) -> None:
        for tid in tids:
            self.threads.pop(tid).schedstat.close()
            self._names = None

    def _read(self, tid: int, thread: _Thread, now_s: float) -> int:
        reads = 1
        rates = thread.counters.rates(now_s, run_and_wait(thread.schedstat.read(128)))
        thread.run, thread.wait = rates
        thread.parked = 0 if thread.run or thread.wait or thread.run is None else thread.parked + 1
        if thread.name is None:
            thread.name = decode(self._slurp(f"{self.folder}/{tid}/comm", 64).rstrip(b"\n"))
            self._names = None
            reads += 1
        if thread.busy:
            raw = self._slurp(f"{self.folder}/{tid}/status", 16384)
            thread.switching = thread.switches.rates(now_s, switches(raw))
            self.blocked |= line(raw, b"\nState:").startswith(b"D")
            reads += 1
        return reads

    def _slurp(self, path: str, size: int) -> bytes:
        return self._shelf.gate.ask(path, slurp, path, size)

    def _end(self) -> None:
        measured = [thread for thread in self.threads.values() if thread.run is not None]
        busy = [thread for thread in measured if thread.busy]
        self.values = {
            "busy_threads": len(busy) if measured else None,
            "run_wait_percent": waited_percent(
                sum([thread.run or 0.0 for thread in measured]) if measured else None,
                sum([thread.wait or 0.0 for thread in measured]) if measured else None,
            ),
            "backward_percent": sum([thread.run or 0.0 for thread in measured if thread.backward]) / 1e7
            if measured
            else None,
            "thread_names": self._named(),
        }
        main = self.threads.get(self.identity.pid)
        asked, forced = ([one.switching[way] or 0.0 for one in busy if one is not main] for way in (0, 1))
        self.others = (sum(asked), sum(forced))

    def _named(self) -> tuple[tuple[str, int], ...]:
        """How many threads have which name, the most first; a name never changes while its thread is known."""
        if self._names is None:
            names = Counter(thread.name for thread in self.threads.values() if thread.name is not None)
            self._names = tuple(sorted(names.items(), key=lambda named: (-named[1], named[0]))[:MOST_NAMES])
        return self._names


class ThreadSampler:
    """Samples the threads of the processes it is given, in turn, within a budget of reads."""

    def __init__(
        self, root: str = "/proc", clock: Callable[[], float] = time.monotonic, shelf: FdCache | None = None
    ) -> None:
        self._root, self._clock, self._shelf = root, clock, shelf or FdCache(root)
        self._families: dict[Identity, _Family] = {}
        self._turns: deque[Identity] = deque()

    def sample(self, wanted: Counts, opened: Counts) -> None:
        """One tick: all threads of what is open, and as many of the others as the budget allows."""
        here = {**wanted, **opened}
        for identity in self._families.keys() - here.keys():
            self._families.pop(identity).close()
        for identity in sorted(here.keys() - self._families.keys()):
            self._families[identity] = _Family(identity, self._root, self._shelf)
            self._turns.append(identity)
        self._turns = deque(identity for identity in self._turns if identity in here)
        for identity, count in opened.items():
            self._families[identity].step(READS_OPEN, self._clock, count, every=True)
        reads, now_s = READS_A_TICK, self._clock()
        for _ in range(len(self._turns)):
            family = self._families[self._turns[0]]
            if family.identity not in opened and family.due(now_s):
                if reads <= 0:
                    break
                reads = family.step(reads, self._clock, here[family.identity])
                if family.left:
                    break  # its pass goes on at the next tick
            self._turns.rotate(-1)

    def blocked(self, identity: Identity) -> bool:
        """Whether a busy thread of it was in state D when it was last sampled."""
        family = self._families.get(identity)
        return family is not None and family.blocked

    def values(self, identity: Identity, main: Values, threads: int | None) -> Values:
        """Fields of a Process from its threads; where none but the main one is sampled, from what that one shows."""
        family = self._families.get(identity)
        sampled = {} if family is None else family.values
        if sampled.get("busy_threads") is not None:
            return sampled
        percent, waited = main.get("main_thread_percent"), main.get("main_run_wait_percent")
        busy = None
        if threads == 1 and percent is not None and waited is not None:
            wanted = 100 * percent / (100 - waited) if waited < 100 else 100.0
            busy = int(wanted >= 100 * BUSY)
        backward = 0.0 if threads == 1 else None
        return {**sampled, "busy_threads": busy, "run_wait_percent": waited, "backward_percent": backward}

    def switching(self, identity: Identity) -> tuple[float, float] | None:
        """Context switches a second of its busy threads other than the main one: asked for, forced on them."""
        family = self._families.get(identity)
        return None if family is None else family.others
