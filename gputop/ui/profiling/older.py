"""What was taken of a process before, and of others of the same command: one of them is opened."""

from __future__ import annotations

from gputop.profile.store import StoredProfile
from gputop.ui.dialogs.choices import ListDialog
from gputop.ui.profiling.tools import Past
from gputop.ui.theme import Look
from gputop.ui.widgets import drawing
from gputop.ui.widgets.drawing import Line


class OlderDialog(ListDialog[StoredProfile]):
    """The newest first, those of the process itself before the others."""

    TITLE_TEXT = "taken before"
    FOOT = "Enter opens   Esc goes back"
    WIDTH = 80

    def __init__(self, look: Look, past: Past) -> None:
        super().__init__(look)
        self._past = past

    @property
    def count(self) -> int:
        """As many as there are."""
        return len(self._past.older)

    def row(self, place: int, line: Line) -> Line:
        """When, of what, how."""
        one = self._past.older[place]
        own = place < len(self._past.own)
        text = drawing.fit(one.title, self.width - 4, more=self.look.glyphs.more)
        return line.add("  ").add(text, "bright" if place == self.at else "text" if own else "dim")

    def take(self, place: int) -> None:
        """This one."""
        self.dismiss(self._past.older[place])
