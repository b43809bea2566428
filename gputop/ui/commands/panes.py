"""Keys that show and hide panes, and how much is in them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from gputop.ui.commands.command import Command, available, hint

if TYPE_CHECKING:
    from gputop.ui.main.screen import MainScreen
    from gputop.ui.panes.layout import Pane

_NAMES: dict[Pane, str] = {"gpus": "GPUs", "host": "host", "processes": "processes", "advice": "advice"}


def next_density(main: MainScreen) -> None:
    """Draw the GPUs in another size."""
    main.gpus.next_density()
    main.place()
    main.redraw()
    density = main.gpus.density
    fits = not main.panes or density in (None, main.panes.density)
    main.session.say(f"GPUs: {density or 'automatic'}" if fits else f"GPUs: no room for a {density}")


def hide(main: MainScreen, pane: Pane) -> None:
    """Show or hide a pane; one stays. Beside one that is alone all are as if hidden: it shows the pane."""
    from gputop.ui.panes.layout import WIDTH_FOR_HOST  # late: it draws

    hidden = main.hidden - {pane} if main.alone not in (None, pane) else main.hidden ^ {pane}
    if len(hidden) == len(_NAMES):
        main.session.say("at least one pane must be shown")
        return
    main.hidden, main.alone = hidden, None
    main.rearrange()
    main.session.say(f"{_NAMES[pane]}: {'hidden' if pane in hidden else 'shown'}")
    if pane == "processes" and pane not in hidden:
        main.set_focus(main.table)  # while it was away the keys were about the GPUs
    if pane == "host" and pane not in hidden and not (main.panes and main.panes.host):
        way = hint(main.names, ", or hide the processes with {}", "pane-processes")
        main.session.say(f"host: no room; it needs a terminal {WIDTH_FOR_HOST} columns wide{way}")


def zoom(main: MainScreen) -> None:
    """Show the pane that has the keys alone, or all of them again."""
    if main.unzoom():
        return
    focused = main.focused.id if main.focused else None
    shown = [pane for pane in _NAMES if pane not in main.hidden]
    most = "processes" if "processes" in shown else shown[-1]
    pane = next((pane for pane in shown if pane == focused), most)
    main.alone = pane
    main.rearrange()
    main.session.say(f"{_NAMES[pane]} alone{hint(main.names, '; {} goes back', 'zoom', 'back')}")


def toggle_every_process(main: MainScreen) -> None:
    """Show all processes, or those that have to do with a GPU or are busy."""
    main.table.key()
    every = not main.table.listing.view.every_process
    main.table.see(every_process=every)
    main.look_closer()
    main.session.say("all processes" if every else "processes on a GPU, in a job, or busy")


def _too_small(main: MainScreen) -> str:
    return main.too_small("panes")


def _too_small_to_zoom(main: MainScreen) -> str:
    """The advice is the one pane that a small screen zooms."""
    return main.too_small("panes") if main.alone is None and main.focused is not main.advice else ""


def _pane(id: Pane, key: str, title: str, help: str, *, joins: bool = True) -> Command:
    """A key that shows or hides one pane. The advice is the one that a small screen hides, too."""
    why = available if id == "advice" else _too_small
    return Command(f"pane-{id}", (key,), title, help, "LOOK", partial(hide, pane=id), why, joins=joins)


COMMANDS = (
    Command("density", ("g",), "GPUs", "GPUs as cards, rows or cells", "LOOK", next_density, keep=50),
    _pane("gpus", "1", "Hide GPUs", "show or hide the GPUs", joins=False),
    _pane("host", "2", "host", "show or hide the host"),
    _pane("processes", "3", "processes", "show or hide the processes"),
    _pane("advice", "4", "advice", "show or hide the advice"),
    Command("zoom", ("z",), "Zoom", "zoom this pane, and back", "LOOK", zoom, _too_small_to_zoom),
    Command("everything", ("H",), "All", "include processes without a GPU", "LOOK", toggle_every_process),
)
