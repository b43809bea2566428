"""One GPU or MIG instance while it is read: its handle, what was answered, what was counted last time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from gputop.collect.nvml.gate import (
    FUNCTION_NOT_FOUND,
    PASSES,
    RESET_REQUIRED,
    DriverGate,
    Late,
    NoValue,
    Unanswered,
    for_ever,
)
from gputop.collect.nvml.pci import PciFunction
from gputop.model import Condition, Gpu, GpuShare, Missing
from gputop.model.metric import extended_names

AGAIN_S = 60.0  # what a GPU does not support is asked for again so rarely
REST_S = 60.0  # after a call on it hung and came back; twice as long each time that it hangs again
LONGEST_REST_S = 300.0  # but no longer; and a GPU that worked for so long begins with the shortest again

REFUSALS = 10  # in a row, with one error, of a call on a GPU that answers others: it will not pass

EXTENDED = extended_names(Gpu)
_UNREAD = {name: Missing(metric=name, reason="absent", unlock="gputop --json, or a recording") for name in EXTENDED}

Release = tuple[int, int]  # branch and number of a driver: (580, 82)


class Count(NamedTuple):
    """A counter when it was last read: its value, the driver's time stamp, ours."""

    value: float
    stamp_us: int
    at_s: float

    def since_s(self, before: Count) -> float:
        """Seconds since another look, by the driver's stamps where they agree with our clock to a factor of two."""
        ours_s, theirs_s = self.at_s - before.at_s, (self.stamp_us - before.stamp_us) / 1e6
        return theirs_s if before.stamp_us and 0.5 * ours_s < theirs_s < 2 * ours_s else ours_s


class _Failing(NamedTuple):
    """A call that fails: its error, how often in a row, and how many calls on its GPU had worked by then."""

    code: int
    times: int
    answers: int


