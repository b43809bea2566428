"""Open processes: each read part by part, every part in a separate lane, until no details are open any more."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from gputop.collect.details import files, memory, overview, threads
from gputop.collect.kernel_files import slurp, why
from gputop.collect.lane import Lane
from gputop.collect.proc.proc_files import Values
from gputop.model import PARTS, Detail, Identity, Missing, Part, Process, Reason
from gputop.model.metric import check_filled
from gputop.safe import ptrace_access
from gputop.safe.identity import parse_stat
from gputop.source import EVERYTHING, DetailWish

TICK_S = 0.9  # how often at most: an open screen asks once a second, more or less
STUCK_S = 2.0  # a read that takes longer counts as one that never answers
STALE_S = 5.0  # what is older than this, and than three of its reads, is not shown

_FILLS = (
    *threads.FILLS, *files.FILLS, *files.CHILDREN_FILLS, *memory.FILLS, *memory.IO_FILLS, *overview.FILLS,
    *overview.LIMITS_FILLS, *overview.ENVIRONMENT_FILLS,
)  # fmt: skip
check_filled(Detail.__dataclass_fields__.keys() - {"identity", "mono_s", "missing"}, _FILLS)


class _Answer(NamedTuple):
    """What a part said, and when; nothing yet at time None."""

    values: Values
    taken_s: float | None = None


class _Section:
    """One part: read again on request, no more often than it is worth."""

    def __init__(self, name: str, read: Callable[[], Values], every_s: float, clock: Callable[[], float]) -> None:
        self.name, self._read, self._every_s, self._clock = name, read, every_s, clock
        self._lane = Lane(name, self._answer, _Answer({}))
        self._asked_s: float | None = None

    def ask(self, soon: bool = False) -> bool:
        """Have it read, unless it was just now or does not come back from the last time; whether it will be."""
        now_s = self._clock()
        if self._asked_s is None:
            self._lane.start()
        elif not self.settled(0) or (now_s - self._asked_s < self._every_s and not soon):
            return False
        self._asked_s = now_s
        self._lane.nudge()
        return True

    @property
    def stuck(self) -> bool:
        """Whether its thread is inside a read that does not end."""
        return self._asked_s is not None and not self.settled(0) and self._clock() - self._asked_s >= STUCK_S

    def values(self) -> Values:
        """The newest of it, or why there is none."""
        if self.stuck:
            return self._none("lost")
        answer, oldest_s = self._lane.latest, self._clock() - max(STALE_S, 3 * self._every_s)
        return self._none("stale") if answer.taken_s is None or answer.taken_s < oldest_s else answer.values

    def settled(self, until_s: float) -> bool:
        """Wait for the read that is under way, no longer than until this time of the monotonic clock."""
        return self._asked_s is None or self._lane.settled(until_s)

    def stop(self) -> None:
        """Let its thread end when it comes back."""
        self._lane.stop()

    def _none(self, reason: Reason) -> Values:
        unlock = ptrace_access.unlock() if reason == "denied" else None
        return {"missing": (Missing(metric=self.name, reason=reason, unlock=unlock),)}

    def _answer(self) -> _Answer:
        try:
            values = self._read()
        except OSError as error:
            reason = why(error)
            values = self._none("unsupported" if reason == "gone" else reason)
        except (ValueError, IndexError):
            values = self._none("unsupported")
        return _Answer(values, self._clock())


class Inspection:
    """The details of one process, for as long as they are asked for."""

    def __init__(
        self,
        identity: Identity,
        processes: Callable[[], Iterable[Process]],
        root: str = "/proc",
        clock: Callable[[], float] = time.monotonic,
        uid: int | None = None,
    ) -> None:
        self.identity, self._root, self._clock = identity, root, clock
        self.ended = False  # the process has, or its pid is another's: seen by whichever read comes first
        self._files = files.OpenFiles(root, identity, clock)
        self._children = files.ChildrenReader(root, identity, processes, self._files, clock)
        self._environment = overview.EnvironmentReader(root, identity, uid)
        self._asked: tuple[frozenset[str], bool] = (frozenset(), False)  # of the environment, when it was read last
        reads: dict[Part, tuple[float, Callable[[], Values]]] = {
            "threads": (TICK_S, threads.ThreadReader(root, identity, clock).read),
            "files": (TICK_S, self._files.read),
            "children": (TICK_S, self._children.read),
            "io": (TICK_S, lambda: memory.io(root, identity)),
            "memory": (TICK_S, memory.MemoryReader(root, identity, clock).read),
            "overview": (5.0, overview.OverviewReader(root, identity).read),
            "limits": (TICK_S, overview.LimitsReader(root, identity, processes).read),
            "environment": (30.0, self._environment.read),
        }
        self._sections = {part: _Section(part, self._whole(reads[part][1]), reads[part][0], clock) for part in PARTS}
        self._sizes = _Section("size_bytes", self._whole(self._measure), TICK_S, clock)

    def ask(self, wish: DetailWish) -> None:
        """Have the parts on the screen read again."""
        asked = (frozenset(wish.revealed), wish.others_environment)
        self._environment.revealed, self._environment.others = asked
        for part in wish.parts:
            if self._sections[part].ask(soon=part == "environment" and asked != self._asked) and part == "environment":
                self._asked = asked
        if "files" in wish.parts or "children" in wish.parts:
            self._sizes.ask()

    def detail(self, wish: DetailWish) -> Detail:
        """The newest of these parts. What is no longer asked to be shown is not, at once."""
        values: dict[str, Any] = {}
        missing: list[Missing] = []
        for section in (*(self._sections[part] for part in PARTS if part in wish.parts), self._sizes):
            found = dict(section.values())
            reasons = found.pop("missing", ())
            if section is not self._sizes or section.stuck:  # sizes that are not there yet are no news
                missing += reasons
            values.update(found)
        shown, others = values.get("environment") or (), values.pop(overview.OTHERS, False)
        more = any(variable.revealed and variable.name not in wish.revealed for variable in shown)
        if more or (others and not wish.others_environment):
            del values["environment"]
            missing.append(Missing(metric="environment", reason="stale"))
        return Detail(identity=self.identity, mono_s=self._clock(), missing=tuple(missing), **values)

    @property
    def stuck(self) -> bool:
        """Whether a thread of it does not come back."""
        return any(section.stuck for section in self._all)

    def settled(self, until_s: float) -> bool:
        """Wait for what is being read, no longer than until this time of the monotonic clock."""
        return all(section.settled(until_s) for section in self._all)

    def stop(self) -> None:
        """Let its threads end."""
        for section in self._all:
            section.stop()

    @property
    def _all(self) -> tuple[_Section, ...]:
        return (*self._sections.values(), self._sizes)

    def _measure(self) -> Values:
        self._children.measure()
        return self._files.measure()

    def _whole(self, read: Callable[[], Values]) -> Callable[[], Values]:
        """The read, refused unless it is still the same process afterwards: it was so all the time then."""

        def checked() -> Values:
            try:
                return read()
            finally:
                self._notice()

        return checked

    def _notice(self) -> None:
        """OSError unless the pid is still this process's; its stat is answered even where other files hang."""
        try:
            stat = parse_stat(slurp(f"{self._root}/{self.identity.pid}/stat"))
        except OSError as error:
            self.ended |= why(error) == "gone"
            raise
        if stat is None or stat.started_ticks != self.identity.started_ticks:
            self.ended = True
            raise ProcessLookupError


