"""The filter's language: words and comparisons of fields become one question to every process. Pure."""

from __future__ import annotations

import difflib
import operator
import re
from collections.abc import Callable, Collection, Iterable
from functools import cached_property

from gputop import labels, units
from gputop.columns import SORTABLE, Column, Kind
from gputop.frozen_dataclass import frozen_dataclass
from gputop.model import Frame, Identity, Process, Role
from gputop.process_totals import Figures, one
from gputop.ui.table.kinship import members


class FilterRow:
    """One process as the filter sees it; a worker and a launcher count as being on the GPUs they work for."""

    def __init__(self, process: Process, frame: Frame, job: str, gpus: tuple[str, ...]) -> None:
        self.process, self.frame, self.job, self.gpus = process, frame, job, gpus

    @cached_property
    def figures(self) -> Figures:
        """What the columns show."""
        return one(self.process, self.frame)

    @cached_property
    def text(self) -> str:
        """What a plain word is looked for in."""
        process = self.process
        parts = (str(process.pid), process.user or "", self.job, labels.searched(process))
        return "\n".join(parts).casefold()


def subjects(frame: Frame) -> list[FilterRow]:
    """Every process with its job's name and the GPUs it works for."""
    names = {job.key: job.name for job in frame.jobs}
    by_job: dict[str, list[Process]] = {}
    for process in frame.processes:
        if process.job in names:
            by_job.setdefault(process.job, []).append(process)
    works_for: dict[Identity, tuple[str, ...]] = {}
    for processes in by_job.values():
        kin = members(processes)
        ranks: dict[Identity | None, tuple[str, ...]]
        ranks = {rank.identity: _indexes((rank,), frame) for rank in kin.ranks}
        everywhere = _indexes(processes, frame)
        for owner, loaders in kin.loaders.items():
            works_for.update({process.identity: ranks.get(owner, everywhere) for _, process in loaders})
        for owner, others in kin.others.items():
            works_for.update({process.identity: ranks.get(owner, everywhere) for process in others})
    return [
        FilterRow(
            process,
            frame,
            names.get(process.job or "", ""),
            _indexes((process,), frame) if process.gpus else works_for.get(process.identity, ()),
        )
        for process in frame.processes
    ]


def _indexes(processes: Iterable[Process], frame: Frame) -> tuple[str, ...]:
    gpus = frame.by_uuid
    return tuple({gpus[share.uuid].index for process in processes for share in process.gpus if share.uuid in gpus})


def using(frame: Frame, uuid: str) -> frozenset[Identity]:
    """The processes on a GPU or on an instance of it, and those that work for them."""
    gpu = frame.by_uuid.get(uuid)
    if gpu is None:
        return frozenset()
    return frozenset(
        subject.process.identity
        for subject in subjects(frame)
        if any(index == gpu.index or index.partition(":")[0] == gpu.index for index in subject.gpus)
    )


_NUMBER = re.compile(r"(-?[0-9]{1,15}(?:\.[0-9]{1,9})?)([A-Za-z%]*)(?:/s)?")
_RANGE = re.compile(r"(-?[0-9][0-9.]*[A-Za-z%]*)-(-?[0-9][0-9.]*[A-Za-z%]*(?:/s)?)")
_BINARY = {letter: 1024.0**power for power, letter in enumerate(("", "k", "m", "g", "t", "p"))}
_DECIMAL = {"": 1.0, "%": 1.0, "k": 1e3, "m": 1e6, "g": 1e9}
_TOLERANCE = 0.05  # what is drawn as 2.0G was never exactly that


class FilterError(ValueError):
    """What cannot be asked: the message, and from where to where in the text it is about."""

    def __init__(self, message: str, start: int, end: int) -> None:
        super().__init__(message)
        self.start, self.end = start, end


Ask = Callable[[FilterRow], bool]


@frozen_dataclass(frozen=True, slots=True)
class Term:
    """One part of a filter: what it asks, and the names it asks for, to suggest a near one for a misspelt name."""

    ask: Ask
    names: tuple[str, ...] = ()


def short(text: str) -> str:
    """Text in a message about it."""
    return text if len(text) <= 20 else f"{text[:19]}…"


