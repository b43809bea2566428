"""What a probe is: one driver call, or one coherent pair, that fills named metrics of a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from functools import cache
from typing import Any

from gputop.collect.nvml.device import EXTENDED, Device, reads
from gputop.collect.nvml.gate import ABSENT, DriverGone, Late, Lost, NoValue, Unanswered
from gputop.frozen_dataclass import frozen_dataclass
from gputop.model import Gpu, Missing, metrics

Answers = Mapping[str, Any]  # a value, a No, or None for a value that was rejected
Ask = Callable[[Device], Answers]


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """`fills` is what it alone answers for; `backs` what it answers while the probe that fills it cannot."""

    name: str
    every_s: int  # 0: once
    fills: tuple[str, ...]
    backs: tuple[str, ...]
    ask: Ask

    @property
    def extended(self) -> bool:
        """Whether all that it answers is of the extended tier."""
        return EXTENDED.issuperset((*self.fills, *self.backs))

    def failed(self, card: Device) -> bool:
        """Whether its last answer was an error that may pass."""
        given = card.answers.get(self.name, _NOTHING).values()
        return any(isinstance(one, NoValue) and (one.reason == "stale" or one.passing) for one in given)


PROBES: list[Probe] = []
FAST_S = 2  # probes up to this cadence go first: the screen shows them
_ROUND = 60  # ticks after which the turns repeat: every cadence divides it


@cache
def asked(slow: bool, extended: bool) -> tuple[Probe, ...]:
    """The probes of one half of a sweep, with those of the extended tier or without."""
    return tuple(one for one in PROBES if (0 < one.every_s <= FAST_S) != slow and (extended or not one.extended))


@cache
def turns(slow: bool, extended: bool, place: int) -> tuple[Probe, ...]:
    """The probes of this place of the round; what is asked once has a second chance there."""
    return tuple(
        one for order, one in enumerate(asked(slow, extended)) if (place + order) % (one.every_s or _ROUND) == 0
    )


def due(card: Device, tick: int, slow: bool) -> Iterable[Probe]:
    """The probes to ask on this tick. The card's index spreads GPUs over ticks; a fresh card is read whole."""
    if tick == card.born:
        return asked(slow, card.extended)
    turn = turns(slow, card.extended, (tick + card.index) % _ROUND)
    return [one for one in turn if one.every_s or one.failed(card)] if slow else turn


def probe(*, every_s: int, fills: tuple[str, ...] = (), backs: tuple[str, ...] = ()) -> Callable[[Ask], Ask]:
    """Declare the function that makes the call: its cadence in seconds (0: once) and what it fills."""

    def declare(ask: Ask) -> Ask:
        PROBES.append(Probe(name=ask.__name__, every_s=every_s, fills=fills, backs=backs, ask=ask))
        return ask

    return declare


def sources(probes: Iterable[Probe]) -> Mapping[str, tuple[str, ...]]:
    """By field of a Gpu the probes that answer for it, best first; ValueError if a metric has none, or two.

    A field that a Gpu does not have must be called after processes: those lists become shares of processes.
    """
    known = {field.name for field in fields(Gpu)}
    filled: dict[str, tuple[str, ...]] = {}
    for one in probes:
        for name in one.fills:
            if name in filled:
                raise ValueError(f"{name} is filled by {filled[name][0]} and by {one.name}")
            if name not in known and not name.startswith("processes"):
                raise ValueError(f"{one.name} fills {name}, which a Gpu does not have")
            filled[name] = (one.name,)
    for one in probes:
        for name in one.backs:
            if name not in filled:
                raise ValueError(f"{one.name} backs {name}, which nothing fills")
            filled[name] += (one.name,)
    if lacking := [metric.name for metric in metrics(Gpu) if metric.name not in filled]:
        raise ValueError(f"no probe fills {', '.join(lacking)}")
    return filled


def ask(one: Probe, card: Device) -> Iterable[str]:
    """Make the call and keep what it said, or why it did not; the fields of which it says something else than before.

    Lost, DriverGone, Late pass.
    """
    if not one.fills and all(card.answered(name, besides=one.name) for name in one.backs):
        card.answers.pop(one.name, None)  # or it is reported again, however old, when the better one has no value
        return ()
    given: Answers
    try:
        given = one.ask(card)
        card.broken.pop(one.name, None)
    except (Lost, DriverGone, Late):
        raise
    except Unanswered as silent:
        given = dict.fromkeys((*one.fills, *one.backs), silent.no)
    except Exception as error:  # an answer of an unforeseen shape costs its own values only
        card.broken[one.name] = f"{one.name}: {type(error).__name__}: {error}"
        given = dict.fromkeys((*one.fills, *one.backs), NoValue("stale"))
    before = card.answers.get(one.name, _NOTHING)
    answers = card.answers[one.name] = {
        name: ABSENT if value is None else value for name, value in given.items() if reads(card, name)
    }
    return [name for name, answer in answers.items() if answer is not before.get(name)]


def settle(card: Device, names: Iterable[str], filled: Mapping[str, tuple[str, ...]]) -> None:
    """Bring what is known of a card up to date in these fields: the best probe that has a value gives it."""
    for name in names:
        no: NoValue | None = None
        for source in filled[name]:
            answer = card.answers.get(source, _NOTHING).get(name)
            if answer is not None and not isinstance(answer, NoValue):
                card.values[name], card.probe_of[name] = answer, source
                card.missing.pop(name, None)
                break
            no = no or answer
        else:
            _miss(card, name, no)


def _miss(card: Device, name: str, no: NoValue | None) -> None:
    card.values.pop(name, None)
    card.probe_of.pop(name, None)
    old = card.missing.get(name)
    if no is None or (no == ABSENT and name.startswith("processes")):
        card.missing.pop(name, None)
    elif old is None or (old.reason, old.unlock) != (no.reason, no.unlock):
        card.missing[name] = Missing(metric=name, reason=no.reason, unlock=no.unlock)


_NOTHING: Mapping[str, Any] = {}
