"""Field values: many numbers in one driver call, each declared with its id, its scope and what it becomes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from ctypes import c_int, create_string_buffer
from struct import Struct
from typing import Any, NamedTuple

from gputop.collect.nvml.device import Device, reads
from gputop.collect.nvml.gate import ABSENT, OK, Lost, NoValue, refusal
from gputop.frozen_dataclass import frozen_dataclass

ALL = 0xFFFFFFFF  # the scope that sums every NVLink
EACH = -1  # every NVLink by itself, summed here
# nvmlFieldValue_t: field, scope, time stamp, latency, type of the value, return code, the value
_ENTRY = Struct("=IIqqII8s")
_VALUES = tuple(map(Struct, ("=d", "=I", "=Q", "=Q", "=q", "=i", "=H")))  # by type
_PLAN_S = 10.0  # so much later is asked again what was refused
_NOT_AVAILABLE = frozenset({0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF})
_UNTOUCHED = 0xFFFFFFFF  # no return code: an entry that the driver leaves as it is has no value
_DOUBLE, _WHOLE = 0, Struct("=Q")
_LEAST_DOUBLE = 1 << 52  # the bits of a smaller number are no double that means anything: they are a whole number

Source = tuple[int, int]  # field id, scope


class FieldAnswer(NamedTuple):
    """One field value and the driver's time stamp."""

    value: float
    stamp_us: int


Answered = dict[Source, FieldAnswer | NoValue]
Make = Callable[[Device, str, FieldAnswer], Any]


@frozen_dataclass(frozen=True, slots=True)
class FieldSource:
    """One field of a Gpu: what turns the number into it, and where the number comes from, best source first."""

    name: str
    make: Make
    sources: tuple[Source, ...]


def field_value(name: str, make: Make, *ids: int, scope: int = 0) -> FieldSource:
    """A field read from the first of these ids that answers."""
    return FieldSource(name, make, tuple((one, scope) for one in ids))


def gauge(scale: float = 1.0, low: float = 0.0, high: float = float("inf")) -> Make:
    """A number as it is, scaled; out of its range it is rejected."""

    def make(_card: Device, _name: str, answer: FieldAnswer) -> float | None:
        value = answer.value * scale
        return value if low <= value <= high else None

    return make


def count(high: float = 2**53) -> Make:
    """A whole number."""
    return lambda _card, _name, answer: int(answer.value) if 0 <= answer.value <= high else None


def flag(_card: Device, _name: str, answer: FieldAnswer) -> bool | None:
    """A yes or no."""
    return bool(answer.value) if answer.value in (0, 1) else None


def _fell(card: Device, name: str, value: float) -> bool:
    """Whether a counter is below what it was at its last sample."""
    before = card.counts.get(name)
    card.rate(name, value)
    return before is not None and value < before.value


def total(scale: float = 1.0) -> Make:
    """A counter as it stands; where it went backwards there is a gap of one sample."""
    return lambda card, name, answer: None if _fell(card, name, answer.value) else answer.value * scale


def tally(card: Device, name: str, answer: FieldAnswer) -> int | None:
    """The same of a counter of whole things: errors, packets."""
    return None if _fell(card, name, answer.value) else int(answer.value)


def rate(scale: float = 1.0, high: float = 4e12) -> Make:
    """How fast a counter grows, per second; faster than any link is rejected."""

    def make(card: Device, name: str, answer: FieldAnswer) -> float | None:
        grown = card.rate(name, answer.value, answer.stamp_us)
        return None if grown is None or grown * scale > high else grown * scale

    return make


def share(card: Device, name: str, answer: FieldAnswer) -> float | None:
    """Nanoseconds spent in a state, as percent of the time that passed."""
    grown = card.rate(name, answer.value, answer.stamp_us)
    if grown is None or grown > 1.5e9:
        return None
    return min(100.0, grown / 1e7)


def read(card: Device, wanted: Iterable[FieldSource]) -> dict[str, Any]:
    """The fields by name, those that are read by their tier, from one driver call for all of them."""
    wanted = tuple(wanted)
    plan: _Plan | None = card.plans.get(id(wanted))
    if plan is None or plan.wanted is not wanted or card.gate.clock() >= plan.until_s:
        of_tier = tuple([one for one in wanted if reads(card, one.name)])
        sources = (source for one in of_tier for source in questions(card, one))
        plan = card.plans[id(wanted)] = _planned(card, wanted, of_tier, sources)
    answers = _answers(card, plan)
    return {one.name: choose(card, one, answers) for one in plan.fields}


