"""Keys in what is said on the screen: each by the name it has now, and nothing of what has no key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gputop.ui.commands.command import Command

Names = Mapping[str, str]  # by the id of the command, the key to show


def names(commands: Iterable[Command]) -> Names:
    """What the keys are called."""
    return {command.id: command.names[0] for command in commands if command.keys}


def hint(names: Names, text: str, *ids: str) -> str:
    """A text about keys, which stand in the place of its `{}`: `3 or z`; nothing where none of them is there."""
    known = [names[id] for id in ids if id in names]
    return text.replace("{}", " or ".join(known)) if known else ""