CLOSED_AFTER_S = 30.0
MOST_OPEN = 8
UNLOCK_FOREIGN = "run gputop on the host, or start the container with --pid=host"


class Inspector:
    """Gives the newest details of what it is asked for, and never waits."""

    def __init__(
        self,
        processes: Callable[[], Iterable[Process]],
        root: str = "/proc",
        clock: Callable[[], float] = time.monotonic,
        uid: int | None = None,
    ) -> None:
        self._processes, self._root, self._clock, self._uid = processes, root, clock, uid
        self._open: dict[Identity, Inspection] = {}  # the one asked for last stands last
        self._asked_s: dict[Identity, float] = {}

    def inspect(self, identity: Identity, wish: DetailWish = EVERYTHING) -> Detail | Missing:
        """The newest details of a process, and have them read again."""
        if (unseen := self._unseen(identity)) is not None:
            return unseen
        inspection = self._open.pop(identity, None) or Inspection(
            identity, self._processes, self._root, self._clock, self._uid
        )
        self._open[identity], self._asked_s[identity] = inspection, self._clock()
        self._close_others()
        if inspection.ended:
            return Missing(metric="details", reason="lost")
        inspection.ask(wish)
        return inspection.detail(wish)

    def settled(self, until_s: float) -> bool:
        """Wait until all that was asked is read, no longer than until this time of the monotonic clock."""
        return all(inspection.settled(until_s) for inspection in self._open.values())

    def _unseen(self, identity: Identity) -> Missing | None:
        """Why there are no details of a process that only the driver knows."""
        if identity.started_ticks:
            return None
        known = next((process for process in self._processes() if process.identity == identity), None)
        if known is None or known.unseen is None:
            return None
        if known.unseen == "exited":
            return Missing(metric="details", reason="lost")
        unlock = UNLOCK_FOREIGN if known.unseen == "foreign" else ptrace_access.unlock(uid=self._uid)
        return Missing(metric="details", reason="denied", unlock=unlock)

    def _close_others(self) -> None:
        """Close those not asked for lately. One whose thread hangs stays: opened again it would hang again."""
        now_s = self._clock()
        for number, (identity, inspection) in enumerate(reversed(list(self._open.items()))):
            old = number >= MOST_OPEN or now_s - self._asked_s[identity] >= CLOSED_AFTER_S
            if old and not inspection.stuck:
                self._close(identity, inspection)

    def _close(self, identity: Identity, inspection: Inspection) -> None:
        inspection.stop()
        self._open.pop(identity, None)
        self._asked_s.pop(identity, None)
