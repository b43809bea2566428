"""Keys that look inside a process: its stacks now, a profile by py-spy, a trace by torch."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from gputop.actions import Hold, Scope
from gputop.model import Frame, Process, Role
from gputop.ui.keys.hints import hint
from gputop.ui.main.acting import NOBODY, SHOWN, Acting, Others, held
from gputop.ui.main.advising import Advising

if TYPE_CHECKING:
    from gputop.profile.kept import Kept
    from gputop.safe.attach import Barred
    from gputop.ui.profiling.asking import Asking
    from gputop.ui.profiling.dialog import Answer, ProfileDialog
    from gputop.ui.profiling.past import Past
    from gputop.ui.profiling.tools import Order, Tool, ToolId


class Profiling(Acting, Advising):
    """What `s`, `p` and `t` do, for the line under the cursor, or for whom the chosen finding is about."""

    _hinted = False

    def action_stack(self) -> None:
        """Stacks now; of a job all ranks side by side."""
        if whom := self._whom():
            self.ask_stack(*whom)

    def action_profile(self, tool: ToolId) -> None:
        """Ask how to look, with one of the tools preselected."""
        if whom := self._whom():
            frame, process, everybody, others = whom
            self.ask_profile(frame, process, everybody, tool, others)

    def ask_stack(self, frame: Frame, process: Process, everybody: bool = False, others: Others = NOBODY) -> None:
        """Look at once; ask only where it cannot be."""
        from gputop.actions.spy import STACK, Asked  # late
        from gputop.ui.profiling.tools import BY_ID

        hold = held(frame, process, STACK.rights(self.rights), others)
        if hold.refusal or STACK.barred(process, self.rights):
            self.ask_profile(frame, process, everybody, "stack", others)
        else:
            ranks = sum(each.role is Role.TRAINER for each in hold.who(Scope.JOB))
            whole = Scope.JOB if everybody and ranks > 1 else Scope.PROCESS
            self.program.errands.start(BY_ID["stack"], hold, Asked(Scope.TAGGED if others.processes else whole))
        hold.close()

    def ask_profile(
        self, frame: Frame, process: Process, everybody: bool, tool: ToolId, others: Others = NOBODY
    ) -> None:
        """Ask how to look into a process as it is in a frame. From here on its row does not matter."""
        from gputop.actions.spy import STACK  # late
        from gputop.ui.profiling.dialog import ProfileDialog
        from gputop.ui.profiling.older import OlderDialog
        from gputop.ui.profiling.question import Question

        hold, app = held(frame, process, STACK.rights(self.rights), others), self.app

        def told(id: ToolId, why: Barred | None) -> None:
            dialog.answer(id, why)

        barred = self._asking.ask(hold, self.rights, lambda id, why: app.call_later(told, id, why))
        question = Question(hold, tool, barred, everybody=everybody)
        keys = {name: id for key in self.every_key for name in key.keys if (id := _TOOLS.get(key.id))}

        def start(tool: Tool, order: Order) -> None:
            for each in question.each:
                own = hold if each is process else Hold(frame, each, STACK.rights(self.rights))
                self.program.errands.start(tool, own, order)
                if own is not hold:
                    own.close()

        def answered(answer: Answer | None) -> None:
            if answer and question.past:
                self.app.push_screen(OlderDialog(self.look, question.past), self._older)

        dialog = ProfileDialog(question, self.look, keys, start, self.app.copy_to_clipboard)
        self.app.push_screen(dialog, answered)
        if tool == "trace" and not self._hinted:
            self._hinted = True
            self.say(hint(self.names, "the tree is {}", "tree"))
        if not self.rights.why_not:  # nothing is kept there, and no folder made
            self._recall(dialog, process)

    @cached_property
    def _asking(self) -> Asking:
        from gputop.ui.profiling.asking import Asking  # late

        return Asking()

    def _older(self, chosen: Kept | None) -> None:
        if chosen is not None:
            self.program.errands.open(chosen)

    def _recall(self, dialog: ProfileDialog, process: Process) -> None:
        """Find out aside what was taken of it before."""
        from gputop.ui.profiling.past import past  # late

        found: list[Past] = []

        def work() -> str:
            found.append(past(process))
            return ""

        self.program.aside.do(work, lambda _: dialog.recall(*found) if found else None)

    def _whom(self) -> tuple[Frame, Process, bool, Others] | None:
        """Who is meant, whether all ranks of the job are, and who else: of a job and of a launcher it is the first
        rank, of several that are tagged or shown the first that trains."""
        if self.advised and self.shown and self.sheet.chosen:
            process = self.advised_process("to look into")
            return (self.shown.frame, *_rank(self.shown.frame, process), NOBODY) if process else None
        picked = self._picked()
        if picked is None:
            return None
        frame, process, scope, others = picked
        several = others.processes
        trains = [each for each in several if each.role is Role.TRAINER]
        if others.called == SHOWN and len(trains) == 1:
            return frame, trains[0], False, NOBODY
        if len(several) > 1:
            few = trains if len(trains) > 1 else several
            return frame, (trains or several)[0], False, others._replace(processes=few)
        meant, launcher = _rank(frame, several[0] if several else process, whole=scope is Scope.JOB)
        return frame, meant, launcher or scope is Scope.JOB, NOBODY


_TOOLS: dict[str, ToolId] = {"stack": "stack", "profile": "profile", "trace": "trace"}


def _rank(frame: Frame, process: Process, *, whole: bool = False) -> tuple[Process, bool]:
    """The first rank of its job instead of a launcher, and whether it was one; of a `whole` job in any case."""
    job = next((job for job in frame.jobs if job.key == process.job), None)
    first = frame.by_identity.get(job.ranks[0]) if job and job.ranks else None
    return (first, True) if first and (whole or process.role is Role.LAUNCHER) else (process, False)
