"""When the screen is drawn: held, or with another time between two looks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputop.source import RECORDED
from gputop.ui.commands.command import BOTH, Command

if TYPE_CHECKING:
    from gputop.ui.main.screen import MainScreen
    from gputop.ui.screen import CommandScreen

AS_RECORDED = "a recording has the looks that were taken"


def freeze(screen: CommandScreen) -> None:
    """Hold the picture, or let it go on."""
    screen.session.freeze()


def ask_interval(main: MainScreen) -> None:
    """Ask for another time between two looks."""
    from gputop.ui.dialogs.dialog import DelayDialog  # late

    session = main.session
    main.app.push_screen(DelayDialog(main.look, session.source.interval_s), session.set_interval)


def _unavailable(main: MainScreen) -> str:
    return AS_RECORDED if main.session.source.elsewhere == RECORDED else ""


COMMANDS = (
    Command("freeze", ("Z",), "Freeze", "freeze the picture", "TIME", freeze, keep=70, on=BOTH,
            also="pause hold stop refresh"),
    Command("delay", ("d",), "Delay", "time between two looks", "TIME", ask_interval, _unavailable, keep=40,
            also="interval refresh rate speed"),
)  # fmt: skip
