"""Keys that tag processes."""

from __future__ import annotations

from gputop.labels import amount
from gputop.ui.main.board import Board


class Picking(Board):
    """Tags, for what is done to several processes at once."""

    def action_tag(self, children: bool) -> None:
        """Tag the selected line, alone or with all that is below it; alone, on to the next line."""
        listing = self.table.listing
        row = listing.cursor
        if row is None:
            return
        self.table.key()
        if children:
            listing.tags.toggle_all(row, listing.matching)
        else:
            listing.tags.toggle(row)
            listing.move(1)
        self.table.redraw()
        self.say(f"{amount(len(listing.tags), 'process')} tagged" if listing.tags else "nothing is tagged")

    def action_untag(self) -> None:
        """Tag nothing."""
        self.table.listing.tags.clear()
        self.table.redraw()
        self.say("nothing is tagged")
