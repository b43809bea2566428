"""Keys that look inside a process: its stacks now, a profile by py-spy, a trace by torch."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING

from gputop.actions import Handles, Scope
from gputop.actions.handles import led
from gputop.model import Frame, Process, Role
from gputop.source import Rehearsed
from gputop.ui.keys.hints import hint
from gputop.ui.main.acting import NOBODY, SHOWN, Acting, Others, held
from gputop.ui.main.advising import Advising

if TYPE_CHECKING:
    from gputop.profile.store import StoredProfile
    from gputop.safe.ptrace_access import Barred
    from gputop.ui.profiling.dialog import Answer, ProfileDialog
    from gputop.ui.profiling.tools import Answers, Asking, Order, Past, Tool, ToolId


class Profiling(Acting, Advising):
    """What `s`, `p` and `t` do, for the line under the cursor, or for whom the chosen finding is about."""

    _hinted = False

    def action_stack(self) -> None:
        """Stacks now; of a job all ranks side by side."""
        if whom := self._whom():
            frame, process, everybody, others = whom
            self.ask_stack(frame, process, everybody or self._of_job(), others)

    def _of_job(self) -> bool:
        """Whether the step of the chosen finding that this key does is about all ranks."""
        finding = self.sheet.chosen if self.advised else None
        steps = finding.steps if finding else ()
        return any(step.action == "stack" and "--job" in (step.command or "").split() for step in steps)

    def action_profile(self, tool: ToolId) -> None:
        """Ask how to look, with one of the tools preselected."""
        if whom := self._whom():
            frame, process, everybody, others = whom
            self.ask_profile(frame, process, everybody, tool, others)

    def ask_stack(self, frame: Frame, process: Process, everybody: bool = False, others: Others = NOBODY) -> None:
        """Look at once; ask only where it cannot be."""
        from gputop.actions.pyspy import STACK, Asked  # late
        from gputop.ui.profiling.tools import BY_ID

        chosen = process
        process, leads = (process, False) if others.processes else _rank(frame, process, whole=everybody)
        everybody = everybody or leads
        hold = held(frame, process, STACK.rights(self.rights), others)
        if self._rehearsed("stack", process) is not None:
            whole = Scope.JOB if everybody else Scope.PROCESS
            who = others.processes or tuple(one for one in hold.who(whole) if one.role is Role.TRAINER) or (process,)
            self._rehearse("stack", hold, tuple(who), None)
        elif hold.refusal or STACK.barred(process, self.rights):
            self.ask_profile(frame, chosen, everybody, "stack", others)
        else:
            ranks = sum(each.role is Role.TRAINER for each in hold.who(Scope.JOB))
            whole = Scope.JOB if everybody and ranks > 1 else Scope.PROCESS
            self.program.errands.start(BY_ID["stack"], hold, Asked(Scope.TAGGED if others.processes else whole))
        hold.close()

    def ask_profile(
        self, frame: Frame, process: Process, everybody: bool, tool: ToolId, others: Others = NOBODY
    ) -> None:
        """Ask how to look into a process as it is in a frame. From here on its row does not matter.

        What only leads ranks, as a launcher, stands for the first of them, and can be chosen in the dialog.
        """
        from gputop.actions.pyspy import STACK  # late
        from gputop.ui.profiling.dialog import ProfileDialog, Question
        from gputop.ui.profiling.older import OlderDialog

        chosen, app = process, self.app
        process, leads = (process, False) if others.processes else _rank(frame, process, whole=everybody)
        hold = held(frame, process, STACK.rights(self.rights), others)
        hold.leader, everybody = chosen if leads else None, everybody or leads

        def told(id: ToolId, why: Barred | None) -> None:
            dialog.answer(id, why)

        barred = self._asking.ask(hold, self.rights, lambda id, why: app.call_later(told, id, why))
        recorded = self._allow_recorded(barred, process)
        question = Question(hold, tool, barred, everybody=everybody, recorded=recorded)
        keys = {name: id for key in self.every_key for name in key.keys if (id := _TOOLS.get(key.id))}

        def start(tool: Tool, order: Order) -> None:
            self._start(tool, order, hold, question.each)

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

    def _start(self, tool: Tool, order: Order, hold: Handles, each: Sequence[Process]) -> None:
        """Have a tool look into each; the hold of the dialog is that of its own process."""
        from gputop.actions.pyspy import STACK  # late

        if self._rehearsed(tool.id, hold.process) is not None:
            self._rehearse(tool.id, hold, tuple(each), order)
            return
        for process in each:
            own = hold if process is hold.process else Handles(hold.frame, process, STACK.rights(self.rights))
            self.program.errands.start(tool, own, order)
            if own is not hold:
                own.close()

    def _rehearsed(self, tool: ToolId, process: Process) -> str | None:
        """What a source that is no machine has recorded of a process; None where there is nothing, or it is one."""
        source = self.program.source
        return source.rehearsed(process.identity, tool) if isinstance(source, Rehearsed) else None

    def _allow_recorded(self, barred: Answers, process: Process) -> bool:
        """Nothing bars a tool whose result is recorded; whether there is one."""
        there = [tool for tool in barred if self._rehearsed(tool, process) is not None]
        barred.update(dict.fromkeys(there))
        return bool(there)

    def _rehearse(self, tool: ToolId, hold: Handles, processes: tuple[Process, ...], order: Order | None) -> None:
        """Open what is recorded."""
        from gputop.ui.profiling.recorded import result  # late

        source, program = self.program.source, self.program
        if not isinstance(source, Rehearsed):
            return
        several = [(one,) for one in processes] if tool == "profile" else [processes]  # py-spy records one process
        for place, each in enumerate(several):
            about = hold.process if len(several) == 1 else each[0]
            if (found := result(source, tool, each, order)) is not None:
                # once the dialog has closed
                self.app.call_later(partial(program.errands.took, about, found, shows=place == 0))

    @cached_property
    def _asking(self) -> Asking:
        from gputop.ui.profiling.tools import Asking  # late

        return Asking()

    def _older(self, chosen: StoredProfile | None) -> None:
        if chosen is not None:
            self.program.errands.open(chosen)

    def _recall(self, dialog: ProfileDialog, process: Process) -> None:
        """Find out aside what was taken of it before."""
        from gputop.ui.profiling.tools import past  # late

        found: list[Past] = []

        def work() -> str:
            found.append(past(process))
            return ""

        self.program.aside.do(work, lambda _: dialog.recall(*found) if found else None)

    def _whom(self) -> tuple[Frame, Process, bool, Others] | None:
        """Who is chosen, whether all ranks of its job are meant, and who else: of several that are tagged or shown the
        first that trains."""
        if self.advised and self.shown and self.sheet.chosen:
            process = self.advised_process("to look into")
            return (self.shown.frame, process, False, NOBODY) if process else None
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
        return frame, several[0] if several else process, scope is Scope.JOB, NOBODY


_TOOLS: dict[str, ToolId] = {"stack": "stack", "profile": "profile", "torch": "trace"}  # by the id of its key


def _rank(frame: Frame, process: Process, *, whole: bool = False) -> tuple[Process, bool]:
    """The first rank instead of what only leads ranks, and whether it does; of a `whole` job in any case."""
    ranks = led(frame, process)
    if ranks:
        return ranks[0], True
    job = next((job for job in frame.jobs if job.key == process.job), None) if whole else None
    first = frame.by_identity.get(job.ranks[0]) if job and job.ranks else None
    return (first, False) if first else (process, False)
