"""Settings and the columns of the table, changed while it runs; what is changed is saved."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputop.ui.commands.command import BOTH, Command
from gputop.ui.table.columns import PRESETS, Preset

if TYPE_CHECKING:
    from gputop.ui.main.screen import MainScreen
    from gputop.ui.screen import CommandScreen


def setup(screen: CommandScreen) -> None:
    """Show every setting."""
    from gputop.ui.dialogs.setup import Setup  # late
    from gputop.ui.settings_editor import SettingsEditor

    keys = next(command.keys for command in screen.session.commands if command.id == "setup")
    screen.app.push_screen(Setup(SettingsEditor(screen.session), keys))


def choose_columns(screen: CommandScreen) -> None:
    """Choose and order the columns of the main view."""
    from gputop.ui.dialogs.columns import Columns  # late
    from gputop.ui.settings_editor import SettingsEditor

    screen.app.push_screen(Columns(SettingsEditor(screen.session)))


def next_preset(main: MainScreen) -> None:
    """Show the columns of the next preset."""
    presets = list(PRESETS)
    place = presets.index(main.table.listing.view.preset) + 1
    show_preset(main, presets[place % len(presets)])


def show_preset(main: MainScreen, preset: Preset) -> None:
    """Show the columns of a preset; KeyError when there is none of this id."""
    title = PRESETS[preset]
    main.table.preset(preset)
    main.look_closer()
    main.session.say(f"columns: {title}")


COMMANDS = (
    Command("setup", ("f2",), "Setup", "settings, saved at once", "LOOK", setup, keep=65, on=BOTH,
            also="settings options preferences config columns"),
    Command("view", ("v",), "View", "columns: steps, I/O, memory, CPU", "LOOK", next_preset, keep=15,
            also="columns preset view"),
)  # fmt: skip
