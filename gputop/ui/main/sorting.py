"""Keys that sort."""

from __future__ import annotations

from gputop.ui.keys.hints import hint
from gputop.ui.main.board import Board
from gputop.ui.table.columns import BY_ID, beside, of


class Sorting(Board):
    """What the keys of the group SORT do."""

    def action_sort(self, column: str) -> None:
        """Sort by a column."""
        self.table.key()
        self.table.sort(column)
        self._say_order()

    def action_shift_sort(self, step: int) -> None:
        """Sort by the column beside."""
        view = self.table.listing.view
        self.action_sort(beside(view.sort, step, view.preset, view.columns))

    def action_reverse(self) -> None:
        """Sort the other way round."""
        self.table.key()
        self.table.reverse()
        self._say_order()

    def _say_order(self) -> None:
        """In the tree the ranks of a job stay where they are: with one job nothing moves."""
        view, shown = self.table.listing.view, self.shown
        if view.tree and shown and any(len(job.ranks) > 1 for job in shown.frame.jobs):
            flat = hint(self.names, " ({}: flat)", "tree")
            self.say(f"jobs by {BY_ID[view.sort].title}; ranks stay in order{flat}")

    def action_order(self) -> None:
        """Sort by a letter."""
        from gputop.ui.dialogs.dialog import OrderDialog  # late

        self.app.push_screen(OrderDialog(self.look), self._sort_by)

    def action_choose_sort(self) -> None:
        """Sort by a column from a list."""
        from gputop.ui.dialogs.choices import SortDialog  # late

        view = self.table.listing.view
        self.app.push_screen(SortDialog(self.look, view.sort, of(view.preset, view.columns)), self._sort_by)

    def _sort_by(self, column: str | None) -> None:
        if column:
            self.action_sort(column)

    def action_tree(self) -> None:
        """A tree or a flat list."""
        self.table.key()
        self.bar.hush()  # what was said of the order may be of the other one
        self.table.nest()
