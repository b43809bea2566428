"""The key that records into a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputop.ui.commands.command import Command

if TYPE_CHECKING:
    from gputop.ui.main.screen import MainScreen

SHOWN_S = 10.0  # a path is read slowly


def toggle_recording(main: MainScreen) -> None:
    """Record, or stop."""
    session = main.session

    def tell(line: str) -> None:
        main.redraw()
        session.say(line, SHOWN_S)

    if session.recorder.running:
        session.recorder.stop(tell)
    else:
        session.recorder.start(lambda: session.mailbox.newest, tell)


def _unavailable(main: MainScreen) -> str:
    if main.session.player:
        return "this is a recording already"
    return "gputop is read-only" if main.session.readonly else ""


COMMANDS = (
    Command("record", ("R",), "Record", "record to a file, for replay; and stop", "TIME", toggle_recording,
            _unavailable, keep=35),
)  # fmt: skip
