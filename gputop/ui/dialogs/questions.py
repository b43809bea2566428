"""Questions: for a time, for an answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from textual import events
from textual.app import ComposeResult

from gputop import units
from gputop.config import BY_KEY
from gputop.ui.dialogs.box import Dialog
from gputop.ui.dialogs.choices import JUMPS, STEPS, ListDialog
from gputop.ui.dialogs.text_line import TextLine
from gputop.ui.theme import Look
from gputop.ui.widgets import drawing
from gputop.ui.widgets.drawing import Line, wrap
from gputop.ui.widgets.strip_pane import Lines

FASTEST_S, SLOWEST_S = BY_KEY["interval"].low, BY_KEY["interval"].high


class DelayDialog(Dialog[float]):
    """The refresh interval."""

    TITLE_TEXT = "refresh interval"
    FOOT = "Enter applies   Esc cancels"

    def __init__(self, look: Look, now_s: float) -> None:
        super().__init__(look)
        self._now_s = now_s
        self._wrong = ""
        self._above, self._text, self._below = Lines(), TextLine(8, restrict="[A-Za-z0-9.]*"), Lines()

    def compose(self) -> ComposeResult:
        """What is typed, between what is above and below it."""
        yield from (self._above, self._text, self._below)

    def on_mount(self) -> None:
        """Follow what is typed."""
        self.watch(self._text, "value", self._typed, init=False)
        self.watch(self._text, "selection", self.redraw, init=False)

    def lines(self) -> Sequence[Line]:
        """The time now, the one being typed, and what is wrong with it."""
        hint = f"{FASTEST_S:g}s to {SLOWEST_S:g}s, for example 2s or 500ms"
        return [
            self.line().add("now  ", "dim").add(f"{self._now_s:g}s", "text"),
            self._text.write(self.line().add("new  ", "dim")),
            self.line().add(self._wrong or hint, "warn" if self._wrong else "dim"),
        ]

    def redraw(self) -> None:
        """Draw the box again."""
        strips = self.boxed(self.body())
        self.stack((self._above, 3), (self._text, 1), (self._below, len(strips) - 4))
        self._above.show(strips[:3])
        self._text.show(strips[3:4])
        self._below.show(strips[4:])

    def press(self, event: events.Key) -> None:
        """Type, or take it."""
        if event.key == "enter":
            self._take()
        else:
            self._text.press(event)

    def _typed(self) -> None:
        self._wrong = ""
        self.redraw()

    def _take(self) -> None:
        try:
            seconds = units.duration(self._text.value)
        except ValueError:
            self._wrong = "not a time: use for example 2s or 500ms"
        else:
            if FASTEST_S <= seconds <= SLOWEST_S:
                self.dismiss(seconds)
                return
            self._wrong = f"between {FASTEST_S:g}s and {SLOWEST_S:g}s"
        self.redraw()


class Confirm(ListDialog[None, tuple[str, str]]):
    """`answers` are those there are and how each reads; `answered` gets one of them, or None however else it ends."""

    FOOT = "Enter applies   Esc goes back"
    WIDTH = 64

    def __init__(
        self,
        look: Look,
        title: str,
        text: str,
        answers: Sequence[tuple[str, str]],
        answered: Callable[[str | None], object],
    ) -> None:
        super().__init__(look, answers)
        self._title, self._text = title, text
        self._answered: Callable[[str | None], object] | None = answered

    def heading(self) -> Line:
        """What is asked."""
        title = drawing.cut(self._title, self.width - 4, self.look.glyphs.more)
        return self.line().add(title, "bright", bold=True)

    def above(self) -> Sequence[Line]:
        """What to know before."""
        text = [self.line().add(each, "text") for each in wrap(self._text, self.width - 4) if each]
        return [*text, self.line()] if text else ()

    def row(self, answer: tuple[str, str], line: Line, chosen: bool) -> Line:
        """An answer."""
        return line.add("  ").add(answer[1], "bright" if chosen else "text")

    def press(self, event: events.Key) -> None:
        """Move, also as between buttons, or take the answer with the cursor."""
        if step := STEPS.get(event.key) or JUMPS.get(event.key):
            self.choices.highlighted = (self.at + step) % len(self.items)
        elif event.key == "space":
            self.take(self.items[self.at])
        else:
            super().press(event)

    def take(self, answer: tuple[str, str]) -> None:
        """This one."""
        self._answer(answer[0])
        self.dismiss()

    def on_unmount(self) -> None:
        """However it ended, once."""
        self._answer(None)

    def _answer(self, answer: str | None) -> None:
        answered, self._answered = self._answered, None
        if answered is not None:
            answered(answer)