@frozen_dataclass(frozen=True, slots=True)
class Words:
    """A field of text: it has any of the words somewhere, begins with it, or is it."""

    get: Callable[[FilterRow], str | None]
    like: Callable[[str, str], bool]
    example: str

    def term(self, sign: str, given: str, at: int) -> Term:
        """Compare the field; Wrong at a place in the text."""
        if sign not in ("=", "!="):
            raise FilterError(f"a text field only takes = and !=, as in {self.example}", at - len(sign), at)
        wanted = tuple(part for part in given.casefold().split(",") if part)
        if not wanted:
            raise FilterError(f"a word is missing, for example {self.example}", at, at + max(1, len(given)))
        if given[0] in "=<>":
            raise FilterError(f"use {sign} alone, for example {self.example}", at, at + 1)

        def ask(subject: FilterRow) -> bool:
            value = self.get(subject)
            return value is not None and any(self.like(value.casefold(), part) for part in wanted) == (sign == "=")

        return Term(ask, wanted if sign == "=" else ())


@frozen_dataclass(frozen=True, slots=True)
class NumberField:
    """A field of one number, or of many of which any may be meant; what is unknown compares to nothing."""

    get: Callable[[FilterRow], Collection[float]]
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
            raise FilterError(f"{sign} needs one value, as in {self.example}", at - len(given) - 1, at - 1)
        compare, bound = _SIGNS[sign], self._value(given, 0)
        return Term(lambda subject: any(compare(value, bound) for value in self.get(subject)))

    def _span(self, part: str, at: int) -> tuple[float, float]:
        if match := _RANGE.fullmatch(part):
            low, high = self._value(match[1], at), self._value(match[2], at + match.start(2))
            if low > high:
                raise FilterError(f"{short(part)} is an empty range: the lower value comes first", at, at + len(part))
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
            said = f"{short(text)} is not a valid value" if text else "a value is missing"
            raise FilterError(f"{said}, for example {self.example}", at, at + max(1, len(text))) from None


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


def _cards(subject: FilterRow) -> Collection[float]:
    return [float(card) for index in subject.gpus if (card := index.partition(":")[0]).isdecimal()]


def _rank(subject: FilterRow) -> Collection[float]:
    return () if subject.process.rank is None else (subject.process.rank,)


def _has_role(role: str, begins: str) -> bool:
    """Whether a role begins so, as JSON names it or as the table does: `loader`, `worker`."""
    return role.startswith(begins) or labels.role(Role(role)).startswith(begins)


def _of_column(column: Column) -> Words | NumberField:
    def number(subject: FilterRow) -> Collection[float]:
        value = column.value(subject.figures)
        return (value,) if isinstance(value, (int, float)) else ()

    def word(subject: FilterRow) -> str | None:
        value = column.value(subject.figures)
        return value if isinstance(value, str) else None

    if column.kind == "word":
        return Words(word, str.startswith, f"{column.id}=…")
    unit, example, near = _UNITS[column.kind]
    return NumberField(number, unit, column.id + example, near)


Field = Words | NumberField
_COMMAND = Words(lambda subject: labels.searched(subject.process), str.__contains__, "cmd=train.py")
FIELDS: dict[str, Field] = {
    "job": Words(lambda subject: subject.job or None, str.__contains__, "job=llama"),
    "role": Words(lambda subject: subject.process.role.value, _has_role, "role=worker"),
    "state": Words(lambda subject: subject.process.state, str.startswith, "state=D"),
    "cmd": _COMMAND,
    "command": _COMMAND,
    "gpu": NumberField(_cards, _plain, "gpu=0-3"),
    "rank": NumberField(_rank, _plain, "rank=0"),
    "user": Words(lambda subject: subject.process.user, str.__eq__, "user=alice"),
}
ALIASES: dict[str, tuple[str, ...]] = {column.id: column.also for column in SORTABLE if column.also}
ALIASES["cmd"] = ("name", "comm", "args")
for _column in SORTABLE:
    FIELDS.setdefault(_column.id, _of_column(_column))
