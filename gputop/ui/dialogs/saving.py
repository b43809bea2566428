"""Saving what is on the screen: as what, and into which file."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from textual import events
from textual.geometry import Region
from textual.strip import Strip

from gputop.safe.files import state_folder
from gputop.ui.dialogs.choices import ListDialog
from gputop.ui.theme import Look
from gputop.ui.widgets.drawing import Line

Kind = Literal["svg", "txt", "json"]
KINDS: dict[Kind, tuple[str, str]] = {
    "svg": ("s", "a picture (SVG)"),
    "txt": ("t", "text"),
    "json": ("j", "the numbers (JSON)"),
}


class Shot(NamedTuple):
    """What is on a screen, without secrets: where its panes are and what they show, and the numbers."""

    panes: Callable[[], Sequence[tuple[Region, Sequence[Strip]]]]
    numbers: Callable[[], Mapping[str, Any]]


def save(kind: Kind, content: str) -> str:
    """Write a new file of mode 0600 in the state folder; what there is to say of it. Refused where that cannot be."""
    folder = state_folder()
    name = f"screen-{time.strftime('%Y%m%d-%H%M%S')}-{os.urandom(4).hex()}.{kind}"
    try:
        folder.write(name, content.encode("utf-8", "replace"))
    finally:
        folder.close()
    path, home = f"{folder.path}/{name}", os.environ.get("HOME", "")
    return f"saved in {f'~{path.removeprefix(home)}' if home and path.startswith(f'{home}/') else path}"


class SaveDialog(ListDialog[Kind, Kind]):
    """As what."""

    TITLE_TEXT = "save the screen as"
    FOOT = "Enter or its letter saves   Esc closes"
    WIDTH = 44

    def __init__(self, look: Look) -> None:
        super().__init__(look, list(KINDS))

    def row(self, kind: Kind, line: Line, chosen: bool) -> Line:  # noqa: ARG002
        """Its letter, and what it is."""
        letter, title = KINDS[kind]
        return line.add("  ").add(letter, "busy", bold=True).add(f"  {title}", "text")

    def take(self, kind: Kind) -> None:
        """This one."""
        self.dismiss(kind)

    def press(self, event: events.Key) -> None:
        """A letter takes what it stands for."""
        kind = next((kind for kind, (letter, _) in KINDS.items() if letter == event.key), None)
        if kind:
            self.take(kind)
        else:
            super().press(event)
