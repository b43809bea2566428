"""Every command, declared once by feature: a new key is one row in the module of its feature, beside what it does.

Bindings, key bar, help, palette, README and `gputop keys` are made of this table. No module of it imports a screen or
Textual when it is loaded: the manual lists the keys where there is no terminal.
"""

from __future__ import annotations

from gputop.ui.commands import (
    advice,
    clipboard,
    details,
    driver,
    leaving,
    manual,
    movement,
    niceness,
    palette,
    panes,
    process_tabs,
    profiling,
    result,
    saving,
    search,
    selection,
    settings,
    signals,
    sorting,
    time_control,
    verify,
)
from gputop.ui.commands.command import Command

COMMANDS: tuple[Command, ...] = (
    *manual.COMMANDS,
    *movement.COMMANDS,
    *search.COMMANDS,
    *selection.COMMANDS,
    *sorting.COMMANDS,
    *panes.COMMANDS,
    *advice.COMMANDS,
    *details.COMMANDS,
    *settings.COMMANDS,
    *clipboard.COMMANDS,
    *saving.COMMANDS,
    *palette.COMMANDS,
    *driver.COMMANDS,
    *signals.COMMANDS,
    *profiling.COMMANDS,
    *verify.COMMANDS,
    *niceness.COMMANDS,
    *time_control.COMMANDS,
    *leaving.COMMANDS,
    *process_tabs.COMMANDS,
    *result.COMMANDS,
)


def command(id: str) -> Command:
    """The command with this id; KeyError when there is none."""
    for row in COMMANDS:
        if row.id == id:
            return row
    raise KeyError(id)
