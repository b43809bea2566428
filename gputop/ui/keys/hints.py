"""Keys in what is said on the screen: each by the name it has now, and nothing of what has no key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gputop.ui.keys.declared import Key
from gputop.ui.widgets.drawing import Run

Names = Mapping[str, str]  # by what it does, the key to show


def names(keys: Iterable[Key]) -> Names:
    """What the keys are called."""
    return {key.id: key.names[0] for key in keys if key.keys}


def hint(names: Names, text: str, *ids: str) -> str:
    """A text about keys, which stand in the place of its `{}`: `3 or z`; nothing where none of them is there."""
    known = [names[id] for id in ids if id in names]
    return text.replace("{}", " or ".join(known)) if known else ""


def pressed(names: Names, id: str, what: str) -> list[Run]:
    """A key and what it does; nothing where it has no key."""
    name = names.get(id)
    return [Run(name, "busy", True), Run(f" {what}", "dim")] if name else []
