"""Dumps of PyTorch's flight recorder as files: of one rank, or of several ranks compared."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from gputop.collectives.comparison import Comparison, RankRecord, compare
from gputop.collectives.flight_record import FlightRecord, from_json, is_dump, read, value_of
from gputop.collectives.report import numbers, points, sentences, table
from gputop.frozen_dataclass import frozen_dataclass
from gputop.report import Page
from gputop.safe.files import Refused

_RANK = re.compile(r"(\d{1,6})(?:\.[A-Za-z]{1,8})?$")  # the name of a dump ends with the rank
_JSON = re.compile(r'\s*\{[\s\S]*"(?:profiling_name|pg_config)"')
_MOST_JSON = 64 << 20  # bytes
_ALONE = "Compare the dumps of all ranks to find the one that is missing: gputop explain PREFIX*"


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class FlightDump:
    """The dump of one rank."""

    record: FlightRecord

    @property
    def problems(self) -> tuple[str, ...]:
        """Parts that were not read."""
        return (f"The oldest {self.record.cut:,} collectives were not read.",) if self.record.cut else ()

    def page(self, name: str) -> Page:
        """The report on this dump alone."""
        return page([self], [name])

    def as_json(self, name: str) -> dict[str, Any]:
        """The same as one object."""
        return {
            "kind": "flight-recorder",
            "file": name,
            "problems": list(self.problems),
            "rank": rank(name),
            "version": self.record.version,
            "operations": self.record.operations,
            **numbers(_compared([self], [name])),
        }


def looks_like(beginning: str) -> bool:
    """Whether a file with this beginning is a dump as JSON."""
    return _JSON.match(beginning) is not None


def pickled(data: bytes) -> FlightDump | None:
    """The dump in a pickle; None if it is another kind of pickle, or none of plain values."""
    try:
        found = value_of(data)
    except Refused:
        if b"pg_config" not in data:
            return None
        raise
    return FlightDump(record=read(found)) if is_dump(found) else None


def from_text(data: bytes) -> FlightDump:
    """The dump in JSON, as the debug server answers; Refused if it is none."""
    if len(data) > _MOST_JSON:
        raise Refused(f"larger than {_MOST_JSON >> 20} MiB: record with a smaller TORCH_FR_BUFFER_SIZE")
    return FlightDump(record=from_json(data))


def rank(name: str) -> int | None:
    """The rank in the name of a dump, as nccl_trace_rank_3; None if there is none."""
    found = _RANK.search(name)
    return int(found[1]) if found else None


def why_not_one_job(names: Sequence[str], dumps: Sequence[FlightDump]) -> str | None:
    """Why dumps are not those of the ranks of one job; None if they may be."""
    ranks = [rank(name) for name in names]
    if None in ranks:
        return f"{names[ranks.index(None)]} does not end with a rank, as nccl_trace_rank_3 does"
    twice = [one for one, count in Counter(ranks).items() if count > 1]
    if twice:
        return f"rank {twice[0]} has {Counter(ranks)[twice[0]]} files"
    for one, dump in zip(ranks, dumps, strict=True):
        strange = [key.ranks for key in dump.record.groups if key.ranks and one not in key.ranks]
        if strange:
            return f"rank {one} is in none of its groups"
    sizes = {len(key.ranks) for dump in dumps for key, group in dump.record.groups.items() if group.everyone}
    return f"they are of jobs of {' and '.join(map(str, sorted(sizes)))} ranks" if len(sizes) > 1 else None


def page(dumps: Sequence[FlightDump], names: Sequence[str]) -> Page:
    """The report on the dumps of some ranks of one job."""
    found = _compared(dumps, names)
    first = dumps[0].record
    library = f", NCCL {first.library}" if first.library else ""
    operations = [dump.record.operations for dump in dumps]
    recorded = f"{min(operations):,}" if len(set(operations)) == 1 else f"{min(operations):,} to {max(operations):,}"
    items = points(found)
    words = [problem for dump in dumps for problem in dump.problems]
    words += [] if items else sentences(found)
    if len(dumps) == 1:
        words.append(f"{_ALONE}.")
    return Page(
        title=names[0] if len(dumps) == 1 else f"{len(dumps)} ranks, collectives compared",
        about=f"PyTorch flight recorder {first.version}{library}: {recorded} collectives{_each(dumps)}",
        words=(*words, *(sentences(found)[len(items) :] if items else ())),
        points=items,
        tables=(table(found),),
        notes=("read without unpickling: no code in it was run",),
    )


def joint_numbers(dumps: Sequence[FlightDump], names: Sequence[str]) -> Mapping[str, Any]:
    """The comparison of several dumps as one object."""
    return numbers(_compared(dumps, names))


def _each(dumps: Sequence[FlightDump]) -> str:
    return " per rank" if len(dumps) > 1 else ""


def _compared(dumps: Sequence[FlightDump], names: Sequence[str]) -> Comparison:
    records = []
    for dump, name in zip(dumps, names, strict=True):
        number = rank(name)
        records.append(RankRecord(number, name if number is None else f"rank {number}", dump.record))
    return compare(sorted(records, key=lambda one: (one.rank is None, one.rank or 0)))
