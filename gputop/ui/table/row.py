"""One line of the table before it is drawn: a job, a process, or what speaks for many."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from gputop import labels
from gputop.model import Frame, Process, Role
from gputop.process_totals import Figures, one
from gputop.safe.text import redact_argv

Key = tuple[str | int, ...]  # ("job", key), ("process", pid, started), ("more", pid, started)
Kind = Literal["job", "process", "loader", "more"]

LEVELS = 3  # jobs; ranks; loaders; everything


@dataclass(slots=True)
class TableRow:
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
    children: list[TableRow] = field(default_factory=list)
    rails: str = ""  # a letter for each level: s stem, b branch, l last branch, space
    open: bool | None = None  # None: nothing to fold
    context: bool = False  # not one of those looked for, but what they stand below
    parent: Key | None = None
    same: TableRow | None = None  # a line below it that speaks for the same processes
    placed_by: float | str | None = None  # the value that it is sorted by
    _sums: Figures | None = None

    @property
    def sums(self) -> Figures:
        """The figures of its processes together: what it is sorted by, folded or not."""
        if self._sums is None:
            if self.same is not None:
                self._sums = replace(self.same.sums, pid=None, user=self.user)
            elif self.process is None:
                self._sums = Figures(self.members, self.frame, self.user)
            else:
                self._sums = Figures(self.members, self.frame, self.process.user, self.process.pid)
        return self._sums

    @property
    def figures(self) -> Figures:
        """What it shows: of its own process when what is below stands on separate lines."""
        if self.process is None or not self.open:
            return self.sums
        if self.context:
            return Figures((), self.frame, self.process.user, self.process.pid)
        return one(self.process, self.frame)

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
        return (labels.command(self.process, self.number, folded),)


def masked(row: TableRow) -> TableRow:
    """The line with what looks like a secret in its command line masked."""
    if row.process is None:
        return row
    own = replace(row.process, command=redact_argv(row.process.command))
    members = [own if member is row.process else member for member in row.members]
    return replace(row, process=own, members=members)


def process_key(process: Process) -> Key:
    """The key of a process's line: its identity, so a reused pid is another line."""
    return ("process", process.pid, process.started_ticks)


def depth(row: TableRow) -> int:
    """How many levels above a line are unfolded."""
    return {"job": 0, "more": LEVELS - 1}.get(row.kind, 1)
