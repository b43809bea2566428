"""What is remembered of one process from look to look, and the Process last made of it."""

from __future__ import annotations

import os
from collections import deque
from typing import Literal

from gputop.collect.files import slurp, why
from gputop.collect.processes.readings import Reading, Values, missing, stat_values
from gputop.collect.processes.scale import Scale
from gputop.collect.rates import Counters
from gputop.model import Identity, Missing, Process, Reason
from gputop.safe.identity import Stat

BUSY_PERCENT = 5.0  # of one core
BUSY_FOR_S = 10.0  # how long it counts as busy after it was
DEEP_LOOKS = 3  # at which it did not move, and it sleeps soundly
BLOCKED_OVER_S = 10.0
FEWEST_LOOKS = 3  # a share of fewer says nothing
RETRY_S = 30.0  # a file that was refused is asked for again after this
BORN_S, RESTING = 1.5, 0.01  # younger, or of more CPU time than this share of its age: looked at again at once
YOUNG_S = 10.0  # until then it may be about to become somebody else's
AGE_LATE_S, AGE_LATE = 30.0, 0.05  # how old the age of a sleeper may be, or which share of it


class Seen:
    """One process between its first look and its end."""

    def __init__(self, pid: int, root: str, stat: Stat, started_ticks: int) -> None:
        self.identity = Identity(pid, started_ticks)
        self.root = f"{root}/{pid}"
        self.stat_file = f"{root}/{pid}/stat"
        self.stat, self.raw = stat, b""
        self.uid: int | None = None
        self.age_s = 0.0
        self.looked_s = 0.0
        self.busy_until_s = self.slow_s = 0.0
        self.main_switches: tuple[float | None, float | None] = (None, None)
        self.tracked = False  # followed closely
        self.waiting = False  # for its turn
        self.unsettled = False  # worth another look at once
        self.gone = False
        self.fields: Values = {}  # of the Process: every source updates its own, and unsets them when it fails
        self.values: Values = {}  # those from stat
        self.named: Values = {}  # those that the names lane found
        self.troubles: dict[str, Reason] = {}
        self.process: Process | None = None
        self._made_s = 0.0
        self._still = 0  # looks in a row at which nothing had moved, and its Process says so
        self._refused_s: dict[str, float] = {}
        self._counters = {"stat": Counters()}
        self._looks: deque[tuple[float, bool]] = deque()

    def look(self, raw: bytes, stat: Stat, now_s: float, boot_s: float, scale: Scale) -> None:
        """Take in its stat record."""
        self.age_s = max(0.0, boot_s - self.identity.started_ticks / scale.ticks_per_s)
        first, self.looked_s = not self.raw, now_s
        # the owner changes between fork and exec, at a login say; who is followed is looked at too often to ask always
        if raw != self.raw and (not self.tracked or stat.comm != self.stat.comm or self.age_s < YOUNG_S):
            self.uid = self._owner()
        self.stat = stat
        values = stat_values(self.stat, self._counters["stat"], now_s, scale)
        moved = raw != self.raw or values != self.values or values["cpu_percent"]
        self._still = 0 if moved else self._still + 1
        self.raw, self.values = raw, values
        self.fields.update(values)
        works = (values["cpu_percent"] or 0) > BUSY_PERCENT or (values["major_faults_per_s"] or 0) > 0
        if works or self.stat.state == "D":
            self.busy_until_s = now_s + BUSY_FOR_S
        # at the first look all there is to go by is its age, and its CPU time on the whole
        self.unsettled = first and (self.age_s < BORN_S or (values["cpu_time_s"] or 0) > RESTING * self.age_s)

    @property
    def deep(self) -> bool:
        """Whether it sleeps soundly: it has not moved for long."""
        return self._still >= DEEP_LOOKS

    def rest(self, now_s: float) -> bool:
        """Take in that its stat record is the one of the last look; whether the Process made then still says it all."""
        late_s = now_s - self._made_s
        if not self._still or self.tracked or late_s >= max(AGE_LATE_S, AGE_LATE * self.age_s):
            return False
        self.looked_s = self._counters["stat"].taken_s = now_s
        self._still += 1
        return True

    def read(self, reading: Reading, now_s: float, scale: Scale) -> None:
        """Read one more of its files; what does not work is remembered with its reason."""
        if now_s < self._refused_s.get(reading.file, 0.0):
            return
        try:
            raw = slurp(f"{self.root}/{reading.file}", reading.size)
            counters = self._counters.setdefault(reading.file, Counters())
            self.fields.update(reading.values(raw, counters, now_s, scale))
            if self.troubles:
                self.troubles.pop(reading.file, None)
        except OSError as error:
            self._refuse(reading, why(error), now_s)
        except (ValueError, IndexError):
            self._refuse(reading, "unsupported", now_s)

    def watch(self, now_s: float, blocked: bool) -> None:
        """Remember whether it was seen in state D, and whether it moved anything."""
        self._looks.append((now_s, blocked or self.stat.state == "D"))
        while now_s - self._looks[0][0] > BLOCKED_OVER_S:
            self._looks.popleft()
        if self.fields.get("read_bytes_per_s") or self.fields.get("write_bytes_per_s"):
            self.busy_until_s = now_s + BUSY_FOR_S
        count = len(self._looks)
        blocked_looks = sum([blocked for _, blocked in self._looks])
        self.fields["blocked_percent"] = 100 * blocked_looks / count if count >= FEWEST_LOOKS else None

    def bare(self) -> None:
        """Keep only what everybody's stat tells, and the names."""
        self.fields = {**self.values, **self.named}
        self.troubles.clear()

    def leave(self) -> None:
        """Forget what is only read of processes that are followed closely."""
        self.tracked, self._still = False, 0
        self.bare()
        self._looks.clear()
        self._counters = {"stat": self._counters["stat"]}

    def rename(self, named: Values | None = None) -> None:
        """Take in what the names lane found, about it or about its user."""
        self._still = 0
        if named is not None:
            for name in self.named.keys() - named.keys():
                self.fields.pop(name, None)
            self.named = named
            self.fields.update(named)
            self.slow_s = 0.0  # its limits are those of its cgroup

    def made(self, user: str | None, scale: Scale) -> Process:
        """The process as it is known now."""
        self._made_s = self.looked_s
        if self.tracked:
            self.fields["missing"] = (*self.named.get("missing", ()), *self._missing(scale))
        self.process = Process(
            pid=self.identity.pid,
            started_ticks=self.identity.started_ticks,
            parent_pid=self.stat.parent_pid or 0,
            user=user,
            uid=self.uid,
            name=self.stat.comm,
            state=self.stat.state,
            age_s=self.age_s,
            **self.fields,
        )
        return self.process

    def _missing(self, scale: Scale) -> tuple[Missing, ...]:
        troubles = tuple(self.troubles.items())
        if not scale.delays_of(self.stat):
            troubles += (("io_wait_percent", "unsupported"),)
        return missing(troubles)

    def _owner(self) -> int | None:
        try:
            return os.stat(self.root).st_uid  # the effective uid, whatever the files below it say
        except OSError:
            return self.uid

    def _refuse(self, reading: Reading, error: Reason | Literal["gone"], now_s: float) -> None:
        self.fields.update(dict.fromkeys(reading.fills))
        # gone: the process has ended, or this kernel has no such file
        here: Reason = "unsupported" if os.path.exists(self.stat_file) else "lost"
        reason = here if error == "gone" else error
        self.troubles[reading.file] = reason
        if reason in ("denied", "unsupported"):
            self._refused_s[reading.file] = now_s + RETRY_S
