"""The key that releases the NVIDIA driver, so that it can be unloaded, and takes it back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputop.source import Releasable
from gputop.ui.commands.command import Command

if TYPE_CHECKING:
    from gputop.ui.main.screen import MainScreen


def toggle_driver(main: MainScreen) -> None:
    """Release the driver, or take it back."""
    source = main.session.source
    if isinstance(source, Releasable):
        source.released = not source.released
        main.session.say("the driver is let go of" if source.released else "the driver is asked again")


def _unavailable(main: MainScreen) -> str:
    if not isinstance(main.session.source, Releasable):
        return "this is no live machine"
    return "" if main.session.settings.nvml else "the driver is not asked"


COMMANDS = (
    Command("release-driver", ("D",), "Release", "release the driver, or back", "LOOK", toggle_driver, _unavailable),
)
