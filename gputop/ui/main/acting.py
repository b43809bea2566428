"""Keys that do something to processes: signals and niceness. What came of it stands in the last line."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from textual.message import Message

from gputop.actions.handles import Handles, Scope, reaches
from gputop.actions.target import Rights
from gputop.frozen_dataclass import frozen_dataclass
from gputop.model import Frame, Identity, Process
from gputop.ui.keys.declared import Key
from gputop.ui.main.board import Board
from gputop.ui.table.row import Row

if TYPE_CHECKING:
    from gputop.actions.action import Run
    from gputop.actions.signals import Choice, Order

_PROGRESS_S, _RESULT_S = 3.0, 12.0


@frozen_dataclass(frozen=True, slots=True)
class About:
    """Whom a run is about: the process it was asked for, how far it reaches, and who that was."""

    process: Identity
    scope: Scope
    everybody: frozenset[Identity]


class Others(NamedTuple):
    """Who is meant instead of one process or a whole job, and what a dialog calls them."""

    processes: Sequence[Process] = ()
    called: str = "tagged"


NOBODY = Others()
SHOWN = "shown"  # of a job, those that are neither filtered away nor of another user


class Told(Message):
    """A run has something to say, from its thread."""

    def __init__(self, run: Run, about: About) -> None:
        super().__init__()
        self.run, self.about = run, about


class Acting(Board):
    """What the keys of the group ACT do."""

    _newest: Run | None = None
    _still: tuple[About, float] | None = None  # who did not end when asked to, and until when that is news

    @property
    def rights(self) -> Rights:
        """What may be done to the processes on the screen at all."""
        return Rights(readonly=self.readonly, elsewhere=self.program.source.elsewhere)

    def why_not(self, key: Key) -> str:
        """Why a key does nothing now; the signal dialog opens everywhere, and says it itself."""
        if key.id in ("nice-up", "nice-down") and (why := self.rights.why_not):
            return why
        return super().why_not(key)

    def action_signal(self) -> None:
        """Ask which signal, for who is tagged, else for the line under the cursor."""
        if picked := self._picked():
            self.ask_signal(*picked)

    def ask_signal(self, frame: Frame, process: Process, scope: Scope = Scope.PROCESS, others: Others = NOBODY) -> None:
        """Ask which signal, for a process as it is in a frame. From here on its row does not matter."""
        from gputop.actions.signals import SIGNAL  # late
        from gputop.ui.signal import SignalDialog
        from gputop.ui.signal.dialog import Question

        hold = held(frame, process, self.rights, others)
        choice, scope = self._proposed(hold, scope)
        question = Question(hold, hold.refusal or SIGNAL.why_not(process, self.rights), scope, choice)

        def send(order: Order) -> None:
            self._still = None
            self._newest = SIGNAL.run(hold, order, self._teller(hold, order.scope))

        self.app.push_screen(SignalDialog(question, send, self.look))

    def action_nice(self, step: int) -> None:
        """Make who is tagged, else the line under the cursor, nicer (1) or less nice (-1)."""
        from gputop.actions.renice import RENICE, Niceness  # late

        if self.unseen():  # nobody changes what nobody sees: the next press does
            self.say("the selected line was out of sight: here it is, and nothing is changed yet")
        elif picked := self._picked():
            frame, process, scope, others = picked
            hold = held(frame, process, self.rights, others)
            self._newest = RENICE.run(hold, Niceness(step, scope, relative=True), self._teller(hold, scope))
            hold.close()

    def _proposed(self, hold: Handles, scope: Scope) -> tuple[Choice, Scope]:
        """TERM; KILL while it is news that those who are meant did not end when they were asked to, all of them."""
        from gputop.actions.signals import BY_NAME  # late

        if self._still:
            asked, until_s = self._still
            again = Scope.TAGGED if scope is Scope.TAGGED else asked.scope
            who = {process.identity for process in hold.who(again)}
            same = again is Scope.TAGGED or hold.process.identity == asked.process
            if time.monotonic() < until_s and same and who and who <= asked.everybody:
                return BY_NAME["KILL"], again
        return BY_NAME["TERM"], scope

    def _teller(self, hold: Handles, scope: Scope) -> Callable[[Run], object]:
        about = About(hold.process.identity, scope, frozenset(process.identity for process in hold.who(scope)))
        return lambda run: self.post_message(Told(run, about))

    def on_told(self, told: Told) -> None:
        """Show it, unless there is something newer to show."""
        from gputop.actions.signals import Signalled  # late

        run, key = told.run, next(key for key in self.keys if key.id == "signal")
        result = run.result
        if result is None:
            if run is self._newest:
                self.say(run.line, _PROGRESS_S)
            return
        parts = [result.text, *(line for line in result.lines if line != result.text)]
        if isinstance(result, Signalled) and result.still:
            self._still = told.about, time.monotonic() + _RESULT_S
            parts.insert(1, f"KILL? {key.names[0]} asks for it" if key.names else "KILL?")
        self.say(
            self.look.glyphs.dot.join(f" {part} " for part in parts).strip(),
            _RESULT_S,
            "bright" if result.good else "warn",
        )

    def unseen(self) -> bool:
        """Whether the line that is meant was out of sight, where the wheel leaves it; it is no longer."""
        listing = self.table.listing
        before = listing.top
        if not listing.tags:
            listing.move(0)
            self.table.redraw()
        return listing.top != before

    def _picked(self) -> tuple[Frame, Process, Scope, Others] | None:
        """The process under the cursor; of a job the one that leads it, and then all of it is meant.

        Who is tagged is meant before all others, as in htop; of a job of which only some are shown, these.
        """
        self.table.key()
        self.unseen()
        listing = self.table.listing
        row = listing.cursor
        if row is None:
            self.say("there is no process here")
        elif tagged := listing.tags.processes(row.frame):
            process = row.process or next(iter(_of_job(row)), tagged[0])
            return row.frame, process, Scope.TAGGED, Others(tagged)
        elif row.process:
            return row.frame, row.process, Scope.PROCESS, NOBODY
        elif members := _of_job(row):
            return (row.frame, members[0], *_meant(row, members))
        else:
            self.say("several processes: unfold the line and choose one, or tag some")
        return None


def held(frame: Frame, process: Process, rights: Rights, others: Others) -> Handles:
    """The hold of a dialog about a process, or about others that are called by what they are."""
    hold = Handles(frame, process, rights, others.processes)
    title = f"the {len(others.processes)} {others.called}"
    hold.reaches = tuple(
        replace(reach, title=title) if reach.scope is Scope.TAGGED else reach for reach in hold.reaches
    )
    return hold


def _meant(row: Row, members: Sequence[Process]) -> tuple[Scope, Others]:
    """Who is meant by the line of a job: all of it, or those it stands for."""
    job = next(job for job in row.frame.jobs if row.key == ("job", job.key))
    if len(members) < sum(identity in row.frame.by_identity for identity in job.members):
        return (Scope.TAGGED, Others(members, SHOWN)) if len(members) > 1 else (Scope.PROCESS, NOBODY)
    return next((reach.scope for reach in reversed(reaches(row.frame, members[0]))), Scope.PROCESS), NOBODY


def _of_job(row: Row) -> list[Process]:
    """Those of a job that its line stands for, who leads them first: its launcher, or who would be one."""
    job = next((job for job in row.frame.jobs if row.key == ("job", job.key)), None)
    shown = {process.identity for process in row.members}
    known = (row.frame.by_identity.get(identity) for identity in (job.members if job else ()))
    return [process for process in known if process is not None and process.identity in shown]
