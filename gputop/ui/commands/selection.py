"""What the other keys are about: one GPU, and processes that are tagged."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from gputop.labels import amount
from gputop.ui.commands.command import Command, hint, no_processes

if TYPE_CHECKING:
    from gputop.ui.main.screen import MainScreen


def choose_gpu(main: MainScreen) -> None:
    """Show only the processes of the chosen GPU; from elsewhere, choose one first: that of the selected process."""
    if main.on_gpus:
        toggle_gpu(main)
        return
    row = main.table.listing.cursor
    used = [share.uuid for process in (row.members if row else ()) for share in process.gpus]
    main.gpus.uuid = next(iter([*filter(None, [main.table.listing.view.gpu]), *used]), main.gpus.uuid)
    main.unzoom()
    main.hidden -= {"gpus"}
    main.place()
    main.set_focus(main.gpus)
    main.refocused()
    main.gpus.choose()
    explain_gpus(main)


def toggle_gpu(main: MainScreen) -> None:
    """Show only the processes of the chosen GPU, and go to them; or those of all GPUs again."""
    chosen, listing = main.gpus.chosen, main.table.listing
    if chosen is None:
        return
    main.bar.hush()
    if chosen.uuid == listing.view.gpu:
        main.show_only(gpu=None)
        main.refocused()
        return
    main.gpus.uuid = chosen.uuid
    main.unzoom()
    main.show_only(gpu=chosen.uuid)
    if listing.cursor and listing.cursor.process is None:  # what the next key does is about one process
        listing.go(next((row.key for row in listing.rows if row.process), listing.cursor.key))
    main.set_focus(main.table)
    main.refocused()


def leave_gpus(main: MainScreen) -> bool:
    """The keys are about the processes again; whether they were about the GPUs."""
    if not main.on_gpus or not main.table.display:
        return False
    main.set_focus(main.table)
    main.refocused()
    return True


def explain_gpus(main: MainScreen) -> None:
    """Say what the keys do that are about the GPUs now."""
    if main.on_gpus:
        only = hint(main.names, "; {} shows only its processes", "details")
        back = hint(main.names, "; {} goes back", "next-pane") if main.table.display else ""
        main.session.say(f"arrow keys select a GPU{only}{back}")
    else:
        main.session.say("arrow keys scroll the GPUs")


def _unavailable(main: MainScreen) -> str:
    """A pane that is alone makes room for the processes of a GPU."""
    if not main.gpus.cards:
        return "no GPU is shown"
    return main.no_processes_of_gpu()


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
    main.session.say(f"{amount(len(listing.tags), 'process')} tagged" if listing.tags else "no process tagged")


def untag(main: MainScreen) -> None:
    """Tag nothing."""
    main.table.listing.tags.clear()
    main.table.redraw()
    main.session.say("no process tagged")


COMMANDS = (
    Command("gpu", ("f",), "One GPU", "select a GPU; again: show only its processes", "PICK", choose_gpu, _unavailable,
            keep=32, also="filter only card device gpus processes"),
    Command("tag", ("space",), "Tag", "tag or untag the process", "PICK", partial(tag, children=False),
            no_processes),
    Command("tag-children", ("c",), "With children", "tag the process with its children", "PICK",
            partial(tag, children=True), no_processes, joins=True),
    Command("untag", ("U",), "Untag", "untag all", "PICK", untag, no_processes, joins=True),
)  # fmt: skip
