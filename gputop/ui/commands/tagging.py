"""Tags, for what is done to several processes at once."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from gputop.labels import amount
from gputop.ui.commands.command import Command, no_processes

if TYPE_CHECKING:
    from gputop.ui.main.screen import MainScreen


def tag(main: MainScreen, *, children: bool) -> None:
    """Tag the selected line, alone or with all that is below it; alone, go on to the next line."""
    listing = main.table.listing
    row = listing.cursor
    if row is None:
        return
    main.table.key()
    if children:
        listing.tags.toggle_all(row, listing.matching)
    else:
        listing.tags.toggle(row)
        listing.move(1)
    main.table.redraw()
    main.session.say(f"{amount(len(listing.tags), 'process')} tagged" if listing.tags else "nothing is tagged")


def untag(main: MainScreen) -> None:
    """Tag nothing."""
    main.table.listing.tags.clear()
    main.table.redraw()
    main.session.say("nothing is tagged")


COMMANDS = (
    Command("tag", ("space",), "Tag", "tag the process, or no longer", "PICK", partial(tag, children=False),
            no_processes),
    Command("tag-children", ("c",), "With children", "tag the process with its children", "PICK",
            partial(tag, children=True), no_processes, joins=True),
    Command("untag", ("U",), "Untag", "tag nothing", "PICK", untag, no_processes, joins=True),
)  # fmt: skip
