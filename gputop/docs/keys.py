"""Every key as a table, for the manual and the README."""

from __future__ import annotations

from collections.abc import Sequence

from gputop.docs.markdown import table
from gputop.ui.commands.command import GROUPS, Command, help_lines
from gputop.ui.commands.table import COMMANDS


def key_tables(commands: Sequence[Command] = COMMANDS) -> str:
    """Every key, by group, with the id by which it is remapped; the declared ones, or these."""
    parts = []
    for group in GROUPS:
        rows = ((" ".join(one.names), one.id, one.help) for one in commands if one.group == group)
        parts.append(f"## {group.title()}\n\n{table(('key', 'id', 'does'), rows)}")
    return "\n\n".join(parts)


def key_summary() -> str:
    """The keys as the help on the screen shows them, in one table: for the README."""
    rows = ((group.title(), f"`{names}`", text) for group in GROUPS for names, text in help_lines(group, COMMANDS))
    return table(("", "keys", "do"), rows)
