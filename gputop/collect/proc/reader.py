"""All processes, read from /proc in tiers: closely where GPUs or work are, little elsewhere."""

from __future__ import annotations

import errno
import math
import os
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace

from gputop.collect.jobs.ancestry import AGENT, FRAMEWORKS, LOADER, CommandGroup, Parentage
from gputop.collect.kernel_files import FdCache, slurp, why
from gputop.collect.lane import LaneGate
from gputop.collect.proc.cgroup import CgroupPath
from gputop.collect.proc.gpu_processes import ProcessTable, denied_io, lost, unlisted, with_shares
from gputop.collect.proc.metadata import WEIGHT_FILLS
from gputop.collect.proc.metadata_lane import MetadataLane, MetadataRequest
from gputop.collect.proc.proc_files import QUOTA_FILLS, READINGS, STAT_FILLS, Scale
from gputop.collect.proc.process_state import RETRY_S, ProcessState
from gputop.collect.proc.scan_schedule import ScanTurns, TrackingBudget
from gputop.collect.proc.threads import THREAD_FILLS
from gputop.collect.proc.tracked import DetailReader
from gputop.collect.rates import SHORTEST_S
from gputop.collect.step_meters import METER_FILLS
from gputop.model import Cgroup, Identity, Note, Process, metrics
from gputop.model.metric import check_filled
from gputop.safe.identity import initial_pid_namespace, parse_stat
from gputop.source import Interest

__all__ = ["ProcessReader", "ProcessTable", "with_shares"]

FILLS = (
    *STAT_FILLS, *QUOTA_FILLS, *WEIGHT_FILLS, *THREAD_FILLS, *METER_FILLS,
    *(name for reading in READINGS for name in reading.fills),
)  # fmt: skip
check_filled((metric.name for metric in metrics(Process)), FILLS)

LIST_EVERY_S = 5.0  # even if no process seems to have been born: a container may have its /proc/loadavg made up
ASK_EVERY_S = 3.0  # whether something is to be named again
MACHINE_EVERY_S = 10.0  # what may change about the machine itself


