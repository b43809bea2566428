"""Keys of the screen of one process: its tabs, and what Enter does in them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from gputop.ui.commands.command import Command, Place
from gputop.ui.commands.details import open_tab

if TYPE_CHECKING:
    from gputop.ui.details.screen import ProcessScreen

_HERE: tuple[Place, ...] = ("details",)


def close(screen: ProcessScreen) -> None:
    """Back to where it was opened."""
    screen.leave()


def next_tab(screen: ProcessScreen, step: int) -> None:
    """Open the tab beside."""
    screen.next_tab(step)


def take(screen: ProcessScreen) -> None:
    """Show or hide the selected secret; open the selected parent or child."""
    screen.take()


def scroll_sideways(screen: ProcessScreen, step: int) -> None:
    """Show long lines from further on."""
    screen.sideways(step)


def show_environment_of_others(screen: ProcessScreen) -> None:
    """Show the environment of another user's process, because root asked for it."""
    screen.show_environment_of_others()


def _nothing_to_take(screen: ProcessScreen) -> str:
    return "" if screen.tab.takes and not screen.request.withheld else "nothing to open here"


def _nothing_withheld(screen: ProcessScreen) -> str:
    return "" if screen.request.withheld else "nothing is hidden here"


def _title_of_take(screen: ProcessScreen) -> str:
    return screen.tab.takes


def _tab(number: int, id: str, title: str, help: str) -> Command:
    """A key that opens a tab."""
    run = partial(open_tab, tab=id)
    return Command(f"{id}-tab", (str(number),), title, help, "DETAILS", run, joins=number > 1, on=_HERE)


COMMANDS = (
    Command("close", ("escape",), "Back", "back to where you were", "DETAILS", close, keep=95, on=_HERE),
    Command("take", ("enter", "space"), "Open", "open a parent or child; show or hide a secret", "DETAILS", take,
            _nothing_to_take, _title_of_take, keep=80, on=_HERE),
    _tab(1, "threads", "Threads", "its threads"),
    _tab(2, "io", "I/O", "I/O rates and totals"),
    _tab(3, "gpu", "GPU", "its use of GPUs"),
    _tab(4, "environment", "Environment", "its environment"),
    _tab(5, "children", "Children", "its parents and children"),
    _tab(6, "files", "Files", "its open files"),
    _tab(7, "limits", "Limits", "resource limits and capabilities"),
    _tab(8, "memory", "Memory", "memory breakdown"),
    Command("next-tab", ("tab",), "Next tab", "the next tab", "DETAILS", partial(next_tab, step=1), keep=70, on=_HERE),
    Command("previous-tab", ("shift+tab",), "Previous", "the previous tab", "DETAILS", partial(next_tab, step=-1),
            joins=True, on=_HERE),
    Command("left", ("left",), "Left", "scroll long lines left", "DETAILS", partial(scroll_sideways, step=-1),
            on=_HERE),
    Command("right", ("right",), "Right", "scroll long lines right", "DETAILS", partial(scroll_sideways, step=1),
            joins=True, on=_HERE),
    Command("others", ("O",), "Show it", "as root: show another user's environment", "DETAILS",
            show_environment_of_others, _nothing_withheld, keep=85, on=_HERE),
)  # fmt: skip
