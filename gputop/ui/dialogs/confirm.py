"""A question with a button for each answer. The first has the cursor: it is the one that does no harm."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from textual import events

from gputop.ui.dialogs import parts
from gputop.ui.dialogs.parts import JUMPS, STEPS, Keep, Part, PartsDialog, fitting
from gputop.ui.draw import wrap
from gputop.ui.look import Look, Token


class Confirm(PartsDialog[None, str]):
    """`buttons` are answers and what stands on them; `answered` gets one of them, or None however else it ends."""

    WIDTH = 64

    def __init__(
        self,
        look: Look,
        title: str,
        text: str,
        buttons: Sequence[tuple[str, str]],
        answered: Callable[[str | None], object],
    ) -> None:
        super().__init__(look)
        self._title, self._text, self._buttons = title, text, buttons
        self._at = buttons[0][0]
        self._answered: Callable[[str | None], object] | None = answered

    def parts(self) -> list[Part[str]]:
        """The title, the text, the buttons."""
        blank: Part[str] = Part(self.line(), Keep.BLANK)
        found = [Part[str](self.line().add(self._title, "bright", bold=True)), blank]
        text = [
            Part[str](self.line().add(each, "text"), Keep.SAID) for each in wrap(self._text, self.width - 4) if each
        ]
        found += [*text, blank] if text else []
        named: list[tuple[str, str, Token]] = [(answer, title, "bright") for answer, title in self._buttons]
        return fitting([*found, parts.buttons(self.line(), self.width, named, self._at), blank], self.app.size.height)

    def press(self, event: events.Key) -> None:
        """Move, or take the answer with the cursor."""
        step = STEPS.get(event.key) or JUMPS.get(event.key)
        answers = [answer for answer, _ in self._buttons]
        if step:
            self._at = answers[(answers.index(self._at) + step) % len(answers)]
            self.redraw()
        elif event.key in ("enter", "space"):
            self.take(self._at)

    def take(self, stop: str) -> None:
        """This one."""
        self._answer(stop)
        self.dismiss()

    def on_unmount(self) -> None:
        """However it ended, once."""
        self._answer(None)

    def _answer(self, answer: str | None) -> None:
        answered, self._answered = self._answered, None
        if answered is not None:
            answered(answer)
