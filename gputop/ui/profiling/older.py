"""What was taken of a process before, and of others of the same command: one of them is opened."""

from __future__ import annotations

from gputop.profile.store import StoredProfile
from gputop.ui import draw
from gputop.ui.dialogs.choosing import ListDialog
from gputop.ui.draw import Line
from gputop.ui.look import Look
from gputop.ui.profiling.past import Past


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
        text = draw.fit(one.title, self.width - 4, more=self.look.glyphs.more)
        return line.add("  ").add(text, "bright" if place == self.at else "text" if own else "dim")

    def take(self, place: int) -> None:
        """This one."""
        self.dismiss(self._past.older[place])