def since_boot() -> float:
    """Seconds since boot, as start times count them: the time asleep is included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class ProcessReader:
    """Reads all processes again and again; only its own lane may call it."""

    def __init__(
        self,
        root: str = "/proc",
        clock: Callable[[], float] = time.monotonic,
        names: MetadataLane | None = None,
        *,
        sys: str = "/sys",
        boot: Callable[[], float] = since_boot,
        scale: Scale | None = None,
        cpu_clock: Callable[[], float] = time.thread_time,
    ) -> None:
        self._root, self._sys, self._clock, self._boot = root, sys, clock, boot
        self._names = names or MetadataLane(root, clock)
        self.gate = LaneGate()
        self._details = DetailReader(root, sys, clock, FdCache(root, self.gate))
        self._scale = scale or Scale()
        self._scale_s: float | None = None
        self._turns = ScanTurns(self.gate, root)
        self._budget, self._cpu_clock = TrackingBudget(), cpu_clock
        self._private = not initial_pid_namespace(root)
        self._seen: dict[int, ProcessState] = {}
        self._pids, self._tasks, self._listed_s = set[int](), list[bytes](), 0.0
        self._tree, self._loader_parents, self._agents = Parentage({}), frozenset[int](), frozenset[int]()
        self._tree_changed = True
        self._tracked: dict[int, ProcessState] = {}
        self._napping, self._weighed = set[int](), set[int]()
        self._asked, self._asked_s = set[int](), 0.0
        self._cgroups: tuple[Cgroup, ...] = ()
        self._unreadable_s: dict[int, float] = {}
        self._absent: dict[int, float] = {}
        self._driver_named = False  # any pid so far
        self._lost: str | None = None  # what kept us from reading in this tick, other than the process's own state
        self._table = ProcessTable.EMPTY

    def read(self, gpu_pids: Collection[int], interest: Interest) -> ProcessTable:
        """One sample: new processes and those that matter now, a share of the others; the rest as they were."""
        now_s = self._clock()
        if self._table.processes and 0 <= now_s - self._table.taken_s < SHORTEST_S:
            return self._table
        self._lost = None
        self._renew_scale(now_s)
        try:
            pids = self._list(now_s)
        except OSError as error:
            return replace(self._table, notes=(lost(error.strerror or str(error)),))
        # workers that hardly work, and that are not on the screen
        resting = self._tracked.keys() - interest.pids - interest.sight - self._weighed
        self._napping = {pid for pid in resting if not interest.every_process and self._tracked[pid].naps(now_s)}
        looked = self._look_at_all(pids, interest, now_s)
        named = self._take_names()  # first: what is followed closely is read by its cgroup
        self._follow(gpu_pids, interest, looked, now_s)
        self._ask_names(interest, looked, now_s)
        for seen in dict.fromkeys((*looked, *self._awake(), *named)):
            seen.made(None if seen.uid is None else self._names.user(seen.uid), self._scale)
        # a pid that was missing when the driver named some for the first time did not end a moment ago
        since_s = now_s if self._driver_named else -math.inf
        self._driver_named = self._driver_named or bool(gpu_pids)
        self._absent = {pid: self._absent.get(pid, since_s) for pid in gpu_pids if pid not in self._seen}
        self._table = self._made(now_s, len(pids))
        return self._table

    def _made(self, now_s: float, count: int) -> ProcessTable:
        return ProcessTable(
            taken_s=now_s,
            processes=tuple([seen.process for seen in self._seen.values() if seen.process is not None]),
            count=count,
            cgroups=self._cgroups,
            notes=self._notes(),
            absent=self._absent,
            private=self._private,
            hidden=1 not in self._seen,
        )

    def _renew_scale(self, now_s: float) -> None:
        if self._scale_s is None or now_s - self._scale_s >= MACHINE_EVERY_S:
            self._scale = self._scale.renewed(self._scale_s is None, self._boot(), self._root, self._sys, self._slurp)
            self._scale_s = now_s

    def _list(self, now_s: float) -> set[int]:
        """All pids: those of the last sample if no task was born and none has ended; the kernel counts both."""
        try:
            tasks = self._slurp(f"{self._root}/loadavg").split()[3:]
        except OSError:
            tasks = []
        tasks = [tasks[0].rpartition(b"/")[2], tasks[1]] if len(tasks) == 2 else []
        if not tasks or tasks != self._tasks or now_s - self._listed_s >= LIST_EVERY_S:
            self._pids = {int(name) for name in os.listdir(self._root) if name.isdigit()}
            if not self._pids:
                raise FileNotFoundError(errno.ENOENT, f"there is nothing in {self._root}")
            self._tasks, self._listed_s = tasks, now_s
            for pid in self._seen.keys() - self._pids:
                self._drop(pid)
        return self._pids

    def _awake(self) -> list[ProcessState]:
        """The followed processes, less those that nap through this tick."""
        return [seen for pid, seen in self._tracked.items() if pid not in self._napping]

    def _look_at_all(self, pids: set[int], interest: Interest, now_s: float) -> list[ProcessState]:
        """Read the stat of the new, the followed, and the sleepers that are due; those that have changed."""
        if self._unreadable_s:
            self._unreadable_s = {pid: retry_s for pid, retry_s in self._unreadable_s.items() if retry_s > now_s}
        new = pids - self._seen.keys() - self._unreadable_s.keys()
        looked = [seen for pid in new if (seen := self._look(pid, now_s)) is not None]
        sleepers = self._turns.take(now_s, interest, self._followed_cores(), self._scale.cpu_count)
        for known in (*self._awake(), *sleepers):
            try:
                raw = known.stat_record(self.gate)
            except OSError as error:
                self._fail(known.identity.pid, error, now_s)
                self._turns.put(known)
                # its open file is of the process that has ended; another may have the pid already
                if known.gone and (heir := self._look(known.identity.pid, now_s)) is not None:
                    looked.append(heir)
                continue
            if raw == known.raw and known.rest(now_s):
                self._turns.put(known)
                continue
            seen = self._take(known.identity.pid, raw, now_s)
            if seen is not None:
                looked.append(seen)
        for seen in looked:
            self._turns.put(seen)
        return looked

    def recover(self) -> None:
        """Begin afresh after a read that was given up anywhere: no process has lost its turn."""
        for seen in self._seen.values():
            self._turns.put(seen)

    def _slurp(self, path: str) -> bytes:
        return self.gate.ask(path, slurp, path)

    def _followed_cores(self) -> float:
        return sum(seen.values["cpu_percent"] or 0.0 for seen in self._tracked.values()) / 100

    def _look(self, pid: int, now_s: float) -> ProcessState | None:
        """Read the stat of a process; None if it has ended or may not be read."""
        try:
            raw = self._slurp(f"{self._root}/{pid}/stat")
        except OSError as error:
            self._fail(pid, error, now_s)
            return None
        return self._take(pid, raw, now_s)

    def _fail(self, pid: int, error: OSError, now_s: float) -> None:
        reason = why(error)
        if reason == "gone":
            self._drop(pid)
        elif reason == "denied":
            self._drop(pid)
            self._unreadable_s[pid] = now_s + RETRY_S
        elif reason == "stale":
            if (silent := self._seen.get(pid)) is not None:
                silent.mute()
                silent.made(None if silent.uid is None else self._names.user(silent.uid), self._scale)
        else:
            self._lost = error.strerror or str(error)

    def _take(self, pid: int, raw: bytes, now_s: float) -> ProcessState | None:
        """Take in a stat record: of the process known by this pid, or of another one that has it now."""
        seen = self._seen.get(pid)
        stat = seen.stat if seen is not None and raw == seen.raw else parse_stat(raw)
        if stat is None or stat.started_ticks is None:  # no stat record at all
            self._drop(pid)
            self._unreadable_s[pid] = now_s + RETRY_S
            return None
        if seen is None or seen.identity.started_ticks != stat.started_ticks:
            self._drop(pid)
            seen = self._seen[pid] = ProcessState(pid, self._root, stat, stat.started_ticks)
            self._tree_changed = True
        elif (stat.parent_pid, stat.comm) != (seen.stat.parent_pid, seen.stat.comm):
            self._tree_changed, self._asked_s = True, 0.0
        seen.look(raw, stat, self._clock(), self._boot(), self._scale)
        return seen

    def _drop(self, pid: int) -> None:
        seen = self._seen.pop(pid, None)
        if seen is not None:
            seen.gone = True
            seen.leave()
            self._tracked.pop(pid, None)
            self._names.forget(seen.identity)
            self._tree_changed = True

    def _follow(
        self, gpu_pids: Collection[int], interest: Interest, looked: Iterable[ProcessState], now_s: float
    ) -> None:
        """Choose which processes are tracked closely, and read them."""
        if self._tree_changed:
            self._renew_tree()
        shown = interest.pids | interest.sight
        # ranks that wait for each other without a GPU or a loader use no CPU to speak of
        ranks = {pid for pid, seen in self._tracked.items() if (seen.named.get("world_size") or 0) > 1}
        roots = {pid for pid in gpu_pids if self._vouched(pid)} | self._loader_parents | self._agents
        if interest.families:
            members = {pid: CommandGroup(seen.stat.comm, seen.stat.group) for pid, seen in self._seen.items()}
            for pid in interest.families & self._seen.keys():
                shown = shown | self._tree.family(pid, members)
        chosen = self._tree.kin(roots) | (self._seen.keys() & {*gpu_pids, *shown, *ranks})
        chosen.update(seen.identity.pid for seen in (*looked, *self._tracked.values()) if seen.busy_until_s > now_s)
        above = {up for pid in roots for up in self._tree.above(pid)}
        needed = self._seen.keys() & {*roots, *above, *gpu_pids, *shown, *ranks}
        chosen, changed = self._budget.bounded(chosen, needed, self._seen, now_s)
        for pid in changed & self._seen.keys():
            self._seen[pid].sampled = pid in self._budget.left_out
            self._seen[pid].rename()
        for pid in self._tracked.keys() - chosen:
            left = self._tracked.pop(pid)
            left.leave()
            self._turns.put(left)
        began_s = self._cpu_clock()
        for pid in chosen - self._napping:
            seen = self._seen[pid] if self._seen[pid].looked_s >= now_s else self._look(pid, now_s)
            if seen is not None:
                self._tracked[pid] = seen
                self._details.read(seen, pid in interest.pids, pid in shown, self._place(seen), self._scale)
        self._budget.spent(self._cpu_clock() - began_s, len(self._tracked), now_s)
        trainers = {pid: seen for pid, seen in self._tracked.items() if self._trains(seen, gpu_pids)}
        opened = {pid: seen for pid, seen in self._tracked.items() if pid in interest.pids}
        self._details.sample(trainers.values(), opened.values(), self._awake())
        self._cgroups = self._details.confined(filter(None, map(self._place, trainers.values())))
        self._weighed = trainers.keys() | shown

    def _renew_tree(self) -> None:
        """Update the process tree, and which processes have loaders or an agent."""
        self._tree = Parentage({pid: seen.stat.parent_pid or 0 for pid, seen in self._seen.items()})
        loaders = [seen for seen in self._seen.values() if seen.stat.comm.startswith(LOADER)]
        self._loader_parents = frozenset(seen.stat.parent_pid or 0 for seen in loaders)
        self._agents = frozenset(pid for pid, seen in self._seen.items() if seen.stat.comm == AGENT)
        self._tree_changed = False

    def _vouched(self, pid: int) -> bool:
        """Whether a pid of the driver is the process that has it here; in a private namespace it must show it."""
        seen = self._seen.get(pid)
        return seen is not None and (not self._private or "cuda" in seen.named.get("libraries", ()))

    def _place(self, seen: ProcessState) -> CgroupPath | None:
        dossier = self._names.known(seen.identity)
        return None if dossier is None else dossier.place

    def _trains(self, seen: ProcessState, gpu_pids: Collection[int]) -> bool:
        """Whether its threads are worth their reads; its children inherit its rank, not its work."""
        pid, named = seen.identity.pid, seen.named
        if pid in gpu_pids or pid in self._loader_parents:
            return True
        if seen.stat.comm.startswith(LOADER):
            return False
        parent = self._tracked.get(seen.stat.parent_pid or 0)
        theirs = parent is not None and parent.named.get("rank") == named.get("rank")
        return not FRAMEWORKS.isdisjoint(named.get("libraries", ())) or (named.get("rank") is not None and not theirs)

    def _ask_names(self, interest: Interest, looked: Iterable[ProcessState], now_s: float) -> None:
        """Ask the names lane about those followed: as soon as there are others, and now and then."""
        if now_s - self._asked_s < ASK_EVERY_S and self._tracked.keys() == self._asked and not interest.every_process:
            return
        wanted = []
        for pid, seen in self._tracked.items():
            shm = pid in self._weighed  # a loader has that of its trainer
            weigh = shm or seen.stat.parent_pid in self._loader_parents
            wanted.append(MetadataRequest(seen.identity, seen.stat.comm, weigh=weigh, shm=shm))
        if interest.every_process:
            others = dict.fromkeys((*looked, *(seen for seen in self._seen.values() if not seen.named)))
            wanted += [
                MetadataRequest(seen.identity, seen.stat.comm, deep=False) for seen in others if not seen.tracked
            ]
        self._names.want(wanted)
        self._asked, self._asked_s = set(self._tracked), now_s

    def _take_names(self) -> list[ProcessState]:
        """Take what the names lane has found since; the processes it is about."""
        named = []
        for news in self._names.fresh():
            if isinstance(news, Identity):
                known, dossier = self._seen.get(news.pid), self._names.known(news)
                if known is not None and known.identity == news and dossier is not None:
                    known.rename(dossier.values)
                    named.append(known)
            else:
                users = [seen for seen in self._seen.values() if seen.uid == news]
                for seen in users:
                    seen.rename()
                named += users
        return named

    def _notes(self) -> tuple[Note, ...]:
        own = os.geteuid()
        others = [seen.followed for seen in self._tracked.values() if seen.uid != own]
        denied = sum(followed is not None and followed.troubles.get("io") == "denied" for followed in others)
        hidden = (unlisted(),) if 1 not in self._seen else ()
        return (*hidden, *((denied_io(denied),) if denied else ()), *((lost(self._lost),) if self._lost else ()))
