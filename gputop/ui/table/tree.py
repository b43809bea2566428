"""Jobs, their ranks and loaders as the lines of a table: nested or flat, folded and in order. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, NamedTuple

from gputop import labels
from gputop.columns import BY_ID, Column, Preset
from gputop.frozen_dataclass import frozen_dataclass
from gputop.model import Frame, Identity, Job, Process, Role
from gputop.process_totals import Figures
from gputop.ui.table.filter import Filter, using
from gputop.ui.table.kinship import Members, Numbered, members
from gputop.ui.table.row import LEVELS, Key, Kind, TableRow, depth, process_key

BUSY_PERCENT = 100.0  # a process without GPU kin is shown above this,
BUSY_BYTES_PER_S = 50e6  # or above this of reading and writing
LOADERS_SHOWN = 3
Idle = Callable[[str], float | None]  # seconds since a GPU, by uuid, did anything; None if it is at work

_NOISE, _LEAST_NOISE = 0.05, 0.5  # change of a noisy value that moves no line: relative, and absolute but for seconds


class Place(NamedTuple):
    """Where an outermost line stands, and the value that put it there."""

    at: int
    value: float | str | None = None


Order = Mapping[Key, Place]
NOWHERE: Order = {}


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class TableView:
    """How the table is shown."""

    tree: bool = True
    sort: str = "cpu"
    reverse: bool = False
    level: int = 1  # unfolded down to here, where `folds` says nothing else
    folds: Mapping[Key, bool] = field(default_factory=dict)  # True is open
    every_process: bool = False
    preset: Preset = "main"
    columns: tuple[str, ...] = ()  # of the main preset, by id; none: as they are declared
    user: str | None = None  # only processes of this one
    gpu: str | None = None  # only those of this GPU, by uuid
    filter: Filter | None = None

    @property
    def descending(self) -> bool:
        """Whether the highest value is on top: amounts begin so, names and numbers of things do not."""
        column = BY_ID[self.sort]
        return self.reverse != (column.align == "right" and column.kind != "word")


def build(
    frame: Frame,
    view: TableView,
    order: Order = NOWHERE,
    calm: bool = False,
    idle: Idle = lambda _: None,
    only: Collection[Identity] | None = None,
) -> list[TableRow]:
    """The lines of the table. `order` has their places so far: kept when `calm`, else decisive between equals.

    A noisy value counts as the one that it was placed by until it differs by more than noise: what wiggles stays.

    Of processes looked for there are `only` these, with the lines that they stand below.
    """
    make = _Maker(frame, view, idle, only)
    if not view.tree:
        return _sorted(make.flat(), view, order, calm)
    rows: list[TableRow] = []
    for top in _sorted(make.tops(), view, order, calm):
        _emit(top, view, rows)
    return rows


def matching(frame: Frame, view: TableView) -> frozenset[Identity] | None:
    """The processes that a view looks for; None when it takes them all."""
    asked = [view.filter.found(frame)] if view.filter is not None else []
    if view.gpu is not None:
        asked.append(using(frame, view.gpu))
    if view.user is not None:
        asked.append(frozenset(process.identity for process in frame.processes if process.user == view.user))
    return frozenset.intersection(*asked) if asked else None


def first_rank(rows: Iterable[TableRow]) -> Key | None:
    """The first folded rank: what is opened at the start, to show what is inside."""
    return next((row.key for row in rows if row.kind == "process" and row.open is False and row.parent), None)


def busy(process: Process) -> bool:
    """Whether a process is worth a line without having to do with a GPU."""
    moved = (process.read_bytes_per_s or 0) + (process.write_bytes_per_s or 0)
    return (process.cpu_percent or 0) > BUSY_PERCENT or moved > BUSY_BYTES_PER_S


@frozen_dataclass(frozen=True, slots=True)
class _Maker:
    """Makes the lines of one frame."""

    frame: Frame
    view: TableView
    idle: Idle
    only: Collection[Identity] | None

    def tops(self) -> list[TableRow]:
        """The outermost lines: jobs, and processes without a job."""
        jobs = {job.key: job for job in self.frame.jobs}
        by_job: dict[str, list[Process]] = {key: [] for key in jobs}
        rows = []
        for process in self._awake():
            if process.job in by_job:
                by_job[process.job].append(process)
            elif self._shows(process):
                rows.append(self._leaf(process))
        made = (self._job(jobs[key], members) for key, members in by_job.items())
        return rows + [row for row in made if row is not None]

    def _awake(self) -> Iterable[Process]:
        """Those that may get a line: of a thousand most are at rest, and are skipped here."""
        everybody = self.view.every_process or self.view.filter is not None
        return self.frame.processes if everybody else [
            one for one in self.frame.processes
            if one.job or one.gpus or one.cpu_percent or one.read_bytes_per_s or one.write_bytes_per_s or one.libraries
        ]  # fmt: skip

    def flat(self) -> list[TableRow]:
        """A line for each process."""
        jobs = {job.key for job in self.frame.jobs}
        numbers: dict[tuple[str | None, int], int] = {}
        rows = []
        for process in sorted(self.frame.processes, key=lambda process: process.pid):
            number = None
            if process.role is Role.LOADER:
                number = numbers.get((process.job, process.parent_pid), 0)
                numbers[process.job, process.parent_pid] = number + 1
            if (process.job in jobs and self._wanted(process)) or self._shows(process):
                rows.append(self._leaf(process, number))
        return rows

    def _wanted(self, process: Process) -> bool:
        return self.only is None or process.identity in self.only

    def _shows(self, process: Process) -> bool:
        """Whether a process without a job gets a line; without a driver, its mapped libraries show the use of a GPU."""
        uses = process.gpus or (not self.frame.gpus and "cuda" in process.libraries)
        view = self.view
        return (bool(uses) or view.every_process or view.filter is not None or busy(process)) and self._wanted(process)

    def _rests(self, uuid: str) -> float | None:
        """For how long a GPU has been idle; None if it works, or does not report it, as a MIG instance."""
        gpu = self.frame.by_uuid.get(uuid)
        return None if gpu is None or gpu.busy_percent is None else self.idle(uuid)

    def _leaf(self, process: Process, number: int | None = None) -> TableRow:
        kind: Kind = "loader" if process.role is Role.LOADER else "process"
        return TableRow(process_key(process), kind, str(process.pid), self.frame, [process], process, number)

    def _job(self, job: Job, processes: list[Process]) -> TableRow | None:
        wanted = [process for process in processes if self._wanted(process)]
        if not wanted:
            return None
        kin = members(processes)
        view = self.view
        everything = view.every_process or view.level >= LEVELS or not kin.ranks or view.filter is not None
        row = TableRow(("job", job.key), "job", job.name, self.frame, wanted, user=job.user)
        for rank in kin.ranks:
            row.children += self._rank(rank, kin, everything)
        if len(row.children) == 1 and 1 < len(row.children[0].members) == len(wanted):
            row.same = row.children[0]  # thousands are added up once
        ranks = [rank for rank in kin.ranks if self._wanted(rank)]
        loaders = sum(self._wanted(one) for some in kin.loaders.values() for _, one in some)
        children = len(wanted) - len(ranks) if any(one.sampled for one in wanted) else 0
        made_of = labels.job(job, ranks, loaders, len(wanted), sampled=children, of=len(kin.ranks))
        row.said = _held(made_of, wanted, row.sums, self._rests)
        row.children += self._loaders(kin.loaders.get(None, []), row.key)
        row.children += self._others(kin.others.get(None, []), everything)
        return row

    def _rank(self, rank: Process, kin: Members, everything: bool) -> list[TableRow]:
        """The line of a rank with those below it; none where none of them is looked for."""
        child = self._leaf(rank)
        below = self._loaders(kin.loaders.get(rank.identity, []), child.key)
        others = self._others(kin.others.get(rank.identity, []), everything)
        child.children = below + others
        child.context = not self._wanted(rank)
        inside = [process for _, process in kin.loaders.get(rank.identity, [])] + kin.others.get(rank.identity, [])
        child.members = [process for process in (rank, *inside) if self._wanted(process)]
        return [child] if child.members else []

    def _loaders(self, loaders: Sequence[Numbered], above: Key) -> list[TableRow]:
        """A line each; when there are more than three, two and one that speaks for the others."""
        loaders = [(number, process) for number, process in loaders if self._wanted(process)]
        key: Key = ("more", *above)
        if len(loaders) <= LOADERS_SHOWN or self.view.folds.get(key, self.view.level >= LEVELS):
            return [self._leaf(process, number) for number, process in loaders]
        shown, rest = loaders[: LOADERS_SHOWN - 1], loaders[LOADERS_SHOWN - 1 :]
        first, last = rest[0][0], rest[-1][0]
        gaps = last - first >= len(rest)
        said = labels.workers(rest[0][1].name, None if gaps else first, last)
        others = [process for _, process in rest]
        more = TableRow(key, "more", f"+{len(rest)} more", self.frame, others, said=(said,), user=others[0].user)
        return [*(self._leaf(process, number) for number, process in shown), more]

    def _others(self, processes: Sequence[Process], everything: bool) -> list[TableRow]:
        """Launchers and other children of a job: a line only for one that does something."""
        wanted = filter(self._wanted, processes)
        return [self._leaf(process) for process in wanted if everything or process.gpus or busy(process)]


def _held(made_of: str, processes: list[Process], figures: Figures, idle: Idle) -> tuple[str, ...]:
    """What a job is made of; of one that only holds its GPUs that it does, whatever the room."""
    if not figures.gpus or figures.gpu_percent:
        return (made_of,)
    ages = [idle(share.uuid) for process in processes for share in process.gpus]
    known = [age for age in ages if age is not None]
    if not known or len(known) < len(ages):
        return (made_of,)
    # a GPU may have been so before the job came
    age_s = figures.most("age_s")
    idle_s = min(*known, age_s) if age_s is not None else min(known)
    holds, rests = labels.holding(figures.vram_bytes, idle_s), labels.holding(None, idle_s)
    return f"{made_of} · {holds}", holds, rests


def _sorted(rows: list[TableRow], view: TableView, order: Order, calm: bool) -> list[TableRow]:
    column = BY_ID[view.sort]
    placed = sorted((row for row in rows if row.key in order), key=lambda row: order[row.key].at)
    new = [row for row in rows if row.key not in order]
    for row in placed:
        row.placed_by = order[row.key].value if calm else _value(row, column, order[row.key].value)
    for row in new:
        row.placed_by = column.value(row.sums)
    ranked = new if calm else placed + new
    known = sorted((row for row in ranked if row.placed_by is not None), key=_placed_by, reverse=view.descending)
    ranked = known + [row for row in ranked if row.placed_by is None]
    return placed + ranked if calm else ranked


def _placed_by(row: TableRow) -> Any:
    return row.placed_by


def _value(row: TableRow, column: Column, before: float | str | None) -> float | str | None:
    value = column.value(row.sums)
    if not column.noisy or not isinstance(value, float | int) or not isinstance(before, float | int):
        return value
    noise = max(0.0 if column.kind == "seconds" else _LEAST_NOISE, _NOISE * abs(before))
    return before if abs(value - before) <= noise else value


def _emit(row: TableRow, view: TableView, rows: list[TableRow]) -> None:
    """Append a line, and what is below it unless it is folded."""
    if row.kind == "more":
        row.open = False
    elif row.children:
        # what only stands there for those below it shows them
        row.open = view.folds.get(row.key, row.context or view.level > depth(row))
    rows.append(row)
    if not row.open:
        return
    below = row.rails[:-1] + {"b": "s", "l": " "}[row.rails[-1]] if row.rails else ""
    for child in row.children:
        child.rails = below + ("l" if child is row.children[-1] else "b")
        child.parent = row.key
        _emit(child, view, rows)


def walk(rows: Iterable[TableRow]) -> Iterator[tuple[Key, Place]]:
    """The places of the outermost lines, to be given to `build` again."""
    return ((row.key, Place(at, row.placed_by)) for at, row in enumerate(row for row in rows if not row.rails))


def exact(order: Order) -> Order:
    """The same places, to sort again by the values as they are."""
    return {key: Place(place.at) for key, place in order.items()}
