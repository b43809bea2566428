"""Copy: to the clipboard of the terminal, or onto a plain screen for the mouse."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gputop.ui.commands.command import BOTH, Command, hint

if TYPE_CHECKING:
    from gputop.ui.copy_texts import CopyText
    from gputop.ui.screen import CommandScreen

LONGEST = 2000  # characters: a terminal drops what is too long for it, and does not say so


def copy(screen: CommandScreen) -> None:
    """Copy the first text of what is selected; pressed again, the next. What comes next is said with it."""
    texts = screen.copy_texts()
    if not texts:
        screen.session.say("nothing to copy here")
        return
    place = screen.copy_place(texts)
    text = texts[place].text
    if len(text) > LONGEST:
        shows = hint(screen.names, "; {} shows it", "show")
        screen.session.say(f"too long to copy ({len(text)} characters){shows}")
        return
    screen.app.copy_to_clipboard(text)
    screen.session.say(f"copied {text}{_next(screen, texts, place)}")


def _next(screen: CommandScreen, texts: Sequence[CopyText], place: int) -> str:
    again = texts[(place + 1) % len(texts)].title
    return hint(screen.names, f"   {{}} again: {again}", "copy") if len(texts) > 1 and not place else ""


def show_plain(screen: CommandScreen) -> None:
    """Show what can be copied on a plain screen, where the terminal's own mouse selects."""
    from gputop.ui.dialogs.plain import Plain  # late

    if texts := screen.copy_texts():
        screen.app.push_screen(Plain(screen, [text.text for text in texts]))
    else:
        screen.session.say("nothing to copy here")


COMMANDS = (
    Command("copy", ("y",), "Copy", "copy the pid; again: the command line (OSC 52)", "LOOK", copy, keep=5, on=BOTH),
    Command("show", ("Y",), "Show", "what y copies on a plain screen, for the mouse", "LOOK", show_plain, joins=True,
            on=BOTH),
)  # fmt: skip
