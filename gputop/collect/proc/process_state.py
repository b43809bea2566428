"""What is kept of one process between samples, more of it while the process is tracked."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable
from typing import Literal

from gputop.collect.kernel_files import CachedFile, FdCache, slurp, why
from gputop.collect.lane import LaneGate
from gputop.collect.proc.proc_files import STAT_FILLS, ProcFile, Scale, Values, missing, stat_values
from gputop.collect.rates import Counters
from gputop.model import Identity, Missing, Process, Reason
from gputop.safe.identity import Stat

BLOCKED_OVER_S = 10.0
FEWEST_LOOKS = 3  # a share of fewer says nothing
RETRY_S = 30.0  # a file that was refused is asked for again after this


class TrackedFiles:
    """The files of one process, those of every tick kept open; their values, and what they refuse."""

    def __init__(self, root: str, shelf: FdCache) -> None:
        self.stat = CachedFile(f"{root}/stat", shelf)
        self.fields: Values = {}  # of the Process: every reading updates its own, and unsets them when it fails
        self.troubles: dict[str, Reason] = {}  # by file
        self.shown = False  # it is on the screen
        self.slow_s = 0.0  # when the slow files are due
        self.main_switches: tuple[float | None, float | None] = (None, None)
        self._root, self._shelf = root, shelf
        self._files: dict[str, CachedFile] = {}
        self._counters: dict[str, Counters] = {}
        self._refused_s: dict[str, float] = {}
        self._looks: deque[tuple[float, bool]] = deque()
        self._blocked = 0  # of these samples

    def read(self, reading: ProcFile, now_s: float, scale: Scale) -> None:
        """Read one of its files; what does not work is remembered with its reason."""
        if now_s < self._refused_s.get(reading.file, 0.0):
            return
        try:
            counters = self._counters.get(reading.file)
            if counters is None:
                counters = self._counters[reading.file] = Counters()
            self.fields.update(reading.values(self._raw(reading), counters, now_s, scale))
            if self.troubles:
                self.troubles.pop(reading.file, None)
        except OSError as error:
            self._refuse(reading, why(error), now_s)
        except (ValueError, IndexError):
            self._refuse(reading, "unsupported", now_s)

    def _raw(self, reading: ProcFile) -> bytes:
        if reading.when != "tick":
            path = f"{self._root}/{reading.file}"
            return self._shelf.gate.ask(path, reading.take, path, reading.size)
        file = self._files.get(reading.file)
        if file is None:
            file = self._files[reading.file] = CachedFile(f"{self._root}/{reading.file}", self._shelf)
        return file.read(reading.size)

    def _refuse(self, reading: ProcFile, error: Reason | Literal["gone"], now_s: float) -> None:
        self.fields.update(dict.fromkeys(reading.fills))
        # gone: the process has ended, or this kernel has no such file
        here: Reason = "unsupported" if os.path.exists(f"{self._root}/stat") else "lost"
        reason = here if error == "gone" else error
        self.troubles[reading.file] = reason
        if reason in ("denied", "unsupported"):
            self._refused_s[reading.file] = now_s + RETRY_S

    def watch(self, now_s: float, blocked: bool) -> bool:
        """Remember whether it was seen in state D; whether it moves anything."""
        self._looks.append((now_s, blocked))
        self._blocked += blocked
        while now_s - self._looks[0][0] > BLOCKED_OVER_S:
            self._blocked -= self._looks.popleft()[1]
        count = len(self._looks)
        self.fields["blocked_percent"] = 100 * self._blocked / count if count >= FEWEST_LOOKS else None
        return bool(self.fields.get("read_bytes_per_s") or self.fields.get("write_bytes_per_s"))

    def show(self, shown: bool, only: Iterable[ProcFile], now_s: float) -> None:
        """It comes on the screen, and all is read; or leaves it, and what is read `only` then is gone."""
        self.shown = shown
        if shown:
            self.slow_s = min(self.slow_s, now_s)
            return
        for reading in only:
            self.fields.update(dict.fromkeys(reading.fills))
            self.troubles.pop(reading.file, None)

    def bare(self) -> None:
        """It has no more values than its stat record."""
        self.fields.clear()
        self.troubles.clear()

    def missing(self, delays: bool) -> tuple[Missing, ...]:
        """What is unknown of it and why; `delays`: whether the kernel keeps block delays."""
        troubles = tuple(self.troubles.items())
        return missing(troubles if delays else (*troubles, ("io_wait_percent", "unsupported")))

    def close(self) -> None:
        """Keep no file open."""
        for file in (self.stat, *self._files.values()):
            file.close()


BUSY_PERCENT = 5.0  # of one core
BUSY_FOR_S = 10.0  # how long it counts as busy after it was
NAP_S = 1.5  # between two samples of a followed process that hardly works, at least
DEEP_LOOKS = 3  # at which it did not move, and it sleeps soundly
BORN_S, RESTING = 1.5, 0.01  # younger, or of more CPU time than this share of its age: read again at once
YOUNG_S = 10.0  # until then its owner may change
AGE_LATE_S, AGE_LATE = 30.0, 0.02  # how old the age of a sleeper may be, or which share of it
NOTHING: Values = {}
_SILENT = tuple(Missing(metric=name, reason="stale", unlock="its stat record does not answer") for name in STAT_FILLS)


class ProcessState:
    """One process between its first sample and its end. There are thousands: what only a few need is in `Followed`."""

    __slots__ = (
        "_counters", "_made_s", "_still", "age_s", "busy_until_s", "followed", "gone", "identity", "looked_s", "named",
        "process", "raw", "root", "sampled", "silent", "stat", "uid", "unsettled", "values", "waiting",
    )  # fmt: skip

    def __init__(self, pid: int, root: str, stat: Stat, started_ticks: int) -> None:
        self.identity = Identity(pid, started_ticks)
        self.root = f"{root}/{pid}"
        self.stat, self.raw = stat, b""
        self.uid: int | None = None
        self.age_s = self.looked_s = self.busy_until_s = 0.0
        self.waiting = False  # for its turn
        self.unsettled = False  # worth another sample at once
        self.gone = False
        self.sampled = False  # it would be followed, but too many are
        self.silent = False  # its stat record does not answer
        self.values: Values = {}  # fields of the Process from stat
        self.named: Values = NOTHING  # those that the names lane found
        self.followed: TrackedFiles | None = None
        self.process: Process | None = None
        self._made_s = 0.0
        self._still = 0  # samples in a row in which nothing had moved, and its Process says so
        self._counters = Counters()

    @property
    def tracked(self) -> bool:
        """Whether it is followed closely."""
        return self.followed is not None

    def stat_record(self, gate: LaneGate) -> bytes:
        """Its stat record as it is now."""
        if self.followed is not None:
            return self.followed.stat.read()
        path = f"{self.root}/stat"
        return gate.ask(path, slurp, path)

    def look(self, raw: bytes, stat: Stat, now_s: float, boot_s: float, scale: Scale) -> None:
        """Take in its stat record."""
        self.silent = False
        self.age_s = max(0.0, boot_s - self.identity.started_ticks / scale.ticks_per_s)
        first, self.looked_s = not self.raw, now_s
        # the owner changes between fork and exec, at a login say; a followed process is read too often to ask always
        if raw != self.raw and (not self.tracked or stat.comm != self.stat.comm or self.age_s < YOUNG_S):
            self.uid = self._owner()
        self.stat = stat
        values = stat_values(self.stat, self._counters, now_s, scale)
        moved = raw != self.raw or values != self.values or values["cpu_percent"]
        self._still = 0 if moved else self._still + 1
        self.raw, self.values = raw, values
        works = (values["cpu_percent"] or 0) > BUSY_PERCENT or (values["major_faults_per_s"] or 0) > 0
        if works or self.stat.state == "D":
            self.busy_until_s = now_s + BUSY_FOR_S
        # at the first sample all there is to go by is its age, and its CPU time on the whole
        self.unsettled = first and (self.age_s < BORN_S or (values["cpu_time_s"] or 0) > RESTING * self.age_s)

    def mute(self) -> None:
        """Its stat record does not answer: its values are unknown, as they may have changed since."""
        self.silent, self.raw, self._still = True, b"", 0
        self.values = dict.fromkeys(self.values)
        if self.followed is not None:
            self.followed.bare()

    @property
    def deep(self) -> bool:
        """Whether it sleeps soundly: it has not moved for long."""
        return self._still >= DEEP_LOOKS

    def naps(self, now_s: float) -> bool:
        """Whether it is followed, has hardly worked for a while, and was read a moment ago."""
        known = self.followed is not None and self.followed.fields.get("blocked_percent") is not None
        return known and now_s >= self.busy_until_s and now_s - self.looked_s < NAP_S

    def rest(self, now_s: float) -> bool:
        """Take in that its stat record has not changed since the last sample; whether its Process is still right."""
        late_s = now_s - self._made_s
        if not self._still or self.tracked or late_s >= max(AGE_LATE_S, AGE_LATE * self.age_s):
            return False
        self.looked_s = self._counters.taken_s = now_s
        self._still += 1
        return True

    def follow(self, shelf: FdCache) -> TrackedFiles:
        """Begin to follow it closely, or go on."""
        if self.followed is None:
            self.followed = TrackedFiles(self.root, shelf)
        return self.followed

    def leave(self) -> None:
        """Forget what is only read of processes that are followed closely; no file of it stays open."""
        self._still = 0
        if self.followed is not None:
            self.followed.close()
            self.followed = None

    def rename(self, named: Values | None = None) -> None:
        """Take in what the names lane found, about it or its user; its Process is made again in its next sample."""
        self._still = 0
        if named is not None:
            self.named = named
            if self.followed is not None:
                self.followed.slow_s = 0.0  # its limits are those of its cgroup

    def watch(self, now_s: float, blocked: bool) -> None:
        """Remember whether it was seen in state D, and whether it moved anything."""
        if self.followed is not None and self.followed.watch(now_s, blocked or self.stat.state == "D"):
            self.busy_until_s = now_s + BUSY_FOR_S

    def made(self, user: str | None, scale: Scale) -> Process:
        """The process as it is known now."""
        self._made_s = self.looked_s
        more = {
            "pid": self.identity.pid,
            "started_ticks": self.identity.started_ticks,
            "parent_pid": self.stat.parent_pid or 0,
            "group": self.stat.group,
            "user": user,
            "uid": self.uid,
            "name": self.stat.comm,
            "state": self.stat.state,
            "age_s": self.age_s,
            "sampled": self.sampled,
        }
        if self.followed is None and not self.silent:
            self.process = Process(**{**self.values, **self.named, **more})
        elif self.followed is None:
            missing = (*self.named.get("missing", ()), *_SILENT)
            self.process = Process(**{**self.values, **self.named, **more, "missing": missing})
        else:
            missing = (*self.named.get("missing", ()), *self.followed.missing(scale.delays_of(self.stat)))
            missing = (*missing, *_SILENT) if self.silent else missing
            self.process = Process(**{**self.values, **self.named, **self.followed.fields, **more, "missing": missing})
        return self.process

    def _owner(self) -> int | None:
        try:
            return os.stat(self.root).st_uid  # the effective uid, whatever the files below it say
        except OSError:
            return self.uid