class Device:
    """One GPU or MIG instance. Only the thread that serves the GPU touches it."""

    def __init__(self, index: int, uuid: str, gate: DriverGate, parent: Device | None = None) -> None:
        self.index = index  # of the physical GPU
        self.uuid = uuid
        self.gate = gate  # of the thread that serves it now
        self.parent = parent
        self.children: list[Device] = []  # MIG instances
        self.label = str(index)
        self.name = "GPU"
        self.handle: Any = None
        self.instance: int | None = None  # GPU instance id of a MIG instance
        self.bus_id: str | None = None
        self.slot: PciFunction | None = None
        self.may_sleep = False
        self.links = 0
        self.identity: dict[str, Any] = {}  # fields of a Gpu that are read once and are no metrics
        self.driver: Release | None = None  # some numbers of the driver's interface mean something else by its version
        self.gpm: NoValue | None = None  # why GPM is not read; None: it is
        self.answers: dict[str, Mapping[str, Any]] = {}  # by probe, by field: a value or a No
        self.values: dict[str, Any] = {}  # what is known now, field by field
        self.probe_of: dict[str, str] = {}  # and by which probe
        self.missing: dict[str, Missing] = {**_UNREAD}  # and why the rest is not
        self.broken: dict[str, str] = {}  # by probe: what went wrong in our own code
        self.kept: dict[str, Any] = {}  # what a probe keeps from one call to the next
        self.counts: dict[str, Count] = {}
        self.proven: set[tuple[int, int]] = set()  # field values that answered last time
        self.plans: dict[int, Any] = {}  # which field values are asked for: as long as the same ones answer
        self.born = 0  # the tick that reads everything
        self.extended = False  # whether the extended tier is read
        self.gpu: Gpu | None = None  # what was published last
        self.shares: Mapping[int, GpuShare] = {}  # by pid
        self.lists_changed = False  # the driver's lists of processes are newer than the shares
        self.read_s = self.since_s = gate.clock()  # of the last good read; of the condition
        self.condition: Condition = "ok"
        self.rest_until_s = 0.0  # after a call that hung; 0: it does not rest
        self.hangs = 0  # how often it hung lately
        self.refused_s = float("-inf")  # when it refused last because it must be reset
        self.heard_tick = self.unheard_tick = -1  # when a call on it worked last, and when all failed inside the driver
        self._silent: dict[tuple[Any, ...], tuple[float, NoValue, int]] = {}  # until when, why
        self._answers = 0  # calls that worked
        self._failing: dict[tuple[Any, ...], _Failing] = {}  # calls that fail with an error that may pass

    def turn(self, condition: Condition, since_s: float) -> None:
        """Enter a condition; being in it already keeps the time it began."""
        if condition != self.condition:
            self.condition, self.since_s = condition, since_s

    def lose(self, since_s: float) -> None:
        """The GPU is off its bus: its last values stay, its processes do not."""
        self.turn("lost", since_s)
        self.answers = {name: given for name, given in self.answers.items() if "process" not in name}
        self.values = {name: value for name, value in self.values.items() if not name.startswith("processes")}
        self.shares = {}
        for child in self.children:
            child.lose(since_s)

    def hang(self, since_s: float) -> None:
        """A call on it hung and came back: leave it alone for a while, and the whole GPU if this is an instance."""
        if self.parent is not None:
            self.parent.hang(since_s)
            return
        worked_s = since_s - self.since_s if self.condition == "ok" else 0.0
        self.hangs = 1 if worked_s > LONGEST_REST_S else self.hangs + 1
        self.turn("hung", since_s)
        self.rest_until_s = self.gate.clock() + min(REST_S * 2 ** min(self.hangs - 1, 8), LONGEST_REST_S)

    def renew(self, handle: Any, tick: int) -> None:
        """A fresh handle: what depended on the old one is void, and everything is read on this tick."""
        self.handle, self.born = handle, tick
        self.counts.clear()
        self.kept.clear()
        self.proven.clear()
        self.plans.clear()
        self._silent.clear()
        self._failing.clear()

    def call(self, name: str, *args: Any, since: tuple[Any, ...] = ()) -> Any:
        """The driver's answer on this GPU; `since` are arguments that change from call to call.

        What was unsupported or denied is not asked again for a minute: it is raised from memory.
        """
        return self._ask((name, *args), self.gate.call, name, (*args, *since))

    def symbol(self, name: str, *args: Any, about: int = 0) -> int:
        """The return code of a C function on this GPU, as in call: OK or INSUFFICIENT_SIZE.

        `about` distinguishes questions that are refused one by one.
        """
        code: int = self._ask((name, about), self.gate.symbol, name, args)
        return code

    def first(self, *calls: tuple[Any, ...]) -> Any:
        """The answer of the first of these calls whose function this driver has; each is a name and arguments."""
        for call in calls[:-1]:
            try:
                return self.call(*call)
            except Unanswered as silent:
                if silent.code != FUNCTION_NOT_FOUND:
                    raise
        return self.call(*calls[-1])

    def silent(self, key: tuple[Any, ...]) -> NoValue | None:
        """Why this question was refused lately."""
        known = self._silent.get(key)
        return known[1] if known and self.gate.clock() < known[0] else None

    def heed(self, key: tuple[Any, ...], refused: Unanswered) -> None:
        """Take note of why a question was refused."""
        if refused.code == RESET_REQUIRED:
            self.refused_s = self.gate.clock()
        if refused.no.reason in ("unsupported", "denied"):
            self.hush(key, refused)

    def hush(self, key: tuple[Any, ...], refused: Unanswered) -> None:
        """Do not ask this again for a while."""
        self.plans.clear()
        self._silent[key] = self.gate.clock() + AGAIN_S, refused.no, refused.code

    def answered(self, field: str, besides: str) -> bool:
        """Whether what is known of a field is what another probe than this one said."""
        return self.probe_of.get(field, besides) != besides

    def rate(self, name: str, value: float, stamp_us: int = 0) -> float | None:
        """How fast a counter grows, per second; None at its first sample and when it went backwards."""
        before = self.counts.get(name)
        now = self.counts[name] = Count(value, stamp_us, self.gate.clock())
        if before is None or value < before.value:
            return None
        seconds = now.since_s(before)
        return (value - before.value) / seconds if seconds > 0 else None

    def _ask(self, key: tuple[Any, ...], way: Callable[..., Any], name: str, args: tuple[Any, ...]) -> Any:
        if no := self.silent(key):
            raise Unanswered(no, self._silent[key][2])
        try:
            answer = way(name, self.handle, *args, gpu=self.index)
        except Unanswered as refused:
            refused = self._fails(key, refused)
            self.heed(key, refused)
            raise refused from None
        self._answers += 1
        if self._failing:
            self._failing.pop(key, None)
        return answer

    def _fails(self, key: tuple[Any, ...], refused: Unanswered) -> Unanswered:
        """The refusal, or that it is one for ever: the same error many times, each time after another call worked."""
        if refused.no.reason != "stale" or refused.code in PASSES:
            self._failing.pop(key, None)
            return refused
        before = self._failing.get(key)
        if before is None or before.code != refused.code:
            before = _Failing(refused.code, 0, -1)
        times = before.times + (before.answers < self._answers)
        self._failing[key] = _Failing(refused.code, times, self._answers)
        return Unanswered(for_ever(refused.code), refused.code) if times >= REFUSALS else refused


def rests(card: Device) -> bool:
    """Whether a GPU is left alone after a call on it that hung, with its instances."""
    return card.gate.clock() < (card.parent or card).rest_until_s


def extend(card: Device, wanted: bool, tick: int) -> None:
    """Read the extended tier too, all of it on this tick; or no more: what was known of it goes."""
    card.extended = wanted
    card.plans.clear()
    if wanted:
        card.born = tick
        return
    card.missing |= _UNREAD
    for known in (card.values, card.probe_of):
        for name in EXTENDED & known.keys():
            del known[name]
    for key in [key for key in card.counts if key.rpartition(" ")[2] in EXTENDED]:
        del card.counts[key]
    card.answers = {
        probe: {name: answer for name, answer in given.items() if name not in EXTENDED}
        for probe, given in card.answers.items()
    }


def reads(card: Device, name: str) -> bool:
    """Whether this field is read now, by its tier."""
    return card.extended or name not in EXTENDED


def came_late(card: Device, gate: DriverGate, late: Late) -> None:
    """A call on it hung; the thread that was replaced ends with it, and leaves a GPU that another reads."""
    if card.gate is gate:
        card.hang(late.since_s)
    if gate.superseded:
        raise late
