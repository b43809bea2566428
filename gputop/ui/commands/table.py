"""Every command, declared once by feature: a new key is one row in the module of its feature, beside what it does.

Bindings, key bar, help, palette, README and `gputop keys` are made of this table. No module of it imports a screen or
Textual when it is loaded: the manual lists the keys where there is no terminal.
"""

from __future__ import annotations

from gputop.ui.commands import (
    advice,
    copying,
    details,
    help,
    hosts,
    leaving,
    movement,
    panes,
    process_control,
    process_tabs,
    profiling,
    result,
    search,
    selection,
    settings,
    sorting,
    time_control,
)
from gputop.ui.commands.command import Command

# in the order in which help lists them; a feature whose keys stand apart there has a table for each place
COMMANDS: tuple[Command, ...] = (
    *help.HELP_COMMANDS,
    *movement.COMMANDS,
    *search.COMMANDS,
    *selection.COMMANDS,
    *sorting.COMMANDS,
    *panes.COMMANDS,
    *advice.COMMANDS,
    *details.COMMANDS,
    *settings.COMMANDS,
    *copying.COMMANDS,
    *help.PALETTE_COMMANDS,
    *settings.DRIVER_COMMANDS,
    *process_control.SIGNAL_COMMANDS,
    *profiling.COMMANDS,
    *advice.VERIFY_COMMANDS,
    *process_control.NICENESS_COMMANDS,
    *time_control.COMMANDS,
    *leaving.COMMANDS,
    *process_tabs.COMMANDS,
    *result.COMMANDS,
    *hosts.COMMANDS,
)


def command(id: str) -> Command:
    """The command with this id; KeyError when there is none."""
    for row in COMMANDS:
        if row.id == id:
            return row
    raise KeyError(id)
