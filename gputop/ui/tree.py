"""Jobs, their ranks and loaders as the lines of a table: nested or flat, folded and in order. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from gputop import words
from gputop.figures import Figures, one, together
from gputop.model import Frame, Identity, Job, Process, Role
from gputop.ui.columns import BY_ID, Column

Key = tuple[str | int, ...]  # ("job", key), ("process", pid, started), ("more", pid, started)
Kind = Literal["job", "process", "loader", "more"]

BUSY_PERCENT = 100.0  # a process without GPU kin is shown above this,
BUSY_BYTES_PER_S = 50e6  # or above this of reading and writing
LOADERS_SHOWN = 3
Idle = Callable[[str], float | None]  # seconds since a GPU, by uuid, did anything; None if it is at work

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

    @property
    def descending(self) -> bool:
        """Whether the highest value is on top: amounts begin so, names and numbers of things do not."""
        column = BY_ID[self.sort]
        return self.reverse != (column.align == "right" and column.id != "gpu")


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table. `rails` has a letter for each level: s stem, b branch, l last branch, space."""

    key: Key
    kind: Kind
    rails: str
    open: bool | None  # None: nothing to fold
    label: str
    text: str
    figures: Figures
    parent: Key | None = None


@dataclass(slots=True)
class Node:
    """A line that may have lines below it; `members` are the processes its folded line speaks for."""

    key: Key
    kind: Kind
    label: str
    text: str
    members: list[Process]
    children: list[Node] = field(default_factory=list)
    process: Process | None = None
    figures: Figures | None = None


@dataclass(slots=True)
class _Members:
    """The processes of one job by what they do; loaders and others by the rank they belong to."""

    ranks: list[Process] = field(default_factory=list)
    loaders: dict[Identity | None, list[Process]] = field(default_factory=dict)
    others: dict[Identity | None, list[Process]] = field(default_factory=dict)


def process_key(process: Process) -> Key:
    """The key of a process's line: its identity, so a reused pid is another line."""
    return ("process", process.pid, process.started_ticks)


def build(frame: Frame, view: View, order: Mapping[Key, int] | None = None, idle: Idle = lambda _: None) -> list[Row]:
    """The lines of the table. With `order`, lines that are in it keep their places and new ones follow."""
    column = BY_ID[view.sort]
    if not view.tree:
        return [_row(node, frame, "", None, None) for node in _sorted(_flat(frame, view), column, view, order)]
    rows: list[Row] = []
    for node in _sorted(_tops(frame, view, idle), column, view, order):
        _emit(node, frame, view, "", None, rows)
    return rows


def first_rank(rows: Iterable[Row]) -> Key | None:
    """The first folded rank: what is opened at the start, to show what is inside."""
    return next((row.key for row in rows if row.kind == "process" and row.open is False and row.parent), None)


def _tops(frame: Frame, view: View, idle: Idle) -> list[Node]:
    jobs = {job.key: job for job in frame.jobs}
    by_job: dict[str, list[Process]] = {key: [] for key in jobs}
    nodes = []
    for process in frame.processes:
        if process.job in by_job:
            by_job[process.job].append(process)
        elif process.gpus or view.every_process or busy(process):
            nodes.append(_leaf(process, frame))
    nodes.extend(_job(jobs[key], members, frame, view, idle) for key, members in by_job.items() if members)
    return nodes


def _flat(frame: Frame, view: View) -> list[Node]:
    jobs = {job.key for job in frame.jobs}
    shown = [p for p in frame.processes if p.job in jobs or p.gpus or view.every_process or busy(p)]
    numbers: dict[tuple[str | None, int], int] = {}
    nodes = []
    for process in sorted(shown, key=lambda process: process.pid):
        number = None
        if process.role is Role.LOADER:
            number = numbers.get((process.job, process.parent_pid), 0)
            numbers[process.job, process.parent_pid] = number + 1
        nodes.append(_leaf(process, frame, number))
    return nodes


def busy(process: Process) -> bool:
    """Whether a process is worth a line without having to do with a GPU."""
    moved = (process.read_bytes_per_s or 0) + (process.write_bytes_per_s or 0)
    return (process.cpu_percent or 0) > BUSY_PERCENT or moved > BUSY_BYTES_PER_S


def _leaf(process: Process, frame: Frame, number: int | None = None) -> Node:
    kind: Kind = "loader" if process.role is Role.LOADER else "process"
    return Node(
        process_key(process), kind, str(process.pid), words.command(process, number), [process],
        process=process, figures=one(process, frame),
    )  # fmt: skip


