"""What is done to processes: signals, which are asked for, and niceness."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from gputop.ui.commands.command import BOTH, Command, no_processes

if TYPE_CHECKING:
    from gputop.actions.signals import SignalOrder
    from gputop.ui.job_screen import JobScreen
    from gputop.ui.main.screen import MainScreen


def ask_signal(screen: JobScreen) -> None:
    """Ask which signal, for what is tagged, else for what is selected. From here on its row does not matter."""
    from gputop.actions.signals import SIGNAL  # late
    from gputop.ui.signal import SignalDialog
    from gputop.ui.signal.dialog import SignalQuestion

    target, session = screen.target(), screen.session
    if target is None:
        return
    if session.remote:
        from gputop.ui.hosts.actions import ask_signal as ask_remote_signal

        ask_remote_signal(screen, session.remote, target)
        return
    handles = target.handles(session.rights)
    choice, scope = session.outcomes.proposed(handles, target.scope)
    refusal = handles.refusal or SIGNAL.why_not(target.process, session.rights)

    def send(order: SignalOrder) -> None:
        session.outcomes.forget()
        session.outcomes.follow(lambda tell: SIGNAL.run(handles, order, tell), handles, order.scope)

    screen.app.push_screen(SignalDialog(SignalQuestion(handles, refusal, scope, choice), send, screen.look))


def renice(main: MainScreen, step: int) -> None:
    """Make the target nicer (1) or less nice (-1)."""
    from gputop.actions.renice import RENICE, Niceness  # late

    session = main.session
    if main.bring_cursor_in_sight():  # what is not seen is not changed: the next press does
        session.say("the selected row was not visible; nothing was changed, press again")
    elif target := main.target():
        handles = target.handles(session.rights)
        order = Niceness(step, target.scope, relative=True)
        session.outcomes.follow(lambda tell: RENICE.run(handles, order, tell), handles, target.scope)
        handles.close()


def _unavailable(main: MainScreen) -> str:
    return main.session.rights.why_not or main.no_processes()


SIGNAL_COMMANDS = (
    Command("signal", ("f9", "k"), "Signal", "send a signal; asks which one, and the scope", "ACT", ask_signal,
            no_processes, keep=80, on=BOTH, also="kill terminate stop end suspend resume pause"),
)  # fmt: skip
NICENESS_COMMANDS = (
    Command("nice-up", ("f8",), "Nice +", "raise niceness by 1: lower CPU priority", "ACT", partial(renice, step=1),
            _unavailable, also="renice priority"),
    Command("nice-down", ("f7",), "Nice -", "lower niceness by 1: higher CPU priority; root only", "ACT",
            partial(renice, step=-1), _unavailable, also="renice priority"),
)  # fmt: skip
