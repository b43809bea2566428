"""The state of an alert over time: when a condition has held for long enough, when it is over, when to stay silent."""

from __future__ import annotations

import math
import zlib
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from gputop.alerts.condition import Condition, Observation, State
from gputop.alerts.message import AlertMessage, Ended, Status
from gputop.diagnose.steadying import RANKS
from gputop.frozen_dataclass import frozen_dataclass
from gputop.monitor import Update
from gputop.safe.text import clean

LONGEST_S = 15.0  # time that one sample may stand for: what happened in a longer gap is unknown,
_UNEVEN = 1.5  # unless samples are wanted that rarely: then this many times their interval
LEAST_CLEAR_S = 15.0  # time for which a condition must not hold before it is over
UNMEASURED_S = 600.0  # time after which the alert on an unknown value ends
MOST_SUBJECTS = 1024  # of one alert; further ones are not watched
MOST_MESSAGES, WITHIN_S = 20, 600.0  # beginnings that one alert may send in this time


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class AlertRule:
    """One alert of the settings."""

    name: str
    condition: Condition
    for_s: float = 0.0
    cooldown_s: float = 900.0
    recovery: bool = True  # send a message when it is over
    note: str = ""
    send: tuple[str, ...] = ()  # names of receivers

    @property
    def clear_s(self) -> float:
        """Time for which the condition must not hold before it is over."""
        return max(self.for_s, LEAST_CLEAR_S)


@dataclass(slots=True)
class Case:
    """The state of one subject."""

    last: Observation  # when the condition last held
    now: Observation | None = None  # in the newest update; None: it does not have the subject
    began_s: float = 0.0  # monotonic
    began_wall_s: float = 0.0
    until_s: float | None = None  # monotonic time since which it was not seen to hold; None: it holds
    held_s: float | None = None  # None: it does not hold
    clear_s: float | None = None  # None: it is not clear
    unknown_s: float = 0.0
    open: bool = False  # it has held for long enough and is not over
    announced: bool = False  # a message says that it began, and none that it is over
    sent_s: float = -math.inf  # time of the last message that it began
    rank: int = 0  # severity of that message
    times: int = 0  # how often it began since that message

    @property
    def idle(self) -> bool:
        """Whether nothing is pending."""
        return not self.open and self.held_s is None


