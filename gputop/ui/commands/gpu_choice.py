"""The key of one GPU: choose it, then show only its processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputop.ui.commands.command import Command

if TYPE_CHECKING:
    from gputop.ui.main.screen import MainScreen


def choose_gpu(main: MainScreen) -> None:
    """Show only the processes of the chosen GPU; from elsewhere, choose one first: that of the selected process."""
    if main.on_gpus:
        main.toggle_gpu()
        return
    row = main.table.listing.cursor
    used = [share.uuid for process in (row.members if row else ()) for share in process.gpus]
    choice = main.gpu_choice
    choice.uuid = next(iter([*filter(None, [main.table.listing.view.gpu]), *used]), choice.uuid)
    main.unzoom()
    main.hidden -= {"gpus"}
    main.place()
    main.set_focus(main.gpus)
    main.refocused()
    main.choose_gpu(0)
    main.explain_gpus()


def _unavailable(main: MainScreen) -> str:
    """A pane that is alone makes room for the processes of a GPU."""
    if not main.cards:
        return "no GPU is shown"
    return main.no_processes_of_gpu()


COMMANDS = (
    Command("gpu", ("f",), "One GPU", "choose a GPU; again: show its processes only", "PICK", choose_gpu, _unavailable,
            keep=32, also="filter only card device gpus processes"),
)  # fmt: skip
