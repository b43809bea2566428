"""Compare the flight records of several ranks: who never entered a collective, and whose calls do not match."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

from gputop.collectives.flight_record import EVERYONE, FlightRecord, GroupKey, GroupRecord, Operation
from gputop.frozen_dataclass import frozen_dataclass

Kind = Literal["missing", "operation", "sizes", "dtypes", "stuck"]

_NAMED = 8  # ranks listed
_SEVERAL = 2  # ranks that a comparison needs
# each rank may pass other sizes; the root alone has outputs of gather and inputs of scatter
_INPUTS_DIFFER = ("scatter", "all_to_all", "alltoall")
_OUTPUTS_DIFFER = ("gather", "all_to_all", "alltoall")


@frozen_dataclass(frozen=True, slots=True)
class RankRecord:
    """The record of one rank. `rank` is None if unknown; `label` names it: `rank 3`."""

    rank: int | None
    label: str
    record: FlightRecord


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Discrepancy:
    """Ranks that do not do what the others of a process group do.

    `missing`: they never entered a collective; `operation`, `sizes`, `dtypes`: they called it differently; `stuck`: all
    entered it, and it does not complete. `text` is a sentence without its full stop, with the lines of the code.
    """

    kind: Kind
    group: GroupKey
    number: int
    operation: str
    place: str  # where the others call it
    ranks: tuple[str, ...]  # labels of those that differ; none if all are stuck
    waiting: tuple[str, ...]
    text: str
    victim: bool = False  # some of them wait in another collective themselves

    @property
    def called(self) -> str:
        """`all_reduce #4711`."""
        return f"{self.operation} #{self.number}"


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class RankState:
    """Where a rank is in one process group: the last collectives entered and completed, and what it waits in."""

    label: str
    rank: int | None
    group: str
    entered: int
    entered_name: str
    completed: int
    waits_in: str
    place: str
    missing: bool


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What the records of several ranks say together. `advances`: ranks entered collectives between two samples."""

    discrepancies: tuple[Discrepancy, ...]
    states: tuple[RankState, ...]
    unrecorded: tuple[int, ...]  # members of their groups without a record
    advances: bool = False

    @property
    def first(self) -> Discrepancy | None:
        """The one to look at first."""
        return next(iter(self.discrepancies), None)


class Position(NamedTuple):
    """Where the main thread of a rank is, from its stack."""

    text: str  # load (data.py:12)
    called: str = ""  # train.py:88, the line that calls the collective it is in; empty if it is in none


def compare(
    ranks: Sequence[RankRecord], before: Sequence[RankRecord] = (), now: Mapping[str, Position] | None = None
) -> Comparison:
    """Compare records of ranks that stand still, or were dumped at their end.

    `before`: earlier records: ranks that entered a collective since then are not missing from it. `now`: where ranks
    are, by label, if their stacks are known.
    """
    keys = list(dict.fromkeys(key for one in ranks for key in one.record.groups))
    groups = [_Group(key, ranks, now or {}) for key in keys]
    advances = _advanced(ranks, before)
    found: list[Discrepancy] = []
    for group in groups:
        mismatch = next(group.mismatches(), None)
        # what follows a call that does not match is a consequence of it
        missing = None if advances else group.missing(groups)
        if mismatch is not None and (missing is None or mismatch.number <= missing.number):
            found.append(mismatch)
        elif missing is not None:
            found.append(missing)
    known = {one.rank for one in ranks}
    members = {rank for key in keys for rank in key.ranks}
    absent = {(one.group, label) for one in found if one.kind == "missing" for label in one.ranks}
    return Comparison(
        discrepancies=tuple(sorted(found, key=_order)),
        states=tuple(state for group in groups for state in group.states(absent)),
        unrecorded=tuple(sorted(members - known)) if None not in known else (),
        advances=advances,
    )


def _order(one: Discrepancy) -> tuple[bool, bool]:
    """A cause before its consequences: ranks that wait elsewhere are late because of others."""
    return one.kind == "stuck", one.victim


def _advanced(ranks: Sequence[RankRecord], before: Sequence[RankRecord]) -> bool:
    earlier = {one.label: one.record.groups for one in before}
    for one in ranks:
        groups = earlier.get(one.label)
        if groups is None:
            continue
        for key, group in one.record.groups.items():
            was = groups.get(key)
            if was is None or (was.entered, was.completed) != (group.entered, group.completed):
                return True
    return False


class _Where(NamedTuple):
    """Where a rank is instead: `is`/`are` `in load (data.py:12)`."""

    verb: str
    plural: str
    place: str


