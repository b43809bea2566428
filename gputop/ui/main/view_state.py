"""How the main screen is looked at: what is typed, the open page of the advice."""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from gputop.diagnose import Finding
from gputop.model import Identity
from gputop.monitor import Update
from gputop.safe.files import Refused
from gputop.ui.advice.alarm import Alarm
from gputop.ui.advice.finding_list import FindingList
from gputop.ui.advice.pages import PAGES, AdvicePage
from gputop.ui.advice.resolved import ResolvedFindings
from gputop.ui.advice.states import States, states
from gputop.ui.frozen_history import FrozenHistory
from gputop.units import ago


@dataclass(slots=True)
class Search:
    """What is typed to find or filter processes; `asking` is which of them, while it is typed."""

    asking: Literal["find", "filter"] | None = None
    words: str = ""  # the last that were looked for
    wrong: bool = False  # the filter cannot be understood


@dataclass(slots=True)
class AdviceView:
    """What is known of findings, and which page of the advice is open from which line on."""

    finding_list: FindingList = field(default_factory=FindingList)
    clearing: ResolvedFindings = field(default_factory=ResolvedFindings)
    alarm: Alarm = field(default_factory=Alarm)
    states: States = field(default_factory=States)
    page: AdvicePage = PAGES[0]
    first: int = 0  # the topmost line of it
    measured: Mapping[str, str] = field(default_factory=dict)  # by the command that verifies a finding
    _label: str | None = None

    def feed(self, update: Update, past: FrozenHistory, label: str) -> Finding | None:
        """Take in an update of the source that is called so; the finding worth ringing for, mostly none."""
        if self._label not in (None, label):  # another server: nothing of it is news, or over
            self.clearing, self.alarm = ResolvedFindings(), Alarm()
        self._label = label
        self.finding_list.feed(update)
        self.clearing.feed(update, past, self.finding_list.muted)
        self.states = states(update.findings, update.frame, update.jobs)
        return self.alarm.news(self.finding_list, update.frame)

    def open(self, page: AdvicePage) -> None:
        """Open a page at its first line."""
        self.page, self.first = page, 0

    def turn(self, step: int) -> None:
        """Open the page beside."""
        self.open(PAGES[(PAGES.index(self.page) + step) % len(PAGES)])


def measured_by(command: str, process: Identity) -> str:
    """What the command that verifies a finding has measured last for a process, and when; empty where it has not.

    Asks the disk.
    """
    from gputop.lab import results  # late

    try:
        found = results.of(process, command, time.time())
    except Refused:  # nothing is kept at all
        return ""
    return f"measured {ago(found.age_s)} ago: {found.text}" if found else ""


def measured_process(command: str, update: Update) -> Identity | None:
    """The process that such a command is about: its last argument is the pid."""
    pid = shlex.split(command)[-1]
    return next((one.identity for one in update.frame.processes if str(one.pid) == pid), None)
