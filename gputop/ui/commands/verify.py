"""The key that verifies a finding: it runs the command for that, once the user has read it."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from gputop.ui.commands.command import Command, hint

if TYPE_CHECKING:
    from gputop.ui.main.screen import MainScreen

_TEXT = (
    "To verify: {text}. It measures in this terminal, beside the job, which it may slow down. Ctrl+C ends it; the "
    "screen comes back afterwards."
)


def verify(main: MainScreen) -> None:
    """Show the command and ask; it is run in this terminal."""
    from gputop.ui.dialogs.dialog import Confirm  # late

    step = main.sheet.chosen.verify if main.sheet.chosen else None
    if step is None or step.command is None:
        return
    arguments = shlex.split(step.command)[1:]

    def run() -> None:
        code = main.session.app.lend(arguments)
        main.find_measured()
        lent = "this terminal cannot be lent to a command: copy it" if code is None else f"exit code {code}"
        main.session.say(lent)

    def answered(answer: str | None) -> None:
        if answer == "run":
            main.call_after_refresh(run)

    buttons, text = (("no", "Cancel"), ("run", "Run it")), _TEXT.format(text=step.text)
    main.app.push_screen(Confirm(main.look, step.command, text, buttons, answered))


def _unavailable(main: MainScreen) -> str:
    finding, session = main.sheet.chosen if main.advised else None, main.session
    if finding is None:
        return hint(main.names, "{} chooses a finding first", "advice") or "choose a finding first"
    if finding.verify is None:
        return "no command verifies this finding"
    if (elsewhere := session.source.elsewhere) is not None:
        return f"these are processes of {elsewhere}, not of this machine"
    return "gputop is read-only" if session.readonly else ""


COMMANDS = (
    Command("measure", ("m",), "Measure", "run what verifies the finding; asks first", "ACT", verify, _unavailable,
            also="verify lab loader experiment maxbatch memory"),
)  # fmt: skip
