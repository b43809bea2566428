"""Keys that move: the cursor, the GPUs, folds, from pane to pane."""

from __future__ import annotations

from textual import events, on

from gputop.ui.gpus.models import with_instances
from gputop.ui.gpus.pane import fitting, furthest
from gputop.ui.keys.hints import hint
from gputop.ui.main.advising import Advising
from gputop.ui.table.widget import WHEEL


class Moving(Advising):
    """What the keys of the group MOVE do."""

    def action_move(self, lines: int) -> None:
        """Lines up or down."""
        self._moved(lines)

    def action_page(self, pages: int) -> None:
        """A page up or down."""
        if self.advised:
            self.scroll_advice(pages * max(1, self.advice.size.height - 6))
            return
        panes, height, update = self.panes, self.table.listing.height, self.shown
        if panes and panes.gpus and update and self._moves_gpus():
            height = fitting(panes.density, *panes.gpus[2:], len(with_instances(update.frame.gpus)))
        self._moved(pages * max(1, height - 1))

    def _moved(self, lines: int) -> None:
        if self.advised:
            self.advise(lines)
            return
        if self._moves_gpus():
            self._scroll_gpus(lines)
            return
        self.table.key()
        self.table.listing.move(lines)
        self.table.redraw()

    def _moves_gpus(self) -> bool:
        return self.focused is self.gpus or not (self.panes and self.panes.processes)

    def _scroll_gpus(self, lines: int) -> None:
        panes, update = self.panes, self.shown
        if panes and panes.gpus and update:
            most = furthest(panes.density, *panes.gpus[2:], len(with_instances(update.frame.gpus)))
            self.first_gpu = min(max(0, self.first_gpu + lines), most)
            self.redraw()

    @on(events.MouseScrollDown, "#gpus")
    @on(events.MouseScrollUp, "#gpus")
    def wheel(self, event: events.MouseEvent) -> None:
        """The wheel over the GPUs; the table has its own."""
        self._scroll_gpus(WHEEL if isinstance(event, events.MouseScrollDown) else -WHEEL)

    def action_fold(self) -> None:
        """Fold, or go to the parent."""
        if self.turn_advice(-1):
            return
        self.table.key()
        self.table.fold(-1)

    def action_unfold(self) -> None:
        """Unfold."""
        if self.turn_advice(1):
            return
        self.table.key()
        self.table.fold(1)

    def action_level(self, step: int) -> None:
        """Fold or unfold everywhere."""
        self.table.key()
        self.table.listing.level(step)
        self.table.redraw()

    def action_pane(self, step: int) -> None:
        """The next pane takes the keys."""
        chain = len(self.focus_chain)  # round it is nowhere
        for _ in range(abs(step) % chain if abs(step) > chain > 0 else abs(step)):
            if step > 0:
                self.focus_next()
            else:
                self.focus_previous()
        self.refocused()
        self.table.redraw()
        if self.focused is self.gpus:
            self.say(f"the arrows scroll the GPUs{hint(self.names, '; {} goes back', 'next-pane')}")

    def action_follow(self) -> None:
        """The cursor follows its process, or stays on its line."""
        listing = self.table.listing
        listing.follow = not listing.follow
        self.say("the cursor follows its process" if listing.follow else "the cursor stays on its line")
        self.table.redraw()