class _Group:
    """One process group, with the records of its members."""

    def __init__(self, key: GroupKey, ranks: Sequence[RankRecord], now: Mapping[str, Position]) -> None:
        self.key, self._now = key, now
        described = (one.record.groups[key].description for one in ranks if key in one.record.groups)
        description = next((each for each in described if each not in ("", "undefined")), "")
        self.name = description or f"group {key.name}"
        self.members = [one for one in ranks if self._has(one)]
        none = GroupRecord(key=key, description="", operations={}, entered=0, completed=0)
        self.records = {one.label: one.record.groups.get(key, none) for one in self.members}

    def _has(self, one: RankRecord) -> bool:
        """Whether a rank is a member. Without a list of members, the group of all ranks has them all."""
        backends = {key.backend for key in one.record.groups}
        everyone = not self.key.ranks and self.name == EVERYONE and (not backends or self.key.backend in backends)
        return self.key in one.record.groups or one.rank in self.key.ranks or everyone

    @property
    def within(self) -> str:
        """` of tp`, to follow the name of a collective; empty for the group of all ranks."""
        return "" if self.name == EVERYONE else f" of {self.name}"

    def missing(self, groups: Sequence[_Group]) -> Discrepancy | None:
        """The first collective that some wait in, with the ranks that never entered it."""
        waits = {label: number for label, record in self.records.items() if (number := record.waits_in) is not None}
        for number in sorted(set(waits.values())):
            absent = [label for label, record in self.records.items() if record.entered < number]
            waiting = [label for label, at in waits.items() if at == number]
            if absent:
                return self._missing(number, absent, waiting, groups)
        if waits and len(self.records) >= _SEVERAL:
            number = min(waits.values())
            return self._stuck(number, [label for label, at in waits.items() if at == number])
        return None

    def _missing(self, number: int, absent: list[str], waiting: list[str], groups: Sequence[_Group]) -> Discrepancy:
        called = self._operation(number, waiting)
        elsewhere = {label: other for label in absent if (other := self._elsewhere(label, groups))}
        where = {label: elsewhere.get(label) or self._seen(label) or self._latest(label) for label in absent}
        text = f"{names(absent)} never entered {self._called(called, number)}{_at(called)}"
        if len(set(where.values())) == 1 and (shared := where[absent[0]]) is not None:
            verb = f"it {shared.verb}" if len(absent) == 1 else f"they {shared.plural}"
            text += f"; {verb} {shared.place}"
        found = self._discrepancy("missing", number, called, waiting, text)
        return replace(found, ranks=tuple(absent), victim=bool(elsewhere))

    def _stuck(self, number: int, waiting: list[str]) -> Discrepancy:
        """All members with a record entered it: the others may be missing, or a GPU or the network."""
        called = self._operation(number, waiting)
        what = f"{self._called(called, number)}{_at(called)}"
        done = [label for label, record in self.records.items() if label not in waiting]
        if done:
            text = f"{names(waiting)} {_verb(waiting, 'waits', 'wait')} in {what}, which {names(done)} completed"
        else:
            text = f"all {len(waiting)} recorded ranks wait in {what}"
        return self._discrepancy("stuck", number, called, waiting, text)

    def _discrepancy(
        self, kind: Kind, number: int, called: Operation | None, waiting: list[str], text: str
    ) -> Discrepancy:
        return Discrepancy(
            kind=kind,
            group=self.key,
            number=number,
            operation=called.name if called else "a collective",
            place=called.place if called else "",
            ranks=(),
            waiting=tuple(waiting),
            text=text,
        )

    def _called(self, called: Operation | None, number: int) -> str:
        return f"{called.called if called else f'collective #{number}'}{self.within}"

    def _operation(self, number: int, labels: Sequence[str]) -> Operation | None:
        """What these ranks called, preferably with its line."""
        some = [self._placed(label, one) for label in labels if (one := self.records[label].last(number)) is not None]
        return next((one for one in some if one.place), next(iter(some), None))

    def _placed(self, label: str, one: Operation) -> Operation:
        """An operation that a rank waits in, with the line from its stack if the recorder has none."""
        seen = self._now.get(label)
        waits = one.number == self.records[label].waits_in
        return replace(one, place=seen.called) if seen and waits and not one.place else one

    def _seen(self, label: str) -> _Where | None:
        seen = self._now.get(label)
        return _Where("is", "are", f"in {seen.text}") if seen and seen.text else None

    def _elsewhere(self, label: str, groups: Sequence[_Group]) -> _Where | None:
        """The collective of another group that a rank waits in."""
        for group in groups:
            record = group.records.get(label)
            if group is self or record is None or (number := record.waits_in) is None:
                continue
            called = record.last(number)
            return _Where("waits", "wait", f"in {group._called(called, number)}{_at(called)}")
        return None

    def _latest(self, label: str) -> _Where | None:
        last = self.records[label].last()
        return _Where("last entered", "last entered", f"{last.called}{_at(last)}") if last else None

    def mismatches(self) -> Iterator[Discrepancy]:
        """Collectives that have not completed everywhere and that ranks called differently, the first one first."""
        counts = Counter(number for record in self.records.values() for number in record.operations)
        for number in sorted(number for number, count in counts.items() if count >= _SEVERAL):
            if all(number <= record.completed for record in self.records.values()):
                continue
            called = {
                label: record.operations[number]
                for label, record in self.records.items()
                if number in record.operations
            }
            for kind, describe in _ASPECTS.items():
                if (found := self._mismatch(kind, number, called, describe)) is not None:
                    yield found
                    break

    def _mismatch(
        self,
        kind: Kind,
        number: int,
        called: Mapping[str, tuple[Operation, ...]],
        describe: Callable[[Operation], object],
    ) -> Discrepancy | None:
        aspects = {label: tuple(map(describe, some)) for label, some in called.items()}
        compared = [aspect for aspect in aspects.values() if any(aspect)]
        if len(set(compared)) < _SEVERAL:
            return None
        usual, count = Counter(compared).most_common(1)[0]
        odd = [label for label, aspect in aspects.items() if any(aspect) and aspect != usual]
        others = [label for label, aspect in aspects.items() if aspect == usual]
        most, other = called[odd[0]][-1], called[others[0]][-1]
        tie = 2 * count <= len(compared)
        rest = names(others) if tie or len(called) > len(odd) + len(others) else "the others"
        if kind == "operation":
            text = f"{names(odd)} called {_list(called[odd[0]])} #{number}{_at(most)}, "
            text += f"{rest} {_list(called[others[0]])} #{number}{_at(other)}{self.within}"
        else:
            what = "sizes" if kind == "sizes" else "types"
            text = f"{what} differ in {other.called}{self.within}: {names(odd)} passed {_tensors(most)}{_at(most)}, "
            text += f"{rest} {_tensors(other)}{_at(other)}"
        return Discrepancy(
            kind=kind, group=self.key, number=number, operation=other.name, place=other.place, ranks=tuple(odd),
            waiting=tuple(others), text=text,
        )  # fmt: skip

    def states(self, absent: set[tuple[GroupKey, str]]) -> Iterator[RankState]:
        """Each member's state in this group; `absent`: members that never entered a collective of a group."""
        for one in self.members:
            record = self.records[one.label]
            waits = record.waits_in
            at = record.last(waits) if waits is not None else record.sent[0] if record.sent else record.last()
            last = record.last()
            at = self._placed(one.label, at) if at is not None and waits is not None else at
            yield RankState(
                label=one.label,
                rank=one.rank,
                group=self.name,
                entered=record.entered,
                entered_name=last.name if last else "",
                completed=record.completed,
                waits_in=(at.called if at else f"#{waits}") if waits is not None else _peers(record),
                place=at.place if at else "",
                missing=(self.key, one.label) in absent,
            )


