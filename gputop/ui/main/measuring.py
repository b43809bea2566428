"""The key that verifies a finding: it runs the command for that, once somebody has read it."""

from __future__ import annotations

import shlex
import time

from gputop.model import Identity
from gputop.safe.files import Refused
from gputop.ui.keys.declared import Key
from gputop.ui.keys.hints import hint
from gputop.ui.main.advising import Advising
from gputop.units import ago

_TEXT = (
    "To verify: {text}. It measures in this terminal, beside the job, which it may slow down. Ctrl+C ends it; the "
    "screen comes back afterwards."
)


class Measuring(Advising):
    """Run what verifies the chosen finding."""

    def why_not(self, key: Key) -> str:
        """Why a key does nothing now; empty if it does."""
        return self._unmeasured() if key.id == "measure" else super().why_not(key)

    def _unmeasured(self) -> str:
        finding = self.sheet.chosen if self.advised else None
        if finding is None:
            return hint(self.names, "{} chooses a finding first", "advice") or "choose a finding first"
        if finding.verify is None:
            return "no command verifies this finding"
        if (elsewhere := self.program.source.elsewhere) is not None:
            return f"these are processes of {elsewhere}, not of this machine"
        return "gputop is read-only" if self.readonly else ""

    def action_measure(self) -> None:
        """Show the command and ask; it is run in this terminal."""
        from gputop.ui.dialogs.dialog import Confirm  # late

        step = self.sheet.chosen.verify if self.sheet.chosen else None
        if step is None or step.command is None:
            return
        arguments = shlex.split(step.command)[1:]

        def answered(answer: str | None) -> None:
            if answer == "run":
                self.call_after_refresh(self._lend, arguments)

        buttons, text = (("no", "Cancel"), ("run", "Run it")), _TEXT.format(text=step.text)
        self.app.push_screen(Confirm(self.look, step.command, text, buttons, answered))

    def action_advice(self) -> None:
        """The same, with what the chosen finding was measured to be."""
        super().action_advice()
        self._find_measured()

    def advise(self, lines: int) -> None:
        """The same for another finding."""
        super().advise(lines)
        self._find_measured()

    def _find_measured(self) -> None:
        """Look for the newest result of the command that verifies the chosen finding, from whichever terminal."""
        step = self.sheet.chosen.verify if self.sheet.chosen and self.alone == "advice" else None
        if step is None or step.command is None or self.shown is None or not self.measures:
            return
        command, arguments = step.command, shlex.split(step.command)
        process = next((one for one in self.shown.frame.processes if str(one.pid) == arguments[-1]), None)
        if process is None:
            return

        def tell(said: str) -> None:
            self.measured = {**self.measured, command: said}
            self.redraw("advice")

        self.program.aside.do(lambda: _measured(process.identity, command), tell)

    def _lend(self, arguments: list[str]) -> None:
        code = self.program.lend(arguments)
        self._find_measured()
        self.say("this terminal cannot be lent to a command: copy it" if code is None else f"exit code {code}")


def _measured(process: Identity, command: str) -> str:
    """What the command has measured last for this process, and when; empty where it has not."""
    from gputop.lab import results  # late

    try:
        found = results.of(process, command, time.time())
    except Refused:  # nothing is kept at all
        return ""
    return f"measured {ago(found.age_s)} ago: {found.text}" if found else ""
