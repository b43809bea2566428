"""Keys that do something to processes: signals and niceness. What came of it stands in the last line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from textual.message import Message

from gputop.actions.hold import Hold, Scope, reaches
from gputop.actions.target import Rights
from gputop.model import Frame, Identity, Process
from gputop.ui.keys.declared import Key
from gputop.ui.main.board import Board
from gputop.ui.table.row import Row

if TYPE_CHECKING:
    from gputop.actions.action import Run
    from gputop.actions.signals import Order

_PROGRESS_S, _RESULT_S = 3.0, 12.0


class Told(Message):
    """A run has something to say, from its thread."""

    def __init__(self, run: Run, about: tuple[Identity, Scope]) -> None:
        super().__init__()
        self.run, self.about = run, about


class Acting(Board):
    """What the keys of the group ACT do."""

    _newest: Run | None = None
    _still: tuple[Identity, Scope] | None = None  # who did not end when asked to

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
        from gputop.actions.signals import BY_NAME, SIGNAL  # late
        from gputop.ui.signal import SignalDialog
        from gputop.ui.signal.question import Question

        hold = Hold(frame, process, self.rights, tagged)
        choice, about = BY_NAME["TERM"], process.identity
        scopes = (Scope.PROCESS, *(reach.scope for reach in hold.reaches))
        if self._still and self._still[0] == about and self._still[1] in scopes:
            choice, scope = BY_NAME["KILL"], self._still[1]
        question = Question(hold, hold.refusal or SIGNAL.why_not(process, self.rights), scope, choice)

        def send(order: Order) -> None:
            self._still = None
            self._newest = SIGNAL.run(hold, order, self._teller(process, order.scope))

        self.app.push_screen(SignalDialog(question, send, self.look))

    def action_nice(self, step: int) -> None:
        """Make who is tagged, else the line under the cursor, nicer (1) or less nice (-1)."""
        from gputop.actions.renice import RENICE, Niceness  # late

        if picked := self._picked():
            frame, process, scope, tagged = picked
            hold = Hold(frame, process, self.rights, tagged)
            self._newest = RENICE.run(hold, Niceness(step, scope, relative=True), self._teller(process, scope))
            hold.close()

    def _teller(self, process: Process, scope: Scope) -> Callable[[Run], object]:
        about = (process.identity, scope)
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
            self._still = told.about
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
