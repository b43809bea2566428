"""NVLinks: which are up, how fast, how faulty, all in one call; those that say the same are told as one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gputop import units
from gputop.collect.nvml.card import Card
from gputop.collect.nvml.fields import EACH, Answer, Answered, Field, ask, choose, tally
from gputop.collect.nvml.gate import No
from gputop.collect.nvml.probe import Answers, probe
from gputop.model import NvLink

_MB = 1e6
_STATE, _SPEED = 165, 164
_STATES = (False, True, True, True)  # inactive, active, asleep to save power, active without traffic for now: is it up
# replay, recovery and CRC; from Blackwell on there are recovery events instead
ERRORS = (161, 162, 163)
EVENTS = (215,)
_FAULTS = tuple(Field(str(one), tally, ((one, EACH),)) for one in (*ERRORS, *EVENTS))
_COUNTS = {
    "replays": (161,),
    "recoveries": (162, 215),
    "recoveries_failed": (214,),
    "crc_errors": (163,),
    "effective_errors": (219,),
    "symbol_errors": (221,),
}
_RATES = {"effective_error_rate": 220, "symbol_error_rate": 222}
_EACH = (_STATE, _SPEED, *ERRORS, *EVENTS, 214, 219, 220, 221, 222)
_EXIST = "nvlink fields"  # in what a card keeps: those that answered
_MOST = 2**53
_FASTEST = 1e6  # in the driver's MB/s
_UNKNOWN = NvLink(numbers="")


@probe(every_s=10, fills=("nvlinks_active", "nvlink_errors", "nvlink_max_bytes_per_s", "nvlinks"))
def nvlinks(card: Card) -> Answers:
    """State, speed and errors of every NVLink, in one call; what this card has none of is asked for once."""
    numbers: tuple[int, ...] = card.kept.get(_EXIST, _EACH)
    answers = ask(card, [(number, link) for number in numbers for link in range(card.links)])
    there = {number for (number, _), one in answers.items() if isinstance(one, Answer) or one.reason != "unsupported"}
    if _STATE in there:
        card.kept[_EXIST] = tuple(number for number in numbers if number in there)
    faults = {one.name: choose(card, one, answers) for one in _FAULTS}
    summed = [faults[str(one)] for one in ERRORS if isinstance(faults[str(one)], int)]
    each = _alike(answers, card.links)
    speeds = [
        one.speed_bytes_per_s * len(links)
        for one, links in each.items()
        if one.up and one.speed_bytes_per_s is not None
    ]
    return {
        "nvlinks_active": _active(answers),
        "nvlink_errors": sum(summed) if summed else faults[str(EVENTS[0])],
        "nvlink_max_bytes_per_s": sum(speeds) if speeds else _no(answers, _SPEED),
        "nvlinks": _numbered(each) if each.keys() - {_UNKNOWN} else _no(answers, _STATE),
    }


def _up(state: float | None) -> bool | None:
    return _STATES[int(state)] if state is not None and state in range(len(_STATES)) else None


def _active(answers: Answered) -> int | No:
    """How many links are up, of those that say it."""
    states = [one.value for (number, _), one in answers.items() if number == _STATE and isinstance(one, Answer)]
    known = [up for state in states if (up := _up(state)) is not None]
    return sum(known) if known else _no(answers, _STATE)


def _no(answers: Answered, number: int) -> No:
    refused = (answer for source, answer in answers.items() if source[0] == number and isinstance(answer, No))
    return next(refused, No("unsupported"))


def _alike(answers: Answered, links: int) -> dict[NvLink, list[int]]:
    """The numbers of the links that say the same, by what they say; nearly always all of them do."""
    told: dict[int, dict[int, float]] = {link: {} for link in range(links)}
    for (number, link), answer in answers.items():
        if isinstance(answer, Answer):
            told[link][number] = answer.value
    alike: dict[tuple[tuple[int, float], ...], list[int]] = {}
    for link, values in told.items():
        alike.setdefault(tuple(values.items()), []).append(link)
    found: dict[NvLink, list[int]] = {}
    for said, numbers in alike.items():
        found.setdefault(_link(dict(said)), []).extend(numbers)
    return found


def _numbered(each: Mapping[NvLink, list[int]]) -> tuple[NvLink, ...]:
    return tuple([replace(one, numbers=units.ranges(tuple(sorted(links)))) for one, links in each.items()])


def _link(found: Mapping[int, float]) -> NvLink:
    """What a link says, its number left open."""
    speed = found.get(_SPEED)
    given: dict[str, Any] = {name: _first(found, numbers) for name, numbers in _COUNTS.items()}
    given |= {name: _error_rate(found.get(number)) for name, number in _RATES.items()}
    return NvLink(
        numbers="",
        up=_up(found.get(_STATE)),
        speed_bytes_per_s=speed * _MB if speed is not None and 0 < speed < _FASTEST else None,
        **given,
    )


def _first(found: Mapping[int, float], numbers: tuple[int, ...]) -> int | None:
    return next((int(value) for one in numbers if (value := found.get(one)) is not None and 0 <= value <= _MOST), None)


def _error_rate(packed: float | None) -> float | None:
    """Bits 0-7 are a negative exponent of ten, bits 8-11 the number before it (as DCGM reads it)."""
    if packed is None or not 0 <= packed <= 0xFFF:
        return None
    number, exponent = divmod(int(packed), 0x100)
    return float(f"{number}e-{exponent}")