def _peers(record: GroupRecord) -> str:
    """The point-to-point operation that it waits in: `recv 3<-2`."""
    return record.sent[0].name if record.sent else ""


def _operation(one: Operation) -> object:
    return one.name


def _sizes(one: Operation) -> object:
    """Numbers of elements that must be equal on all ranks; empty if none must."""
    inputs = () if one.name.startswith(_INPUTS_DIFFER) or _uneven(one) else tuple(each.elements for each in one.inputs)
    outputs = () if one.name.startswith(_OUTPUTS_DIFFER) or _uneven(one) else _elements(one)
    return (inputs, outputs) if inputs or outputs else ()


def _elements(one: Operation) -> tuple[int, ...]:
    return tuple(each.elements for each in one.outputs)


def _uneven(one: Operation) -> bool:
    """Whether each rank may pass other sizes: all_gather_v and the like; a barrier has none of its own."""
    return one.name.endswith(("_v", "_v_single", "barrier"))


def _dtypes(one: Operation) -> object:
    return tuple(dict.fromkeys(each.dtype for each in (*one.inputs, *one.outputs)))


_ASPECTS: dict[Kind, Callable[[Operation], object]] = {"operation": _operation, "sizes": _sizes, "dtypes": _dtypes}


def _list(some: Sequence[Operation]) -> str:
    return ", ".join(dict.fromkeys(one.name for one in some[:4]))


def _tensors(one: Operation) -> str:
    some = one.inputs or one.outputs
    more = f" and {len(some) - 2} more" if len(some) > 2 else ""
    return ", ".join(each.text for each in some[:2]) + more if some else "nothing"


def _at(one: Operation | None) -> str:
    """` (train.py:88)`; empty if the line is unknown."""
    return f" ({one.place})" if one and one.place else ""


def _verb(labels: Sequence[str], one: str, several: str) -> str:
    return one if len(labels) == 1 else several


def names(labels: Sequence[str]) -> str:
    """`rank 3`, `ranks 1, 2`, `ranks 0, 1, 2 and 5 more`; other labels as they are."""
    more = f" and {len(labels) - _NAMED} more" if len(labels) > _NAMED else ""
    numbers = [label.removeprefix("rank ") for label in labels]
    if len(labels) > 1 and all(number.isdecimal() for number in numbers):
        return f"ranks {', '.join(numbers[:_NAMED])}{more}"
    return ", ".join(labels[:_NAMED]) + more
