"""Jobs, their ranks and loaders as the lines of a table: nested or flat, folded and in order. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from gputop import words
from gputop.figures import Figures, one, together
from gputop.model import Frame, Identity, Job, Process, Role
from gputop.ui.columns import BY_ID, Column, Preset

Key = tuple[str | int, ...]  # ("job", key), ("process", pid, started), ("more", pid, started)
Kind = Literal["job", "process", "loader", "more"]

BUSY_PERCENT = 100.0  # a process without GPU kin is shown above this,
BUSY_BYTES_PER_S = 50e6  # or above this of reading and writing
LOADERS_SHOWN = 3
Idle = Callable[[str], float | None]  # seconds since a GPU, by uuid, did anything; None if it is at work

NOWHERE: Mapping[Key, int] = {}
LEVELS = 3  # jobs; ranks; loaders; everything


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """How the table is looked at."""

    tree: bool = True
    sort: str = "cpu"
    reverse: bool = False
    level: int = 1  # unfolded down to here, where `folds` says nothing else
    folds: Mapping[Key, bool] = field(default_factory=dict)  # True is open
    every_process: bool = False
    preset: Preset = "main"

    @property
    def descending(self) -> bool:
        """Whether the highest value is on top: amounts begin so, names and numbers of things do not."""
        column = BY_ID[self.sort]
        return self.reverse != (column.align == "right" and column.kind != "word")


@dataclass(slots=True)
class Row:
    """One line of the table; `members` are the processes it speaks for while what is below it is folded.

    Figures and words are made when they are asked for: of thousands of lines a screen shows fifty.
    """

    key: Key
    kind: Kind
    label: str
    frame: Frame
    members: list[Process]
    process: Process | None = None
    number: int | None = None  # of a loader in its rank
    said: tuple[str, ...] = ()  # the words of a line that is not one process, and the same in fewer and fewer
    user: str | None = None
    children: list[Row] = field(default_factory=list)
    rails: str = ""  # a letter for each level: s stem, b branch, l last branch, space
    open: bool | None = None  # None: nothing to fold
    parent: Key | None = None
    _sums: Figures | None = None

    @property
    def sums(self) -> Figures:
        """The figures of its processes together: what it is sorted by, folded or not."""
        if self._sums is None:
            if self.process is None:
                self._sums = together(self.members, self.frame, self.user)
            elif len(self.members) == 1:
                self._sums = one(self.process, self.frame)
            else:
                self._sums = replace(together(self.members, self.frame, self.process.user), pid=self.process.pid)
        return self._sums

    @property
    def figures(self) -> Figures:
        """What it shows: of its own process when what is below stands on lines of its own."""
        return one(self.process, self.frame) if self.process and self.open else self.sums

    @property
    def text(self) -> str:
        """What it runs, in words."""
        return self.texts[0]

    @property
    def texts(self) -> tuple[str, ...]:
        """What it runs, in words, and the same in fewer and fewer: the first that fits is the one to show."""
        if self.process is None:
            return self.said
        folded = sum(process.role is Role.LOADER for process in self.members) if self.open is False else 0
        return (words.command(self.process, self.number, folded),)


@dataclass(slots=True)
class _Members:
    """The processes of one job by what they do; loaders and others by the rank they belong to."""

    ranks: list[Process] = field(default_factory=list)
    loaders: dict[Identity | None, list[Process]] = field(default_factory=dict)
    others: dict[Identity | None, list[Process]] = field(default_factory=dict)


def process_key(process: Process) -> Key:
    """The key of a process's line: its identity, so a reused pid is another line."""
    return ("process", process.pid, process.started_ticks)


def build(
    frame: Frame, view: View, order: Mapping[Key, int] = NOWHERE, calm: bool = False, idle: Idle = lambda _: None
) -> list[Row]:
    """The lines of the table. `order` has their places so far: kept when `calm`, else decisive between equals."""
    if not view.tree:
        return _sorted(_flat(frame, view), view, order, calm)
    rows: list[Row] = []
    for top in _sorted(_tops(frame, view, idle), view, order, calm):
        _emit(top, view, rows)
    return rows


