"""The key that verifies a finding: it runs the command for that, once somebody has read it."""

from __future__ import annotations

import shlex

from gputop.ui.keys.declared import Key
from gputop.ui.keys.hints import hint
from gputop.ui.main.advising import Advising

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
        from gputop.ui.dialogs.confirm import Confirm  # late

        step = self.sheet.chosen.verify if self.sheet.chosen else None
        if step is None or step.command is None:
            return
        arguments = shlex.split(step.command)[1:]

        def answered(answer: str | None) -> None:
            if answer == "run":
                self.call_after_refresh(self._lend, arguments)

        buttons, text = (("no", "Cancel"), ("run", "Run it")), _TEXT.format(text=step.text)
        self.app.push_screen(Confirm(self.look, step.command, text, buttons, answered))

    def _lend(self, arguments: list[str]) -> None:
        code = self.program.lend(arguments)
        self.say("this terminal cannot be lent to a command: copy it" if code is None else f"exit code {code}")