def _job(job: Job, processes: list[Process], frame: Frame, view: View, idle: Idle) -> Node:
    key: Key = ("job", job.key)
    members = _members(processes)
    everything = view.every_process or view.level >= LEVELS or not members.ranks
    figures = together(processes, frame, job.user)
    loaders = sum(map(len, members.loaders.values()))
    text = words.job(job, members.ranks, loaders, len(processes)) + _held(processes, figures, idle)
    node = Node(key, "job", job.name, text, processes, figures=figures)
    for rank in members.ranks:
        below = members.loaders.get(rank.identity, [])
        child = _leaf(rank, frame)
        child.members = [rank, *below, *members.others.get(rank.identity, [])]
        child.children = _loaders(below, child.key, frame, view)
        child.children += _others(members.others.get(rank.identity, []), frame, everything)
        node.children.append(child)
    strays = members.loaders.get(None, [])
    node.children += _loaders(strays, key, frame, view)
    node.children += _others(members.others.get(None, []), frame, everything)
    return node


def _held(processes: list[Process], figures: Figures, idle: Idle) -> str:
    """What is said of a job that only holds its GPUs."""
    if not figures.gpus or figures.gpu_percent:
        return ""
    ages = [idle(share.uuid) for process in processes for share in process.gpus]
    known = [age for age in ages if age is not None]
    return f" · {words.holding(figures.vram_bytes, min(known))}" if known and len(known) == len(ages) else ""


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


def _loaders(loaders: list[Process], above: Key, frame: Frame, view: View) -> list[Node]:
    """A line each; when there are more than three, two and one that speaks for the others."""
    key: Key = ("more", *above)
    if len(loaders) <= LOADERS_SHOWN or view.folds.get(key, view.level >= LEVELS):
        return [_leaf(process, frame, number) for number, process in enumerate(loaders)]
    shown, rest = loaders[: LOADERS_SHOWN - 1], loaders[LOADERS_SHOWN - 1 :]
    nodes = [_leaf(process, frame, number) for number, process in enumerate(shown)]
    text = words.loaders(rest[0].name, len(shown), len(loaders) - 1)
    figures = together(rest, frame, rest[0].user)
    return [*nodes, Node(key, "more", f"+{len(rest)} more", text, rest, figures=figures)]


def _others(processes: list[Process], frame: Frame, everything: bool) -> list[Node]:
    """Launchers and helpers of a job: a line only for one that does something."""
    return [_leaf(process, frame) for process in processes if everything or process.gpus or busy(process)]


def _sorted(nodes: list[Node], column: Column, view: View, order: Mapping[Key, int] | None) -> list[Node]:
    valued = [(_value(node, column), node) for node in nodes]
    known = sorted(((value, node) for value, node in valued if value is not None), key=_first, reverse=view.descending)
    ranked = [node for _, node in known] + [node for value, node in valued if value is None]
    if order is None:
        return ranked
    last = len(order)
    return sorted(ranked, key=lambda node: order.get(node.key, last))


def _first(pair: tuple[Any, Node]) -> Any:
    return pair[0]


def _value(node: Node, column: Column) -> float | str | None:
    if node.figures is None:
        return None
    if column.id == "pid" and node.kind == "job":
        return min((process.pid for process in node.members), default=None)
    return column.value(node.figures)


def _emit(node: Node, frame: Frame, view: View, rails: str, parent: Key | None, rows: list[Row]) -> None:
    is_open: bool | None = None
    if node.kind == "more":
        is_open = False
    elif node.children:
        is_open = view.folds.get(node.key, view.level >= (1 if node.kind == "job" else 2))
    rows.append(_row(node, frame, rails, is_open, parent))
    if not is_open:
        return
    below = rails[:-1] + {"b": "s", "l": " "}[rails[-1]] if rails else ""
    for index, child in enumerate(node.children):
        last = index == len(node.children) - 1
        _emit(child, frame, view, below + ("l" if last else "b"), node.key, rows)


def _row(node: Node, frame: Frame, rails: str, is_open: bool | None, parent: Key | None) -> Row:
    figures, text = node.figures or Figures(), node.text
    if node.process is not None and is_open is False:  # what is folded speaks through its parent
        figures = replace(together(node.members, frame, figures.user), pid=figures.pid)
        loaders = sum(process.role is Role.LOADER for process in node.members)
        text = words.command(node.process, folded=loaders)
    return Row(node.key, node.kind, rails, is_open, node.label, text, figures, parent)


def walk(rows: Iterable[Row]) -> Iterator[tuple[Key, int]]:
    """The places of the outermost lines, to be given to `build` again."""
    return ((row.key, place) for place, row in enumerate(row for row in rows if not row.rails))
