"""What a probe is: one driver call, or one coherent pair, that fills named metrics of a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from gputop.collect.nvml.card import Card
from gputop.collect.nvml.gate import ABSENT, DriverGone, Late, Lost, No, Unanswered
from gputop.model import Gpu, Missing, metrics

Answers = Mapping[str, Any]  # a value, a No, or None for a value that was rejected
Ask = Callable[[Card], Answers]


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """`fills` is what it alone answers for; `backs` what it answers while the probe that fills it cannot."""

    name: str
    every_s: int  # 0: once
    fills: tuple[str, ...]
    backs: tuple[str, ...]
    ask: Ask

    def due(self, card: Card, tick: int, phase: int) -> bool:
        """Whether this tick is its turn. The phase spreads GPUs over ticks; a fresh card is read whole."""
        if tick == card.born:
            return True
        if self.every_s:
            return (tick + phase) % self.every_s == 0
        return (tick + phase) % 60 == 0 and any(
            isinstance(given, No) and given.reason == "stale" for given in card.answers.get(self.name, {}).values()
        )


PROBES: list[Probe] = []


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


def ask(one: Probe, card: Card) -> Iterable[str]:
    """Make the call and keep what it said, or why it did not; the fields it was about. Lost, DriverGone, Late pass."""
    if not one.fills and all(card.answered(name, besides=one.name) for name in one.backs):
        return ()
    given: Answers
    try:
        given = one.ask(card)
        card.broken.pop(one.name, None)
    except (Lost, DriverGone, Late):
        raise
    except Unanswered as silent:
        given = dict.fromkeys((*one.fills, *one.backs), silent.no)
    except Exception as error:  # an answer of a shape nobody foresaw costs its own values only
        card.broken[one.name] = f"{one.name}: {type(error).__name__}: {error}"
        given = dict.fromkeys((*one.fills, *one.backs), No("stale"))
    card.answers[one.name] = {name: ABSENT if value is None else value for name, value in given.items()}
    return given.keys()


def settle(card: Card, names: Iterable[str], filled: Mapping[str, tuple[str, ...]]) -> None:
    """Bring what is known of a card up to date in these fields: the best probe that has a value gives it."""
    for name in names:
        no: No | None = None
        for source in filled[name]:
            answer = card.answers.get(source, _NOTHING).get(name)
            if answer is not None and not isinstance(answer, No):
                card.values[name] = answer
                card.missing.pop(name, None)
                break
            no = no or answer
        else:
            _miss(card, name, no)


def _miss(card: Card, name: str, no: No | None) -> None:
    card.values.pop(name, None)
    old = card.missing.get(name)
    if no is None or (no == ABSENT and name.startswith("processes")):
        card.missing.pop(name, None)
    elif old is None or (old.reason, old.unlock) != (no.reason, no.unlock):
        card.missing[name] = Missing(metric=name, reason=no.reason, unlock=no.unlock)


_NOTHING: Mapping[str, Any] = {}
