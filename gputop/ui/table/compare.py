"""The fields a filter compares: every column, and what a person calls it. Pure."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Collection

from gputop import labels, units
from gputop.frozen_dataclass import frozen_dataclass
from gputop.ui.table.columns import SORTABLE, Column, Kind
from gputop.ui.table.subject import Subject

_NUMBER = re.compile(r"(-?[0-9]{1,15}(?:\.[0-9]{1,9})?)([A-Za-z%]*)(?:/s)?")
_RANGE = re.compile(r"(-?[0-9][0-9.]*[A-Za-z%]*)-(-?[0-9][0-9.]*[A-Za-z%]*(?:/s)?)")
_BINARY = {letter: 1024.0**power for power, letter in enumerate(("", "k", "m", "g", "t", "p"))}
_DECIMAL = {"": 1.0, "%": 1.0, "k": 1e3, "m": 1e6, "g": 1e9}
_TOLERANCE = 0.05  # what is drawn as 2.0G was never exactly that


class Wrong(ValueError):
    """What cannot be asked: the message, and from where to where in the text it is about."""

    def __init__(self, message: str, start: int, end: int) -> None:
        super().__init__(message)
        self.start, self.end = start, end


Ask = Callable[[Subject], bool]


@frozen_dataclass(frozen=True, slots=True)
class Term:
    """One part of a filter: what it asks, and the names it asks for, for who misspelled one."""

    ask: Ask
    names: tuple[str, ...] = ()


def short(text: str) -> str:
    """Text in a message about it."""
    return text if len(text) <= 20 else f"{text[:19]}…"


@frozen_dataclass(frozen=True, slots=True)
class Words:
    """A field of text: it has any of the words somewhere, begins with it, or is it."""

    get: Callable[[Subject], str | None]
    like: Callable[[str, str], bool]
    example: str

    def term(self, sign: str, given: str, at: int) -> Term:
        """Compare the field; Wrong at a place in the text."""
        if sign not in ("=", "!="):
            raise Wrong(f"this is a word: only = and != compare it, as in {self.example}", at - len(sign), at)
        wanted = tuple(part for part in given.casefold().split(",") if part)
        if not wanted:
            raise Wrong(f"a word is missing: for example {self.example}", at, at + max(1, len(given)))
        if given[0] in "=<>":
            raise Wrong(f"{sign} is enough: for example {self.example}", at, at + 1)

        def ask(subject: Subject) -> bool:
            value = self.get(subject)
            return value is not None and any(self.like(value.casefold(), part) for part in wanted) == (sign == "=")

        return Term(ask, wanted if sign == "=" else ())


@frozen_dataclass(frozen=True, slots=True)
class Numbers:
    """A field of one number, or of many of which any may be meant; what is unknown compares to nothing."""

    get: Callable[[Subject], Collection[float]]
    unit: Callable[[str, str], float]  # of a number and what stands behind it; ValueError, KeyError
    example: str
    near: float = 0.0  # a single value is met within this share, and always when it is drawn as the same whole number

    def term(self, sign: str, given: str, at: int) -> Term:
        """Compare the field; Wrong at a place in the text."""
        spans: list[tuple[float, float]] = []
        for part in given.split(","):
            spans.append(self._span(part, at))
            at += len(part) + 1
        if sign in ("=", "!="):
            meets: Callable[[float], bool] = lambda value: any(low <= value <= high for low, high in spans)  # noqa: E731
            wanted = sign == "="
            return Term(lambda s: bool(values := self.get(s)) and any(map(meets, values)) == wanted)
        if len(spans) > 1 or "-" in given[1:]:
            raise Wrong(f"{sign} needs one value, as in {self.example}", at - len(given) - 1, at - 1)
        compare, bound = _SIGNS[sign], self._value(given, 0)
        return Term(lambda subject: any(compare(value, bound) for value in self.get(subject)))

    def _span(self, part: str, at: int) -> tuple[float, float]:
        if match := _RANGE.fullmatch(part):
            low, high = self._value(match[1], at), self._value(match[2], at + match.start(2))
            if low > high:
                raise Wrong(f"{short(part)} is empty: the lower value comes first", at, at + len(part))
            return low, high
        value = self._value(part, at)
        margin = max(0.499999, self.near * abs(value))
        return value - margin, value + margin

    def _value(self, text: str, at: int) -> float:
        match = _NUMBER.fullmatch(text)
        try:
            if match is None:
                raise ValueError
            return self.unit(match[1], match[2].casefold())
        except (ValueError, KeyError):
            said = f"{short(text)} is not a value here" if text else "a value is missing"
            raise Wrong(f"{said}: for example {self.example}", at, at + max(1, len(text))) from None


_SIGNS: dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt, "<": operator.lt, ">=": operator.ge, "<=": operator.le
}  # fmt: skip


def _bytes(number: str, unit: str) -> float:
    return float(number) * _BINARY[unit.removesuffix("b").removesuffix("i")]


def _plain(number: str, unit: str) -> float:
    return float(number) * _DECIMAL[unit]


def _seconds(number: str, unit: str) -> float:
    return units.duration(number + unit)


_UNITS: dict[Kind, tuple[Callable[[str, str], float], str, float]] = {
    "number": (_plain, ">50", 0.0),
    "bytes": (_bytes, ">50M", _TOLERANCE),
    "seconds": (_seconds, ">5m", _TOLERANCE),
}


def _cards(subject: Subject) -> Collection[float]:
    return [float(card) for index in subject.gpus if (card := index.partition(":")[0]).isdecimal()]


def _rank(subject: Subject) -> Collection[float]:
    return () if subject.process.rank is None else (subject.process.rank,)


def _of_column(column: Column) -> Words | Numbers:
    def number(subject: Subject) -> Collection[float]:
        value = column.value(subject.figures)
        return (value,) if isinstance(value, (int, float)) else ()

    def word(subject: Subject) -> str | None:
        value = column.value(subject.figures)
        return value if isinstance(value, str) else None

    if column.kind == "word":
        return Words(word, str.startswith, f"{column.id}=…")
    unit, example, near = _UNITS[column.kind]
    return Numbers(number, unit, column.id + example, near)


Field = Words | Numbers
_COMMAND = Words(lambda subject: labels.searched(subject.process), str.__contains__, "cmd=train.py")
FIELDS: dict[str, Field] = {
    "job": Words(lambda subject: subject.job or None, str.__contains__, "job=llama"),
    "role": Words(lambda subject: subject.process.role.value, str.startswith, "role=loader"),
    "state": Words(lambda subject: subject.process.state, str.startswith, "state=D"),
    "cmd": _COMMAND,
    "command": _COMMAND,
    "gpu": Numbers(_cards, _plain, "gpu=0-3"),
    "rank": Numbers(_rank, _plain, "rank=0"),
    "user": Words(lambda subject: subject.process.user, str.__eq__, "user=alice"),
}
# what others call them: ps, htop, nvitop, or whoever types the first word that comes to mind
ALIASES: dict[str, tuple[str, ...]] = {
    "rss": ("mem", "memory", "res"),
    "vram": ("gpu-mem", "gpumem"),
    "gpu-busy": ("util", "sm"),
    "time": ("age", "elapsed", "etime"),
    "cmd": ("name", "comm", "args"),
    "user": ("owner", "username"),
    "state": ("s", "stat", "status"),
    "threads": ("nlwp",),
    "nice": ("ni",),
    "shm": ("shr",),
}
for _column in SORTABLE:
    FIELDS.setdefault(_column.id, _of_column(_column))
for _column in SORTABLE:
    _title = _column.title.casefold()
    FIELDS.setdefault(_title, FIELDS[_column.id])
    FIELDS.setdefault(_title.removesuffix("/s"), FIELDS[_column.id])
for _name, _others in ALIASES.items():
    for _other in _others:
        FIELDS.setdefault(_other, FIELDS[_name])


def field(name: str) -> Field | None:
    """What is called so; None where nothing is."""
    return FIELDS.get(name.casefold().replace("_", "-"))