def depth(row: Row) -> int:
    """How many levels above a line are unfolded."""
    return {"job": 0, "more": LEVELS - 1}.get(row.kind, 1)


def first_rank(rows: Iterable[Row]) -> Key | None:
    """The first folded rank: what is opened at the start, to show what is inside."""
    return next((row.key for row in rows if row.kind == "process" and row.open is False and row.parent), None)


def _tops(frame: Frame, view: View, idle: Idle) -> list[Row]:
    jobs = {job.key: job for job in frame.jobs}
    by_job: dict[str, list[Process]] = {key: [] for key in jobs}
    rows = []
    for process in frame.processes:
        if process.job in by_job:
            by_job[process.job].append(process)
        elif _shown(process, frame, view):
            rows.append(_leaf(process, frame))
    rows.extend(_job(jobs[key], members, frame, view, idle) for key, members in by_job.items() if members)
    return rows


def _flat(frame: Frame, view: View) -> list[Row]:
    jobs = {job.key for job in frame.jobs}
    shown = [process for process in frame.processes if process.job in jobs or _shown(process, frame, view)]
    numbers: dict[tuple[str | None, int], int] = {}
    rows = []
    for process in sorted(shown, key=lambda process: process.pid):
        number = None
        if process.role is Role.LOADER:
            number = numbers.get((process.job, process.parent_pid), 0)
            numbers[process.job, process.parent_pid] = number + 1
        rows.append(_leaf(process, frame, number))
    return rows


def _shown(process: Process, frame: Frame, view: View) -> bool:
    """Whether a process without a job gets a line; without a driver who uses GPUs shows in what it has mapped."""
    uses = process.gpus or (not frame.gpus and "cuda" in process.libraries)
    return bool(uses) or view.every_process or busy(process)


def busy(process: Process) -> bool:
    """Whether a process is worth a line without having to do with a GPU."""
    moved = (process.read_bytes_per_s or 0) + (process.write_bytes_per_s or 0)
    return (process.cpu_percent or 0) > BUSY_PERCENT or moved > BUSY_BYTES_PER_S


def _leaf(process: Process, frame: Frame, number: int | None = None) -> Row:
    kind: Kind = "loader" if process.role is Role.LOADER else "process"
    return Row(process_key(process), kind, str(process.pid), frame, [process], process, number)


def _job(job: Job, processes: list[Process], frame: Frame, view: View, idle: Idle) -> Row:
    members = _members(processes)
    everything = view.every_process or view.level >= LEVELS or not members.ranks
    row = Row(("job", job.key), "job", job.name, frame, processes, user=job.user)
    loaders = sum(map(len, members.loaders.values()))
    made_of = words.job(job, members.ranks, loaders, len(processes))
    row.said = _held(made_of, processes, row.sums, idle)
    for rank in members.ranks:
        below, others = members.loaders.get(rank.identity, []), members.others.get(rank.identity, [])
        child = _leaf(rank, frame)
        child.members += [*below, *others]
        child.children = _loaders(below, child.key, frame, view) + _others(others, frame, everything)
        row.children.append(child)
    row.children += _loaders(members.loaders.get(None, []), row.key, frame, view)
    row.children += _others(members.others.get(None, []), frame, everything)
    return row


def _held(made_of: str, processes: list[Process], figures: Figures, idle: Idle) -> tuple[str, ...]:
    """What a job is made of; of one that only holds its GPUs that it does, whatever the room."""
    if not figures.gpus or figures.gpu_percent:
        return (made_of,)
    ages = [idle(share.uuid) for process in processes for share in process.gpus]
    known = [age for age in ages if age is not None]
    if not known or len(known) < len(ages):
        return (made_of,)
    holds, rests = words.holding(figures.vram_bytes, min(known)), words.holding(None, min(known))
    return f"{made_of} · {holds}", holds, rests


