"""What the advice is drawn from: the findings, their subjects, and the view of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from rich.cells import cell_len

from gputop import finding_text, units
from gputop.diagnose import Finding, Step
from gputop.frozen_dataclass import frozen_dataclass
from gputop.model import Identity
from gputop.monitor import Update
from gputop.proven import FixText
from gputop.ui.advice.finding_list import FindingList
from gputop.ui.advice.resolved import ResolvedCase
from gputop.ui.commands.command import Names
from gputop.ui.theme import Look, Token
from gputop.ui.widgets.drawing import Line, Run
from gputop.ui.widgets.key_bar import pressed

Leaving = tuple[float, Mapping[str, tuple[float, float]]]  # seconds; limits and those for leaving, by name
if TYPE_CHECKING:
    from gputop.diagnose.experiments import Together

WIDEST = 140  # prose is not read wider
_WORD = re.compile(r"\s+|\S+")
_SIGNS: Mapping[str, Token] = {"crit": "crit", "warn": "warn", "info": "dim"}


@frozen_dataclass(frozen=True, kw_only=True)
class AdviceScene:
    """One update, and the list of its findings."""

    update: Update
    finding_list: FindingList
    look: Look
    keys: Names = field(default_factory=dict)
    focused: bool = False  # the arrows choose a finding
    ended: bool = False  # no frame comes after this one
    measures: bool = True  # a key runs what verifies a finding
    looked_into: frozenset[Identity] = frozenset()  # processes of which there is a result to open
    cleared: Sequence[ResolvedCase] = ()  # what is over
    proven: Sequence[FixText] = ()  # what came of findings of earlier runs, the newest first
    measured: Mapping[str, str] = field(default_factory=dict)  # what the commands that verify findings have measured
    leaving: Callable[[str], Leaving] = lambda _: (0.0, {})  # what makes a finding of a rule leave
    together: Callable[[], Together] | None = None  # the experiments side by side, worked out when asked

    @property
    def news(self) -> bool:
        """Whether there are findings that are over."""
        return bool(self.cleared or self.proven)

    @property
    def marked_gpus(self) -> frozenset[str]:
        """The GPUs that the chosen finding is about, while the keys are about it."""
        chosen = self.finding_list.chosen if self.focused else None
        if chosen is None:
            return frozenset()
        processes = (self.update.frame.by_identity.get(one) for one in chosen.subject.processes)
        used = (share.uuid for process in processes if process for share in process.gpus)
        return frozenset(chosen.subject.gpus or used)

    @property
    def marked_processes(self) -> frozenset[Identity]:
        """The processes that it is about."""
        chosen = self.finding_list.chosen if self.focused else None
        return frozenset(chosen.subject.processes) if chosen else frozenset()

    def pressed(self, id: str, what: str) -> list[Run]:
        """A key and what it does; nothing where it has no key."""
        return pressed(self.keys, id, what)

    @property
    def profiled(self) -> bool:
        """Whether there is a profile, a trace or stacks of a process that the chosen finding is about."""
        return bool(self.looked_into.intersection(self.concerned))

    @property
    def concerned(self) -> frozenset[Identity]:
        """The processes that the chosen finding is about: those it names, else those of its job, else of its GPUs."""
        chosen = self.finding_list.chosen
        if chosen is None or chosen.subject.processes:
            return frozenset(chosen.subject.processes) if chosen else frozenset()
        subject, frame = chosen.subject, self.update.frame
        members = frozenset(one for job in frame.jobs if job.key in subject.job_keys for one in job.ranks)
        return members or frozenset(
            one.identity for one in frame.processes if any(share.uuid in subject.gpus for share in one.gpus)
        )

    def acts(self, finding: Finding, step: Step) -> list[list[Run]]:
        """The keys that do something with a step now: those of the chosen finding, which keys are about, and no other.

        While the keys are about something else, its action takes the key of the advice first.
        """
        if finding is not self.finding_list.chosen:
            return []
        action = self.pressed(step.action, "run") if step.action else []
        if not self.focused:
            first = self.pressed("advice", "then ") if action else []
            return [[Run("or ", "dim"), *first, *action[:1]]] if first else []
        copies = self.pressed("copy", "copy") if step is self.finding_list.next_copy else []
        return [runs for runs in (copies, action) if runs]

    def line(self) -> Line:
        """An empty line."""
        return Line(self.look)

    def cursor(self, finding: Finding) -> str:
        """What stands before the one that keys are about."""
        return self.look.glyphs.cursor if self.focused and finding is self.finding_list.chosen else " "


def badge(finding: Finding, look: Look) -> list[Run]:
    """How bad it is: a sign and a word, which live without colour."""
    said = f"{getattr(look.glyphs, finding.severity)} {finding_text.severity(finding)}"
    if finding.healthy:
        return [Run(f" {said:6} ", "good")]
    token, loud = _SIGNS[finding.severity], finding.severity != "info"
    return [Run(f" {said} ", token, loud, loud)]


def sign(finding: Finding, look: Look) -> Run:
    """The same in one or two cells."""
    token: Token = "good" if finding.healthy else _SIGNS[finding.severity]
    return Run(getattr(look.glyphs, finding.severity), token, finding.severity != "info")


def counts(findings: Sequence[Finding]) -> str:
    """How many of which weight: 1 crit · 2 info."""
    words = [finding_text.severity(finding).lower() for finding in findings]
    return " · ".join(f"{words.count(word)} {word}" for word in ("crit", "warn", "info", "ok") if word in words)


def flow(scene: AdviceScene, width: int, runs: Iterable[Run], indent: int) -> list[Line]:
    """Runs as lines of at most `width` cells, broken between words; those after the first are indented."""
    width = max(indent + 8, min(width, WIDEST)) - 1
    lines = [scene.line()]
    for run in runs:
        for word in _WORD.findall(units.unbroken(run.text)):
            lines += _placed(units.spaced(word), run, lines, scene, width, indent)
    return lines


def _placed(word: str, run: Run, lines: Sequence[Line], scene: AdviceScene, width: int, indent: int) -> list[Line]:
    """Put a word on the last line; the lines that it begins because it has no room there."""
    last, more = lines[-1], list[Line]()
    if last.cells + cell_len(word) <= width:
        last.add(word, run.token, bold=run.bold, reverse=run.reverse)
        return more
    if word.isspace():
        return more
    if last.cells > indent:
        last = scene.line().add(" " * indent)
        more.append(last)
    while word:
        room = max(1, width - last.cells)
        piece = word if cell_len(word) <= room else _piece(word, room)
        last.add(piece, run.token, bold=run.bold, reverse=run.reverse)
        word = word[len(piece) :]
        if word:
            last = scene.line().add(" " * indent)
            more.append(last)
    return more


def _piece(word: str, room: int) -> str:
    """As much of a word as has room, at least a character."""
    end, cells = 0, 0
    for char in word:
        cells += cell_len(char)
        if cells > room and end:
            break
        end += 1
    return word[:end]
