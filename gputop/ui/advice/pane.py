"""The advice pane: the findings, which of them is chosen, which page is open; in whatever room it has."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from textual.strip import Strip

from gputop import finding_text
from gputop.diagnose import Finding
from gputop.diagnose.limits import Limits
from gputop.model import Frame, Identity, Process, Role
from gputop.monitor import Update
from gputop.safe.files import Refused
from gputop.ui.advice import compact, full
from gputop.ui.advice.alarm import Alarm, sequence
from gputop.ui.advice.finding_list import FindingList
from gputop.ui.advice.pages import PAGES, AdvicePage, expanded, place_of
from gputop.ui.advice.resolved import ResolvedFindings
from gputop.ui.advice.scene import AdviceScene
from gputop.ui.advice.states import States, states
from gputop.ui.frozen_history import FrozenHistory
from gputop.ui.profiling.background_jobs import BackgroundJobs
from gputop.ui.session import Session
from gputop.ui.widgets.strip_pane import Lines
from gputop.units import ago_text

if TYPE_CHECKING:
    from gputop.diagnose.experiments import Together

_HEIGHT_FOR_ALL = 14  # lines in which a finding can be shown in full


def advice(scene: AdviceScene, width: int, height: int) -> Sequence[Strip]:
    """The pane's lines, at most `height`."""
    if height <= 1:
        return compact.one_line(scene, width)[:height]
    if height < _HEIGHT_FOR_ALL:
        return compact.pane(scene, width, height)
    return full.column(scene, width, height)


class AdvicePane(Lines, can_focus=True):
    """What is known of findings, which of them is chosen, and which page is open from which line on."""

    def __init__(
        self, session: Session, jobs: BackgroundJobs, changed: Callable[[], object], chose: Callable[[], object]
    ) -> None:
        """`changed` draws it again, `chose` all that shows what the chosen finding is about."""
        super().__init__(id="advice")
        self.finding_list, self.clearing, self.states = FindingList(), ResolvedFindings(), States()
        self.page, self.first = PAGES[0], 0  # the topmost line of the page
        self.alone = False  # it has the screen for itself, and pages
        self._alarm, self._label = Alarm(), session.source.label
        self._newest: Update | None = None
        self._space = 0, 0
        self._measured: Mapping[str, str] = {}  # by the command that verifies a finding
        self._session, self._jobs, self._changed, self._chose = session, jobs, changed, chose

    def feed(self, update: Update) -> None:
        """Take in an update; ring for a finding that is worth it."""
        session, past = self._session, self._session.past
        if self._label != session.source.label:  # another server: nothing of it is news, or over
            self.clearing, self._alarm = ResolvedFindings(), Alarm()
        self._newest, self._label = update, session.source.label
        self.finding_list.feed(update)
        self.clearing.feed(update, past, self.finding_list.muted)
        self.states = states(update.findings, update.frame, update.jobs)
        news = self._alarm.news(self.finding_list, update.frame)
        if news and session.settings.alert != "off" and not session.player:
            session.app.ring(sequence(session.settings.alert, news, update.frame))

    def fit(self, space: tuple[int, int] | None, *, alone: bool) -> None:
        """Its width and height in cells now; None: it is not shown."""
        self._space, self.alone = space or (0, 0), alone

    @property
    def active(self) -> bool:
        """Whether the keys are about it."""
        return self.is_attached and self.screen.focused is self

    @property
    def _measures(self) -> bool:
        """Whether a finding may be verified from here: its processes are of this machine, and files may be written."""
        return self._session.source.elsewhere is None and not self._session.readonly

    def scene(self, update: Update) -> AdviceScene:
        """What it is drawn from."""
        session, player = self._session, self._session.player
        return AdviceScene(
            update=update, finding_list=self.finding_list, look=session.look, focused=self.active, keys=session.names,
            looked_into=self._jobs.looked_into, ended=session.status().ended or bool(player and player.ended),
            cleared=self.clearing.cleared, proven=session.proofs.lines if session.proofs else (),
            leaving=session.monitor.leaving, measures=self._measures, measured=self._measured,
            together=lambda: _together(update, session.past, session.monitor.limits),
        )  # fmt: skip

    def open(self, page: AdvicePage) -> None:
        """Open a page at its first line."""
        self.page, self.first = page, 0

    def turn(self, step: int) -> None:
        """Open the page beside, where there are pages."""
        if self.alone:
            self.open(PAGES[(PAGES.index(self.page) + step) % len(PAGES)])
            self._changed()

    def choose(self, lines: int = 0) -> None:
        """Choose another finding; of a page that is no list, scroll."""
        if self.alone and self.page is not PAGES[0]:
            self.scroll(lines)
            return
        self.finding_list.move(lines)
        self.first = 0
        self._chose()
        self.find_measured()

    def scroll(self, lines: int) -> None:
        """Other lines of the page; where it has none another finding."""
        if not self.alone:
            self.choose(1 if lines > 0 else -1)
        elif self._newest:
            drawn = expanded(self.scene(self._newest), self.page, self.first, *self._space)
            self.first = min(max(0, self.first + lines), drawn.furthest)
            self._changed()

    def click(self, y: int) -> bool:
        """Choose the finding on a line of the list; whether there are pages, where a click is about one of them."""
        if self.alone and self.page is PAGES[0]:
            place = place_of(self.finding_list, self._space[1], y)
            if place is not None:
                self.finding_list.choose(place)
                self.choose()
        return self.alone

    def find_measured(self) -> None:
        """Look for the newest result of the command that verifies the chosen finding, from whichever terminal."""
        step = self.finding_list.chosen.verify if self.finding_list.chosen and self.alone else None
        if step is None or step.command is None or self._newest is None or not self._measures:
            return
        command, process = step.command, _measured_process(step.command, self._newest)
        if process is None:
            return

        def tell(said: str) -> None:
            self._measured = {**self._measured, command: said}
            self._changed()

        self._session.files.do(lambda: _measured_by(command, process), tell)

    def process(self, wanted: str) -> Process | None:
        """The process that the chosen finding is about; where it is about none, that is said."""
        finding, newest = self.finding_list.chosen, self._newest
        if finding is None or newest is None:
            return None
        process = _process_of(finding, newest.frame)
        if process is None:
            subject = finding_text.subject_name(finding.subject, newest.frame)
            self._session.say(f"{subject}: no process on this host {wanted}")
        return process

    @property
    def about_ranks(self) -> bool:
        """Whether the step of the chosen finding that takes stacks is about all ranks."""
        steps = self.finding_list.chosen.steps if self.finding_list.chosen else ()
        return any(step.action == "stack" and "--job" in (step.command or "").split() for step in steps)


