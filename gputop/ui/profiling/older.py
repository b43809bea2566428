"""What was taken of a process before, and of others of the same command: one of them is opened."""

from __future__ import annotations

from gputop.profile.store import StoredProfile
from gputop.ui.dialogs.choices import ListDialog
from gputop.ui.profiling.tools import PastResults
from gputop.ui.theme import Look
from gputop.ui.widgets import drawing
from gputop.ui.widgets.drawing import Line


class OlderDialog(ListDialog[StoredProfile, StoredProfile]):
    """The newest first, those of the process itself before the others."""

    TITLE_TEXT = "earlier profiles"
    FOOT = "Enter opens   Esc goes back"
    WIDTH = 80

    def __init__(self, look: Look, past: PastResults) -> None:
        super().__init__(look, past.older)
        self._own = past.own

    def row(self, profile: StoredProfile, line: Line, chosen: bool) -> Line:
        """When, of what, how."""
        text = drawing.fit(profile.title, self.width - 4, more=self.look.glyphs.more)
        return line.add("  ").add(text, "bright" if chosen else "text" if profile in self._own else "dim")

    def take(self, profile: StoredProfile) -> None:
        """This one."""
        self.dismiss(profile)
