"""What is known of a job's collectives, as sentences, tables and one object."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gputop.collectives import ras
from gputop.collectives.comparison import Comparison, Discrepancy, Position, RankState, names
from gputop.collectives.survey import Survey
from gputop.frozen_dataclass import frozen_dataclass
from gputop.report import Do, Page, Point, ReportTable

_MOST_ROWS = 64
_MOST_REASONS = 4
_STACKS = Do("At the next hang, compare the stacks of all ranks. PID is that of any rank.", "gputop stack --job PID")
_ERRORS = Do("Check for GPU and network errors.", "sudo dmesg | grep -iE 'xid|nvrm|mlx5'")


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Collectives:
    """The collectives of a running job: the newest survey, and what it means."""

    survey: Survey
    comparison: Comparison | None

    @property
    def known(self) -> bool:
        """Whether any rank or NCCL answered."""
        return self.comparison is not None or self.survey.ras is not None

    @property
    def text(self) -> str:
        """The most important sentence; empty if nothing is known."""
        return next(iter(self.words), "") if self.known else ""

    @property
    def words(self) -> tuple[str, ...]:
        """All of it as sentences."""
        found = sentences(self.comparison) if self.comparison else []
        if self.survey.ras is not None:
            found += self.ras_words or ["NCCL RAS: all ranks launched the same collectives."]
        return (*found, *self._reasons())

    @property
    def ras_words(self) -> list[str]:
        """What NCCL's RAS says of ranks that are behind, as sentences."""
        labels = {one.process.pid: one.label for one in self.survey.answers}
        return ras.sentences(self.survey.ras, labels) if self.survey.ras else []

    def _reasons(self) -> Iterator[str]:
        """Why ranks are unknown, where others are known or something answered in vain."""
        by_reason: dict[str, list[str]] = {}
        for one in self.survey.answers:
            if one.record is None and (one.why or self.comparison is not None):
                by_reason.setdefault(one.why or "no debug server and no dump", []).append(one.label)
        for reason, labels in list(by_reason.items())[:_MOST_REASONS]:
            yield f"Collectives of {names(labels)} are unknown: {reason}."
        if self.survey.ras_why:
            yield f"{self.survey.ras_why}."

    def page(self, *, words: bool = True) -> Page:
        """The section of a report; without `words` only the table."""
        sources = dict.fromkeys(one.source for one in self.survey.answers if one.source)
        if self.survey.ras is not None:
            sources[f"NCCL {self.survey.ras.version} RAS"] = None
        return Page(
            title=f"Collectives, from {', '.join(list(sources)[:4])}",
            words=self.words if words else (),
            tables=(table(self.comparison),) if self.comparison else (),
        )

    def as_json(self) -> dict[str, Any]:
        """The same as one object."""
        return {
            "text": self.text,
            **(numbers(self.comparison) if self.comparison else {"discrepancies": [], "ranks": []}),
            "sources": [
                {
                    "pid": one.process.pid,
                    "rank": one.process.rank,
                    "source": one.source or None,
                    "error": one.why or None,
                }
                for one in self.survey.answers
            ],
            "ras": None if self.survey.ras is None else ras.as_json(self.survey.ras),
        }


def conclude(survey: Survey, before: Survey | None = None, now: Mapping[str, Position] | None = None) -> Collectives:
    """What a survey means; `before` and `now` as in `Survey.comparison`."""
    return Collectives(survey=survey, comparison=survey.comparison(before, now))


def sentences(found: Comparison) -> list[str]:
    """What records say together: the first cause, its consequences, and what is unknown."""
    said = [_sentence(one) for one in found.discrepancies]
    waiting = [state for state in found.states if state.waits_in]
    if not said and found.advances:
        said.append("The ranks advance from collective to collective: none is stuck.")
    elif not said and waiting:
        said += [f"{_upper(one.label)} waits in {one.waits_in}{_at(one)}." for one in waiting[:4]]
    elif not said:
        said.append("No rank waits in a collective.")
    if found.unrecorded and (waiting or said) and not found.advances:
        missing = names([f"rank {rank}" for rank in found.unrecorded])
        said.append(f"There is no record of {missing}: not entering a collective cannot be excluded there.")
    return said