class _Plan(NamedTuple):
    """One call: worked out once for a GPU, and again when a field begins or ceases to answer."""

    wanted: tuple[FieldSource, ...]
    fields: tuple[FieldSource, ...]  # of these, those that are read by their tier
    sources: tuple[Source, ...]
    request: bytes
    refused: Answered  # lately, so they are not asked
    until_s: float


def _planned(
    card: Device, wanted: tuple[FieldSource, ...], of_tier: tuple[FieldSource, ...], asked: Iterable[Source]
) -> _Plan:
    every = dict.fromkeys(asked)
    refused: Answered = {source: no for source in every if (no := card.silent(source))}
    sources = tuple([source for source in every if source not in refused])
    request = b"".join([_ENTRY.pack(*source, 0, 0, 0, _UNTOUCHED, b"") for source in sources])
    return _Plan(wanted, of_tier, sources, request, refused, card.gate.clock() + _PLAN_S)


def _links(card: Device, source: Source) -> list[Source]:
    number, scope = source
    return [(number, link) for link in range(card.links)] if scope == EACH else [source]


def questions(card: Device, one: FieldSource) -> list[Source]:
    """The sources up to the first that answered last time: a lesser one is asked only where the better are silent."""
    asked: list[Source] = []
    for source in one.sources:
        links = _links(card, source)
        asked += links
        if any(link in card.proven for link in links):
            break
    return asked


def choose(card: Device, one: FieldSource, answers: Answered) -> Any:
    """The field's value from the best source that answered, or why there is none."""
    no: NoValue | None = None
    for source in one.sources:
        answer = _summed(card, source, answers) if source[1] == EACH else answers.get(source)
        if isinstance(answer, FieldAnswer):
            return one.make(card, one.name, answer)
        no = no or answer
    return no or NoValue("unsupported")


def _summed(card: Device, source: Source, answers: Answered) -> FieldAnswer | NoValue | None:
    """The sum of every link that answered; if none did, why."""
    found = [answers[link] for link in _links(card, source) if link in answers]
    good = [answer for answer in found if isinstance(answer, FieldAnswer)]
    if good:
        return FieldAnswer(sum(answer.value for answer in good), good[0].stamp_us)
    return found[0] if found else None


def ask(card: Device, asked: Iterable[Source]) -> Answered:
    """One nvmlDeviceGetFieldValues; what this GPU refused lately is left out of it."""
    return _answers(card, _planned(card, (), (), asked))


def _answers(card: Device, plan: _Plan) -> Answered:
    answers: Answered = {**plan.refused}
    if not plan.sources:
        return answers
    # in a buffer of our own: the wrapper fills and reads it attribute by attribute, ten times slower
    buffer = create_string_buffer(plan.request, len(plan.request))
    card.symbol("nvmlDeviceGetFieldValues", c_int(len(plan.sources)), buffer)
    proven = card.proven
    for source, (_, _, stamp_us, _, kind, code, raw) in zip(plan.sources, _ENTRY.iter_unpack(buffer.raw), strict=True):
        answers[source] = answer = _answer(card, source, stamp_us, kind, code, raw)
        known = type(answer) is FieldAnswer
        if known is not (source in proven):
            if known:
                proven.add(source)
            else:
                proven.discard(source)
            card.plans.clear()
    return answers


def _answer(card: Device, source: Source, stamp_us: int, kind: int, code: int, raw: bytes) -> FieldAnswer | NoValue:
    if code == _UNTOUCHED:
        return ABSENT
    if code != OK:
        refused = refusal(code)
        if isinstance(refused, Lost):
            raise refused
        card.heed(source, refused)
        return refused.no
    value = _value(kind, raw)
    if value is None or value in _NOT_AVAILABLE or value != value:
        return ABSENT
    return FieldAnswer(value, stamp_us)


def _value(kind: int, raw: bytes) -> float | None:
    """The number in an entry; some drivers leave the type of a whole number at that of a double."""
    if kind >= len(_VALUES):
        return None
    whole: int = _WHOLE.unpack(raw)[0]
    if kind == _DOUBLE and whole < _LEAST_DOUBLE:
        return whole
    value: float = _VALUES[kind].unpack_from(raw)[0]
    return value
