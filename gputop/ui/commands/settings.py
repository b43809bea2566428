"""What is set while it runs: settings and columns, which are saved, and whether the driver is held."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputop.columns import PRESETS, Preset
from gputop.source import Releasable
from gputop.ui.commands.command import BOTH, Command

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


def toggle_driver(main: MainScreen) -> None:
    """Release the driver, or take it back."""
    source = main.session.source
    if isinstance(source, Releasable):
        source.released = not source.released
        main.session.say("driver released" if source.released else "driver in use again")


def _no_driver(main: MainScreen) -> str:
    if not isinstance(main.session.source, Releasable):
        return "not a live machine"
    return "" if main.session.settings.nvml else "NVML is off in the settings"


COMMANDS = (
    Command("setup", ("f2",), "Setup", "settings, saved immediately", "LOOK", setup, keep=65, on=BOTH,
            also="settings options preferences config columns"),
    Command("view", ("v",), "View", "columns: steps, I/O, memory, CPU", "LOOK", next_preset, keep=15,
            also="columns preset view"),
)  # fmt: skip
DRIVER_COMMANDS = (
    Command("release-driver", ("D",), "Release", "release the driver, and back", "LOOK", toggle_driver, _no_driver),
)
