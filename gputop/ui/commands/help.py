"""What can be done on a screen: help, and the palette with all of it by name, column presets, scenes and themes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from gputop.columns import PRESETS
from gputop.config import BY_KEY
from gputop.source import Staged
from gputop.ui.commands import settings
from gputop.ui.commands.command import EVERY, Command

if TYPE_CHECKING:
    from gputop.ui.dialogs.palette import PaletteEntry
    from gputop.ui.screen import CommandScreen

_THEMES = {"auto": "dark, or the terminal's 16 colors", "terminal": "the terminal's 16 colors"}


def show_help(screen: CommandScreen) -> None:
    """Open help at what is under the cursor, else at the keys of this screen."""
    from gputop.ui.dialogs.explained import explained  # late
    from gputop.ui.dialogs.help import Help

    screen.app.push_screen(Help(screen, explained(screen)))


def show_keys(screen: CommandScreen) -> None:
    """Open help at the keys of this screen."""
    from gputop.ui.dialogs.help import Help  # late

    screen.app.push_screen(Help(screen))


def open_palette(screen: CommandScreen) -> None:
    """Choose what to do."""
    from gputop.ui.dialogs.palette import PaletteDialog, do  # late

    screen.app.push_screen(PaletteDialog(screen.look, partial(entries, screen)), do)


def entries(screen: CommandScreen) -> Iterator[PaletteEntry]:
    """What can be done on this screen, or why not now; on the main screen columns and scenes, too."""
    from gputop.ui.dialogs.palette import PaletteEntry, of_commands  # late

    yield from of_commands(screen)
    if screen.PLACE == "main":
        yield PaletteEntry(
            "columns", "choose and order the columns", partial(settings.choose_columns, screen),
            also="show hide move fields",
        )  # fmt: skip
        for preset, title in PRESETS.items():
            show = partial(settings.show_preset, screen, preset)  # type: ignore[arg-type]  # it is the main screen
            yield PaletteEntry(f"columns-{preset}", f"columns: {title}", show)
        source = screen.session.source
        if isinstance(source, Staged):
            for name, about in source.scenes.items():
                yield PaletteEntry(f"demo-{name}", f"demo: {about}", partial(source.stage, name))
    yield from _themes(screen)


def _themes(screen: CommandScreen) -> Iterator[PaletteEntry]:
    from gputop.ui.dialogs.palette import PaletteEntry  # late
    from gputop.ui.settings_editor import SettingsEditor

    setting, no_colour = BY_KEY["theme"], "NO_COLOR is set" if os.environ.get("NO_COLOR") else ""
    editor = SettingsEditor(screen.session)
    for theme in setting.choices:
        change = partial(editor.change, setting, theme, screen.session.say)
        yield PaletteEntry(f"theme-{theme}", f"colors: {_THEMES.get(theme, theme)}", change, unavailable=no_colour)


HELP_COMMANDS = (
    Command("help", ("f1",), "Help", "explain what is under the cursor", "LEAVE", show_help, keep=100, on=EVERY,
            also="glossary terms define meaning"),
    Command("keys", ("h", "question_mark"), "Keys", "keys, columns, metrics, rules", "LEAVE", show_keys, on=EVERY),
)  # fmt: skip
PALETTE_COMMANDS = (
    Command("palette", ("ctrl+p",), "All", "all commands by name; themes", "LOOK", open_palette, keep=30, on=EVERY),
)
