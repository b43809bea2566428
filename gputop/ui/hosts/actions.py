"""Acting on processes of another host from its screen: every question and every answer names the host."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gputop import labels
from gputop.actions.handles import Scope, reaches
from gputop.actions.signals import CHOICES, SignalChoice
from gputop.hosts.remote_action import Outcome, RemoteActions
from gputop.hosts.ssh import NoSsh
from gputop.model import Process
from gputop.ui.dialogs.choices import ListDialog
from gputop.ui.dialogs.questions import Confirm
from gputop.ui.theme import Look
from gputop.ui.widgets import drawing
from gputop.ui.widgets.drawing import Line

if TYPE_CHECKING:
    from gputop.ui.job_screen import JobScreen
    from gputop.ui.targets import CommandTarget

_RESULT_S = 12.0
_COMMANDS = {"stack": ("stack",), "profile": ("profile",), "torch": ("trace",)}


class RemoteSignalDialog(ListDialog[SignalChoice, SignalChoice]):
    """Which signal, to processes that are named with their host."""

    FOOT = "Enter sends   Esc cancels"
    WIDTH = 72

    def __init__(self, look: Look, title: str) -> None:
        super().__init__(look, CHOICES, at=1)
        self._title = title

    def heading(self) -> Line:
        """To what."""
        title = drawing.cut(self._title, self.width - 4, self.look.glyphs.more)
        return self.line().add(title, "bright", bold=True)

    def row(self, choice: SignalChoice, line: Line, chosen: bool) -> Line:
        """A signal and what it does."""
        line.add(f"  {choice.name:5}", "bright" if chosen else "text", bold=chosen)
        return line.add(drawing.cut(choice.text, max(0, self.width - line.cells - 2), self.look.glyphs.more), "dim")

    def take(self, choice: SignalChoice) -> None:
        """This one."""
        self.dismiss(choice)


def ask_signal(screen: JobScreen, remote: RemoteActions, target: CommandTarget) -> None:
    """Ask which signal; KILL is asked for twice."""
    session = screen.session
    if session.readonly:
        session.say("gputop was started with --readonly")
        return
    processes = _meant(target)
    title = f"signal to {_named(processes, target)} on {remote.host}"

    def told(outcome: Outcome) -> None:
        screen.app.call_later(session.say, outcome.text, _RESULT_S, "bright" if outcome.good else "warn")

    def send(choice: SignalChoice) -> None:
        session.say(f"{remote.host}: sending {choice.name}", _RESULT_S)
        remote.send_signal(choice.name, processes, told)

    def confirmed(answer: str | None, choice: SignalChoice) -> None:
        if answer == "send":
            send(choice)

    def chosen(choice: SignalChoice | None) -> None:
        if choice is None:
            return
        if not choice.confirm:
            send(choice)
            return
        buttons = (("no", "Cancel"), ("send", f"Send {choice.name} on {remote.host}"))
        screen.app.push_screen(
            Confirm(screen.look, title, choice.text, buttons, lambda answer: confirmed(answer, choice))
        )

    screen.app.push_screen(RemoteSignalDialog(screen.look, title), chosen)


def run_tool(screen: JobScreen, remote: RemoteActions, target: CommandTarget, tool: str) -> None:
    """Run a profiler on the host, on this terminal; asks first, with the command."""
    session = screen.session
    whole = ("--job",) if target.scope is Scope.JOB and tool == "stack" else ()
    arguments = [*_COMMANDS[tool], *whole, str(target.process.pid)]
    text = f"Runs on {remote.host}, on this terminal; its files stay on {remote.host}."

    def run() -> None:
        try:
            code = session.app.lend_command(
                remote.terminal_command(arguments), f"{remote.host}$ gputop {shlex.join(arguments)}"
            )
        except NoSsh as error:
            session.say(f"{remote.host}: {error}", _RESULT_S, "warn")
            return
        session.say("this terminal cannot run the command" if code is None else f"{remote.host}: exit code {code}")

    def answered(answer: str | None) -> None:
        if answer == "run":
            screen.call_after_refresh(run)

    buttons = (("run", f"Run on {remote.host}"), ("no", "Cancel"))
    screen.app.push_screen(Confirm(screen.look, f"gputop {shlex.join(arguments)}", text, buttons, answered))


def _meant(target: CommandTarget) -> Sequence[Process]:
    """The processes: those tagged, all of the job, or the one."""
    if target.others.processes:
        return target.others.processes
    if target.scope is Scope.PROCESS:
        return (target.process,)
    found = (reach.processes for reach in reaches(target.frame, target.process) if reach.scope is target.scope)
    return next(found, (target.process,))


def _named(processes: Sequence[Process], target: CommandTarget) -> str:
    if len(processes) == 1:
        return f"{processes[0].pid} {labels.script(processes[0]) or processes[0].name}"
    return f"{labels.amount(len(processes), 'process')} of {labels.script(target.process) or target.process.name}"
