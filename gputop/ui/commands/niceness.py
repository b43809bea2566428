"""Keys that change niceness, of what is tagged, else of what is selected."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from gputop.ui.commands.command import Command

if TYPE_CHECKING:
    from gputop.ui.main.screen import MainScreen


def renice(main: MainScreen, step: int) -> None:
    """Make the target nicer (1) or less nice (-1)."""
    from gputop.actions.renice import RENICE, Niceness  # late

    session = main.session
    if main.bring_cursor_in_sight():  # what is not seen is not changed: the next press does
        session.say("the selected line was out of sight: here it is, and nothing is changed yet")
    elif target := main.target():
        handles = target.handles(session.rights)
        order = Niceness(step, target.scope, relative=True)
        session.outcomes.follow(lambda tell: RENICE.run(handles, order, tell), handles, target.scope)
        handles.close()


def _unavailable(main: MainScreen) -> str:
    return main.session.rights.why_not or main.no_processes()


COMMANDS = (
    Command("nice-up", ("f8",), "Nice +", "one step nicer: others get the CPU first", "ACT", partial(renice, step=1),
            _unavailable, also="renice priority"),
    Command("nice-down", ("f7",), "Nice -", "one step less nice; only root may", "ACT", partial(renice, step=-1),
            _unavailable, also="renice priority"),
)  # fmt: skip
