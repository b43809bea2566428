"""Help on the screen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputop.ui.commands.command import EVERY, Command

if TYPE_CHECKING:
    from gputop.ui.screen import CommandScreen


def show_help(screen: CommandScreen) -> None:
    """Open help at the keys of this screen."""
    from gputop.ui.dialogs.help import Help  # late

    screen.app.push_screen(Help(screen))


COMMANDS = (Command("help", ("f1", "h", "question_mark"), "Help", "help", "LEAVE", show_help, keep=100, on=EVERY),)
