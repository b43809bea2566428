"""The key that sends a signal; it asks which, and to which processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputop.ui.commands.command import BOTH, Command, no_processes

if TYPE_CHECKING:
    from gputop.actions.signals import Order
    from gputop.ui.screen import CommandScreen


def ask_signal(screen: CommandScreen) -> None:
    """Ask which signal, for what is tagged, else for what is selected. From here on its row does not matter."""
    from gputop.actions.signals import SIGNAL  # late
    from gputop.ui.signal import SignalDialog
    from gputop.ui.signal.dialog import Question

    target, session = screen.target(), screen.session
    if target is None:
        return
    handles = target.handles(session.rights)
    choice, scope = session.outcomes.proposed(handles, target.scope)
    refusal = handles.refusal or SIGNAL.why_not(target.process, session.rights)

    def send(order: Order) -> None:
        session.outcomes.forget()
        session.outcomes.follow(lambda tell: SIGNAL.run(handles, order, tell), handles, order.scope)

    screen.app.push_screen(SignalDialog(Question(handles, refusal, scope, choice), send, screen.look))


COMMANDS = (
    Command("signal", ("f9", "k"), "Signal", "send a signal; it asks which, and to whom", "ACT", ask_signal,
            no_processes, keep=80, on=BOTH, also="kill terminate stop end suspend resume pause"),
)  # fmt: skip
