"""Keys that do something to processes: signals and niceness. What came of it stands in the last line."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from textual.message import Message

from gputop.actions.hold import Hold, Scope, reaches
from gputop.actions.target import Rights
from gputop.declare import record
from gputop.model import Frame, Identity, Process
from gputop.ui.keys.declared import Key
from gputop.ui.main.board import Board
from gputop.ui.table.row import Row

if TYPE_CHECKING:
    from gputop.actions.action import Run
    from gputop.actions.signals import Choice, Order

_PROGRESS_S, _RESULT_S = 3.0, 12.0


@record(frozen=True, slots=True)
class About:
    """Whom a run is about: the process it was asked for, how far it reaches, and who that was."""

    process: Identity
    scope: Scope
    everybody: frozenset[Identity]


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

    def ask_signal(
        self, frame: Frame, process: Process, scope: Scope = Scope.PROCESS, tagged: Sequence[Process] = ()
    ) -> None:
        """Ask which signal, for a process as it is in a frame. From here on its row does not matter."""
        from gputop.actions.signals import SIGNAL  # late
        from gputop.ui.signal import SignalDialog
        from gputop.ui.signal.question import Question

        hold = Hold(frame, process, self.rights, tagged)
        choice, scope = self._proposed(hold, scope)
        question = Question(hold, hold.refusal or SIGNAL.why_not(process, self.rights), scope, choice)

        def send(order: Order) -> None:
            self._still = None
            self._newest = SIGNAL.run(hold, order, self._teller(hold, order.scope))

        self.app.push_screen(SignalDialog(question, send, self.look))

    def action_nice(self, step: int) -> None:
        """Make who is tagged, else the line under the cursor, nicer (1) or less nice (-1)."""
        from gputop.actions.renice import RENICE, Niceness  # late

        if picked := self._picked():
            frame, process, scope, tagged = picked
            hold = Hold(frame, process, self.rights, tagged)
            self._newest = RENICE.run(hold, Niceness(step, scope, relative=True), self._teller(hold, scope))
            hold.close()

    def _proposed(self, hold: Hold, scope: Scope) -> tuple[Choice, Scope]:
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

    def _teller(self, hold: Hold, scope: Scope) -> Callable[[Run], object]:
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

    def _picked(self) -> tuple[Frame, Process, Scope, Sequence[Process]] | None:
        """The process under the cursor; of a job the one that leads it, and then all of it is meant.

        Who is tagged is meant before all others, as in htop.
        """
        self.table.key()
        listing = self.table.listing
        row = listing.cursor
        tagged = listing.tags.processes(row.frame) if row else []
        if row is None:
            self.say("there is no process here")
        elif process := row.process or _leader(row) or next(iter(tagged), None):
            scope = Scope.TAGGED if tagged else Scope.PROCESS if row.process else _widest(row.frame, process)
            return row.frame, process, scope, tagged
        else:
            self.say("several processes: unfold the line and choose one, or tag some")
        return None


def _widest(frame: Frame, process: Process) -> Scope:
    return next((reach.scope for reach in reversed(reaches(frame, process))), Scope.PROCESS)


def _leader(row: Row) -> Process | None:
    """Who leads the job of a line: its launcher, or who would be one."""
    job = next((job for job in row.frame.jobs if row.key == ("job", job.key)), None)
    return row.frame.by_identity.get(job.members[0]) if job and job.members else None