def _members(processes: list[Process]) -> _Members:
    members = _Members()
    members.ranks = sorted((p for p in processes if p.role is Role.TRAINER), key=lambda p: (_rank(p), p.pid))
    owners = {rank.pid: rank.identity for rank in members.ranks}
    parents = {process.pid: process.parent_pid for process in processes}
    for process in sorted(processes, key=lambda process: process.pid):
        if process.role is Role.TRAINER:
            continue
        group = members.loaders if process.role is Role.LOADER else members.others
        group.setdefault(_owner(process, owners, parents), []).append(process)
    return members


def _rank(process: Process) -> int:
    return 1 << 30 if process.rank is None else process.rank


def _owner(process: Process, owners: Mapping[int, Identity], parents: Mapping[int, int]) -> Identity | None:
    """The rank above a process, through its members; none for launchers and strays."""
    pid, steps = process.parent_pid, len(parents)
    while pid not in owners and pid in parents and steps:
        pid, steps = parents[pid], steps - 1
    return owners.get(pid)


def _loaders(loaders: list[Process], above: Key, frame: Frame, view: View) -> list[Row]:
    """A line each; when there are more than three, two and one that speaks for the others."""
    key: Key = ("more", *above)
    if len(loaders) <= LOADERS_SHOWN or view.folds.get(key, view.level >= LEVELS):
        return [_leaf(process, frame, number) for number, process in enumerate(loaders)]
    shown, rest = loaders[: LOADERS_SHOWN - 1], loaders[LOADERS_SHOWN - 1 :]
    said = words.loaders(rest[0].name, len(shown), len(loaders) - 1)
    more = Row(key, "more", f"+{len(rest)} more", frame, rest, said=(said,), user=rest[0].user)
    return [*(_leaf(process, frame, number) for number, process in enumerate(shown)), more]


def _others(processes: list[Process], frame: Frame, everything: bool) -> list[Row]:
    """Launchers and other children of a job: a line only for one that does something."""
    return [_leaf(process, frame) for process in processes if everything or process.gpus or busy(process)]


def _sorted(rows: list[Row], view: View, order: Mapping[Key, int], calm: bool) -> list[Row]:
    column = BY_ID[view.sort]
    placed = sorted((row for row in rows if row.key in order), key=lambda row: order[row.key])
    new = [row for row in rows if row.key not in order]
    ranked = new if calm else placed + new
    valued = [(_value(row, column), row) for row in ranked]
    known = sorted(((value, row) for value, row in valued if value is not None), key=_first, reverse=view.descending)
    ranked = [row for _, row in known] + [row for value, row in valued if value is None]
    return placed + ranked if calm else ranked


def _first(pair: tuple[Any, Row]) -> Any:
    return pair[0]


def _value(row: Row, column: Column) -> float | str | None:
    if column.id == "pid" and row.kind == "job":
        return min((process.pid for process in row.members), default=None)
    value = column.value(row.sums)
    return float(f"{round(value):.2g}") if column.noisy and isinstance(value, float | int) else value


def _emit(row: Row, view: View, rows: list[Row]) -> None:
    """Append a line, and what is below it unless it is folded."""
    if row.kind == "more":
        row.open = False
    elif row.children:
        row.open = view.folds.get(row.key, view.level >= (1 if row.kind == "job" else 2))
    rows.append(row)
    if not row.open:
        return
    below = row.rails[:-1] + {"b": "s", "l": " "}[row.rails[-1]] if row.rails else ""
    for child in row.children:
        child.rails = below + ("l" if child is row.children[-1] else "b")
        child.parent = row.key
        _emit(child, view, rows)


def walk(rows: Iterable[Row]) -> Iterator[tuple[Key, int]]:
    """The places of the outermost lines, to be given to `build` again."""
    return ((row.key, place) for place, row in enumerate(row for row in rows if not row.rails))