def _sentence(one: Discrepancy) -> str:
    text = f"{_upper(one.text)}."
    if one.kind == "missing" and one.waiting:
        text += f" {_upper(names(one.waiting))} {'waits' if len(one.waiting) == 1 else 'wait'} in it."
    return text


def _at(state: RankState) -> str:
    return f" ({state.place})" if state.place else ""


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]


def points(found: Comparison) -> tuple[Point, ...]:
    """What records say together, as items with steps."""
    return tuple(
        Point(severity="crit", text=_sentence(one), steps=tuple(_steps(one, found))) for one in found.discrepancies
    )


def _steps(one: Discrepancy, found: Comparison) -> Iterator[str | Do]:
    line = f" {one.place}" if one.place else " that line"
    if one.kind == "missing" and one.victim:
        yield "Read the other groups first: a rank that waits in another collective is late because of that."
    elif one.kind == "missing":
        yield f"Find out why {names(one.ranks)} did not reach{line}: its log, its stack, its host."
        yield "Check collectives inside `if rank == 0`, uneven batches per rank, slow checkpoints and evaluation."
        yield _STACKS
    elif one.kind == "operation":
        yield "Call the same collectives in the same order on all ranks: check branches on the rank or on data."
    elif one.kind == "sizes":
        yield "Pass tensors of equal size on all ranks: pad them, or exchange the sizes first."
    elif one.kind == "dtypes":
        yield "Use one type on all ranks: check autocast, and the precision of model and optimizer."
    else:
        if found.unrecorded:
            yield "Get the records of the other ranks: one of them may never have entered it."
        yield "If all ranks entered it, suspect the network or a GPU: run with NCCL_DEBUG=INFO."
        yield _ERRORS


def table(found: Comparison) -> ReportTable:
    """Where each rank is: in the groups that ranks wait in, else in the first one."""
    states = relevant(found)
    several = len({state.group for state in states}) > 1
    rows = []
    for one in states[:_MOST_ROWS]:
        entered = f"{one.entered_name} #{one.entered}".strip() if one.entered else "none"
        completed = f"#{one.completed}" if one.completed else "none"
        cells = (entered, completed, one.waits_in, one.place)
        rows.append((f"{'> ' if one.missing else ''}{one.label}", *((one.group,) if several else ()), *cells))
    head = ("", *(("group",) if several else ()), "last entered", "completed", "waits in", "at")
    return ReportTable("Ranks", head, tuple(rows))


def relevant(found: Comparison) -> list[RankState]:
    """The states in the groups that ranks wait in, else in the first one."""
    groups = {state.group for state in found.states if state.missing or state.waits_in}
    groups = groups or {state.group for state in found.states[:1]}
    return [state for state in found.states if state.group in groups]


def numbers(found: Comparison) -> dict[str, Any]:
    """The comparison as an object."""
    return {
        "discrepancies": [
            {
                "kind": one.kind,
                "group": one.group.name,
                "number": one.number,
                "operation": one.operation,
                "place": one.place or None,
                "ranks": list(one.ranks),
                "waiting": list(one.waiting),
                "text": one.text,
            }
            for one in found.discrepancies
        ],
        "ranks": [
            {
                "label": one.label,
                "rank": one.rank,
                "group": one.group,
                "entered": one.entered,
                "operation": one.entered_name or None,
                "completed": one.completed,
                "waits_in": one.waits_in or None,
                "place": one.place or None,
                "missing": one.missing,
            }
            for one in found.states
        ],
        "unrecorded": list(found.unrecorded),
        "advances": found.advances,
    }
