"""What can be copied: the pid and the command line of a process, the commands of a finding."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from gputop.actions.target import typed
from gputop.diagnose import Finding
from gputop.model import Process
from gputop.safe.text import clean
from gputop.ui.advice.finding_list import commands
from gputop.ui.table.row import TableRow


class CopyText(NamedTuple):
    """A text to copy, and what it is."""

    title: str
    text: str


class CopyCycle:
    """Which of several texts the next press copies."""

    def __init__(self) -> None:
        self._last: tuple[Hashable, int] = (None, -1)

    def next(self, owner: Hashable, count: int) -> int:
        """The place of the text: of another owner the first, else the one after the last."""
        before, place = self._last
        place = (place + 1) % count if before == owner else 0
        self._last = (owner, place)
        return place


def of_row(row: TableRow | None) -> list[CopyText]:
    """Of a line its pid or pids, then its command line, with what looks like a secret masked."""
    if row is None:
        return []
    if row.process is None:
        pids = [str(process.pid) for process in row.members]
        return [CopyText("its pids" if len(pids) > 1 else "its pid", " ".join(pids))]
    return of_process(row.process)


def of_process(process: Process) -> list[CopyText]:
    """The pid and the command line of one process."""
    found = [CopyText("pid", str(process.pid))]
    if any(process.command):
        found.append(CopyText("command line", typed(process)))
    return found


def of_finding(finding: Finding | None) -> list[CopyText]:
    """The commands of a finding's steps, the best first."""
    return [CopyText(name, clean(step.command or "")) for name, step in commands(finding)]