class AlertTracker:
    """Follows one alert through the updates of a monitor. Time is the monotonic clock of the frames."""

    def __init__(self, rule: AlertRule, source: str = "") -> None:
        """`source`: origin of the frames if not this machine."""
        self.rule, self._source = rule, source
        self._forget()

    def _forget(self) -> None:
        self._cases: dict[tuple[object, ...], Case] = {}
        self._at_s: float | None = None
        self._recent: deque[float] = deque(maxlen=MOST_MESSAGES)  # times of messages that something began
        self.withheld = 0  # messages beyond that limit

    def advance(self, update: Update, interval_s: float = 1.0) -> Iterator[AlertMessage]:
        """Take in an update; yield what is to be sent. `interval_s`: wanted time between frames."""
        now_s = update.frame.mono_s
        if self._at_s is not None and now_s < self._at_s:  # another time, or another machine
            self._forget()
        since_s = 0.0 if self._at_s is None else now_s - self._at_s
        step_s, self._at_s = min(since_s, max(LONGEST_S, _UNEVEN * interval_s)), now_s
        observed = {one.key: one for one in self.rule.condition.observe(update)}
        self._rename(observed)
        for key, one in observed.items():
            if key not in self._cases and one.state == "holds" and len(self._cases) < MOST_SUBJECTS:
                self._cases[key] = Case(one)
        for key, case in list(self._cases.items()):
            now = observed.get(key)
            state = now.state if now else self.rule.condition.absent(case.last, update)
            case.now = now
            if now and state == "holds":
                case.last = now
            yield from self._step(case, state, update, step_s)
            if case.idle and now_s - case.sent_s >= self.rule.cooldown_s:
                del self._cases[key]

    def _rename(self, observed: dict[tuple[object, ...], Observation]) -> None:
        """Let a case follow its finding to another subject."""
        gone = [key for key in self._cases if key not in observed]
        for key, one in observed.items():
            if key in self._cases or one.state != "holds":
                continue
            before = next((old for old in gone if self.rule.condition.same(self._cases[old].last, one)), None)
            if before is not None:
                gone.remove(before)
                self._cases[key] = self._cases.pop(before)

    def _step(self, case: Case, state: State, update: Update, step_s: float) -> Iterator[AlertMessage]:
        case.unknown_s = case.unknown_s + step_s if state == "unknown" else 0.0
        case.until_s = None if state == "holds" else update.frame.mono_s if case.until_s is None else case.until_s
        if state == "holds":
            yield from self._hold(case, update, step_s)
        elif state == "unknown":
            if case.open and case.unknown_s >= UNMEASURED_S:
                yield from self._end(case, update, "unmeasured")
            elif not case.open and case.unknown_s > self.rule.for_s:
                case.held_s = None
        elif not case.open:
            case.held_s = None
        else:
            case.clear_s = 0.0 if case.clear_s is None else case.clear_s + step_s
            if state == "exited" or case.clear_s >= self.rule.clear_s:
                yield from self._end(case, update, "exited" if state == "exited" else "cleared")

    def _hold(self, case: Case, update: Update, step_s: float) -> Iterator[AlertMessage]:
        case.clear_s = None
        if case.held_s is None:
            case.held_s = 0.0
            if not case.open:
                since_s = getattr(case.last.seen, "since_s", 0.0)  # of a finding, which the rules have followed
                case.began_s = update.frame.mono_s - since_s
                case.began_wall_s = update.frame.wall_s - since_s
        else:
            case.held_s += step_s
        if not case.open and case.held_s >= self.rule.for_s:
            case.open, case.times = True, case.times + 1
        if case.open:
            yield from self._announce(case, update)

    def _announce(self, case: Case, update: Update) -> Iterator[AlertMessage]:
        """Say that it holds: once, and once more if it is worse; within the cool-down only if it is worse."""
        now_s, rank = update.frame.mono_s, RANKS[case.last.severity]
        worse = rank > case.rank and case.sent_s > -math.inf
        if case.announced and not worse:
            return
        if not worse and now_s - case.sent_s < self.rule.cooldown_s:
            return
        case.sent_s, case.rank, case.announced = now_s, rank, True
        if len(self._recent) == MOST_MESSAGES and now_s - self._recent[0] < WITHIN_S:
            self.withheld += 1
            case.announced = False  # its end is not sent, either
            return
        self._recent.append(now_s)
        yield self._message(case, update, "firing", "")
        case.times = 0

    def _end(self, case: Case, update: Update, ended: Ended) -> Iterator[AlertMessage]:
        if case.announced and self.rule.recovery:
            yield self._message(case, update, "resolved", ended)
        case.open = case.announced = False
        case.held_s = case.clear_s = None

    def _message(self, case: Case, update: Update, status: Status, ended: Ended) -> AlertMessage:
        frame, rule = update.frame, self.rule
        host = clean(frame.hostname, 64)
        until_s = frame.mono_s if case.until_s is None else case.until_s
        over = status == "resolved"
        condition = rule.condition
        return AlertMessage(
            **(condition.fields_after(case.last, case.now, update) if over else condition.fields(case.last, update)),
            alert=rule.name,
            id=f"{rule.name}-{zlib.crc32(repr((host, rule.name, case.last.key)).encode()):08x}",
            status=status,
            host=host,
            note=rule.note,
            began_wall_s=case.began_wall_s,
            sent_wall_s=frame.wall_s,
            lasted_s=float(round(max(0.0, until_s - case.began_s))),  # the title and the JSON object say the same
            ended=ended,
            times=max(1, case.times),
            source=self._source,
        )
