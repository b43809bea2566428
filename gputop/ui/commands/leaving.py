"""Keys that lead back and out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputop.ui.commands.advice import leave_advice
from gputop.ui.commands.command import EVERY, Command
from gputop.ui.commands.selection import leave_gpus

if TYPE_CHECKING:
    from textual.screen import Screen

    from gputop.ui.main.screen import MainScreen


def back(main: MainScreen) -> None:
    """End what is said, and one more thing: what is under way, a pane alone, a filter, the frozen picture, the host."""
    main.bar.hush()
    if main.jobs.ask_to_stop():
        return
    gone = main.unzoom() or leave_advice(main)
    if gone or main.show_everybody() or leave_gpus(main):
        return
    if main.session.frozen:
        main.session.freeze()
    elif main.overview:
        main.to_hosts()


def leave(screen: Screen[object]) -> None:
    """Leave."""
    screen.app.exit()


def interrupt(screen: Screen[object]) -> None:
    """Leave at the second press: the first may have been meant for a job."""
    screen.app.interrupt()  # type: ignore[attr-defined]  # the program's own


def suspend(screen: Screen[object]) -> None:
    """Stop the program as the shell does it; fg comes back."""
    screen.app.action_suspend_process()


COMMANDS = (
    Command("back", ("escape",), "Back", "back; close, or end a freeze", "LEAVE", back),
    Command("quit", ("q", "f10"), "Quit", "quit", "LEAVE", leave, keep=100, on=EVERY, above_dialogs=True,
            also="exit close leave"),
    Command("interrupt", ("ctrl+c",), "Quit", "quit if pressed twice", "LEAVE", interrupt, on=EVERY,
            above_dialogs=True),
    Command("suspend", ("ctrl+z",), "Suspend", "back to the shell; fg resumes", "LEAVE", suspend, on=EVERY,
            above_dialogs=True),
)  # fmt: skip