def _process_of(finding: Finding, frame: Frame) -> Process | None:
    """The first that it names; of a GPU the one that holds most of it; of the machine the busiest trainer."""
    for identity in finding.subject.processes:
        if identity in frame.by_identity:
            return frame.by_identity[identity]
    holders: list[tuple[float, Process]] = [
        (share.vram_bytes or 0, process)
        for process in frame.processes
        for share in process.gpus
        if share.uuid in finding.subject.gpus
    ]
    if finding.subject.kind == "host":
        trainers = (process for process in frame.processes if process.role is Role.TRAINER)
        holders = [(process.cpu_percent or 0, process) for process in trainers]
    return max(holders, key=lambda held: held[0])[1] if holders else None


def _measured_by(command: str, process: Identity) -> str:
    """The latest result of the command that verifies a finding, with its age; empty if there is none.

    Asks the disk.
    """
    from gputop.lab import results  # late

    try:
        found = results.of(process, command, time.time())
    except Refused:  # nothing is kept at all
        return ""
    return f"measured {ago_text(found.age_s)} ago: {found.text}" if found else ""


def _measured_process(command: str, update: Update) -> Identity | None:
    """The process that such a command is about: its last argument is the pid."""
    pid = shlex.split(command)[-1]
    return next((one.identity for one in update.frame.processes if str(one.pid) == pid), None)


def _together(update: Update, past: FrozenHistory, limits: Limits) -> Together:
    # late: it is a page of the advice, and comes with rules
    from gputop.diagnose.experiments import together

    return together(update.frame, past, limits, update.contention)
