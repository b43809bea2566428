"""Keys that show and hide panes, and how much is in them."""

from __future__ import annotations

from gputop.ui.keys.declared import Key
from gputop.ui.keys.hints import hint
from gputop.ui.main.board import Board
from gputop.ui.panes.layout import WIDTH_FOR_HOST, Pane

_NAMES: dict[Pane, str] = {"gpus": "GPUs", "host": "host", "processes": "processes", "advice": "advice"}

_HIDING = ("pane-gpus", "pane-host", "pane-processes")


class Framing(Board):
    """Panes: shown, hidden, alone."""

    def why_not(self, key: Key) -> str:
        """Why a key does nothing now; empty if it does. Advice is the one pane that a small screen hides and zooms."""
        zooms = key.id == "zoom" and self.alone is None and self.focused is not self.advice
        return (self.too_small("more panes") if zooms or key.id in _HIDING else "") or super().why_not(key)

    def place(self) -> None:
        """Give every pane its place; while a screen was too small for the processes, the GPUs had the keys."""
        before = self.panes
        super().place()
        if before and before.notice and self.panes and self.panes.processes and self.focused is not self.advice:
            self.set_focus(self.table)

    def action_hide(self, pane: Pane) -> None:
        """Show or hide a pane; one stays. Beside one that is alone all are as if hidden: it shows the pane."""
        hidden = self.hidden - {pane} if self.alone not in (None, pane) else self.hidden ^ {pane}
        if len(hidden) == len(_NAMES):
            self.say("one pane stays")
            return
        self.hidden, self.alone = hidden, None
        self._frame(f"{_NAMES[pane]}: {'hidden' if pane in hidden else 'shown'}")
        if pane == "processes" and pane not in hidden:
            self.set_focus(self.table)  # while it was away the keys were about the GPUs
        if pane == "host" and pane not in hidden and not (self.panes and self.panes.host):
            way = hint(self.names, ", or where {} hides the processes", "pane-processes")
            self.say(f"host: no lines left for it; it has a column from {WIDTH_FOR_HOST} columns on{way}")

    def action_zoom(self) -> None:
        """The pane that has the keys alone, or all of them again."""
        if self.alone is not None:
            self.unzoom()
            return
        focused = self.focused.id if self.focused else None
        shown = [pane for pane in _NAMES if pane not in self.hidden]
        most = "processes" if "processes" in shown else shown[-1]
        pane = next((pane for pane in shown if pane == focused), most)
        self.alone = pane
        self._frame(f"{_NAMES[pane]} alone{hint(self.names, '; {} goes back', 'zoom', 'back')}")

    def unzoom(self) -> bool:
        """All panes again; whether one was alone."""
        if self.alone is None:
            return False
        self.alone = None
        self._frame("")
        return True

    def action_every_process(self) -> None:
        """All processes, or those that have to do with a GPU or are busy."""
        self.table.key()
        every = not self.table.listing.view.every_process
        self.table.see(every_process=every)
        self.look_closer()
        self.say("all processes" if every else "processes that have to do with a GPU, or are busy")

    def _frame(self, said: str) -> None:
        self.first_gpu = 0
        self.place()
        if self.focused is None or not self.focused.display:
            self.set_focus(self.table)
        self.redraw()
        self.table.redraw()
        if said:
            self.say(said)