for _column in SORTABLE:
    _title = _column.title.casefold().replace(" ", "-")
    FIELDS.setdefault(_title, FIELDS[_column.id])
    FIELDS.setdefault(_title.removesuffix("/s"), FIELDS[_column.id])
for _name, _others in ALIASES.items():
    for _other in _others:
        FIELDS.setdefault(_other, FIELDS[_name])


def field_of(name: str) -> Field | None:
    """What is called so; None where nothing is."""
    return FIELDS.get(name.casefold().replace("_", "-"))


HINT = "fields: user job rank gpu gpu% vram cpu% thr rss wait read write io state cmd"
_NEAR = 0.7  # a name that is less alike is another word, not a slip
EXAMPLE = "user=alice gpu=0-3 read>50M"

_TOKEN = re.compile(r'(?:"[^"]*"|[^\s"])+|"')
_SIGN = re.compile(r">=|<=|!=|=|>|<")
_TERM = re.compile(r"(!?)([A-Za-z][A-Za-z0-9_%/.-]*)(>=|<=|!=|=|>|<)(.*)", re.DOTALL)


@frozen_dataclass(frozen=True, slots=True)
class Filter:
    """What was typed, as questions that all must be answered by yes."""

    text: str
    terms: tuple[Term, ...]

    def found(self, frame: Frame) -> frozenset[Identity]:
        """The processes of a frame that match."""
        return frozenset(
            subject.process.identity for subject in subjects(frame) if all(term.ask(subject) for term in self.terms)
        )

    def nearest(self, frame: Frame) -> tuple[str, str, int] | None:
        """What an unknown name may have been meant to be: user or job, its name, how many processes it has."""
        counts: dict[tuple[str, str], int] = {}
        for subject in subjects(frame):
            for kind, name in (("user", subject.process.user), ("job", subject.job)):
                if name:
                    counts[kind, name] = counts.get((kind, name), 0) + 1
        known = {name.casefold(): (kind, name) for kind, name in counts}
        for wanted in (name for term in self.terms for name in term.names if name not in known):
            if close := difflib.get_close_matches(wanted, known, 1, 0.5):
                kind, name = known[close[0]]
                return kind, name, counts[kind, name]
        return None


def parse(text: str) -> Filter | None:
    """What was typed as a filter; None when it asks for nothing. Wrong says what is not understood, and where."""
    terms = [_term(match.group(), match.start()) for match in _TOKEN.finditer(text)]
    return Filter(text.strip(), tuple(terms)) if terms else None


def until(text: str, wrong: FilterError) -> Filter | None:
    """The parts before the one that is wrong: of that nothing is asked, nor of what it was while it was typed."""
    ends = [match.end() for match in _TOKEN.finditer(text) if match.end() <= wrong.start]
    return parse(text[: ends[-1]]) if ends else None


def _term(token: str, start: int) -> Term:
    if token == '"':
        raise FilterError("a quote is not closed", start, start + 1)
    match = None if token.startswith('"') else _TERM.fullmatch(token)
    if match is None:
        return _word(token, start)
    no, name, sign, given = match.groups()
    at = start + match.start(4)
    field = field_of(name)
    if field is None:
        close = difflib.get_close_matches(name.casefold(), FIELDS, 1, _NEAR)
        meant = f": did you mean {close[0]}?" if close else f'; quote "{short(token)}" to search for it as text; {HINT}'
        raise FilterError(f"unknown field {short(name)}{meant}", start + len(no), start + len(no) + len(name))
    if not given:
        raise FilterError(f"{name}{sign} needs a value, for example {field.example}", start, start + len(token))
    term = field.term(sign, given.replace('"', ""), at)
    return Term(lambda subject: not term.ask(subject)) if no else term


def _word(token: str, start: int) -> Term:
    no, text = token.startswith("!"), token.removeprefix("!").replace('"', "").casefold()
    if not text:
        raise FilterError("a word is missing", start, start + len(token))
    if sign := _SIGN.match(token):
        raise FilterError(f"no spaces around {sign[0]}, as in {EXAMPLE.split()[-1]}", start, start + len(sign[0]))
    if no:
        return Term(lambda subject: text not in subject.text)
    return Term(lambda subject: text in subject.text, (text,))
