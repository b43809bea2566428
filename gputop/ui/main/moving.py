"""Keys that move: the cursor, the GPUs, folds, from pane to pane."""

from __future__ import annotations

from gputop.ui.main.gpus import Gpus


class Moving(Gpus):
    """What the keys of the group MOVE do."""

    def action_move(self, lines: int) -> None:
        """Lines up or down."""
        self._moved(lines)

    def action_page(self, pages: int) -> None:
        """A page up or down."""
        if self.advised:
            self.scroll_advice(pages * max(1, self.advice.size.height - 6))
            return
        places = self.grid
        if self._moves_gpus() and places:
            self._moved(pages * max(1, (places.deep if places.across and self.on_gpus else places.fitting) - 1))
        else:
            self._moved(pages * max(1, self.table.listing.height - 1))

    def _moved(self, lines: int) -> None:
        if self.advised:
            self.advise(lines)
        elif self.on_gpus:
            self.choose_gpu(lines)
        elif self._moves_gpus():
            self.scroll_gpus(lines)
        else:
            self.table.key()
            self.table.listing.move(lines)
            self.table.redraw()

    def _moves_gpus(self) -> bool:
        return self.focused is self.gpus or not (self.panes and self.panes.processes)

    def action_fold(self) -> None:
        """Fold, or go to the parent; of GPUs the one to the left."""
        if self.turn_advice(-1):
            return
        if self.on_gpus:
            self.choose_gpu(0, -1)
            return
        self.table.key()
        self.table.fold(-1)

    def action_unfold(self) -> None:
        """Unfold; of GPUs the one to the right."""
        if self.turn_advice(1):
            return
        if self.on_gpus:
            self.choose_gpu(0, 1)
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
        if self.focused is self.gpus:
            self.choose_gpu(0)
            self.explain_gpus()

    def action_follow(self) -> None:
        """The cursor follows its process, or stays on its line."""
        listing = self.table.listing
        listing.follow = not listing.follow
        self.say("the cursor follows its process" if listing.follow else "the cursor stays on its line")
        self.table.redraw()
