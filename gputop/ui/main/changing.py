"""Keys that change how it all is: setup and themes; what is changed is saved."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

from gputop import config, toml
from gputop.config import Setting, Settings
from gputop.safe.files import read_settings, write_settings
from gputop.source import RECORDED
from gputop.ui import theme
from gputop.ui.main.board import CHOICES, Board
from gputop.ui.theme import Look

TAKEN = "a recording has the looks that were taken"
_VIEW = ("sort", "reverse", "tree", "every_process", "columns")


class Changing(Board):
    """Settings while it runs."""

    def action_setup(self) -> None:
        """Every setting."""
        from gputop.ui.dialogs.setup import Setup  # late

        self.app.push_screen(Setup(self, next(key.keys for key in self.every_key if key.id == "setup")))

    def action_columns(self) -> None:
        """The columns of the main view."""
        from gputop.ui.dialogs.columns import Columns  # late

        self.app.push_screen(Columns(self))

    @property
    def columns_seen(self) -> Collection[str]:
        """The ids of the columns that there is room for."""
        return self.table.columns

    def current(self) -> Settings:
        """The settings as they are now, whatever keys have changed meanwhile."""
        listing = self.table.listing
        looked = {name: getattr(listing.view, name) for name in _VIEW}
        return replace(
            self.settings, interval_s=self.program.source.interval_s, density=self.density or "auto",
            follow=listing.follow, **looked,
        )  # fmt: skip

    def fixed(self, setting: Setting) -> str:
        """Why a setting cannot be changed here: it would do nothing now, and not be saved or not be meant to."""
        if setting.field == "interval_s" and self.program.source.elsewhere == RECORDED:
            return f"not changed: {TAKEN}"
        unsaved = self._unsaved(setting)
        return unsaved and f"not changed: {unsaved}" if setting.later else ""

    def change(self, setting: Setting, value: Any, tell: Callable[[str], object]) -> None:
        """Change a setting now and in the file; what became of that is told."""
        self.settings = replace(self.current(), **{setting.field: value})
        self._apply(setting)
        if unsaved := self._unsaved(setting):
            tell(f"until you leave: {unsaved}")
        else:
            self.program.aside.do(lambda: _store(self.settings, setting, value), tell)

    def _unsaved(self, setting: Setting) -> str:
        """Why a change of this setting is not written to the file."""
        origin = self.settings.origin
        if self.readonly:
            return "gputop is read-only"
        if setting.key in origin.overruled:
            return f"{origin.overruled[setting.key]} overrules the file"
        if origin.trouble:
            return f"the file is not used: {origin.trouble}"
        return "" if origin.path else "there is no file: neither HOME nor XDG_CONFIG_HOME is set"

    def _apply(self, setting: Setting) -> None:
        """Let what is on the screen follow."""
        settings, listing = self.settings, self.table.listing
        if setting.field in _VIEW:
            if setting.field == "columns":
                self.table.preset("main")  # they are of this one
            self.table.see(**{setting.field: getattr(settings, setting.field)})
            self.look_closer()
        elif setting.field in ("theme", "ascii"):
            look = theme.choose(settings.theme, settings.ascii, getattr(sys.stdout, "encoding", None), os.environ)
            palette, glyphs = (
                (look.palette, self.look.glyphs) if setting.field == "theme" else (self.look.palette, look.glyphs)
            )
            self.program.wear(Look(palette, glyphs))
        elif setting.field == "mouse":
            self.program.listen_to_mouse(settings.mouse)
        elif setting.field == "interval_s":
            self.program.pace(settings.interval_s)
        listing.follow = settings.follow
        self.density = next(choice for choice in CHOICES if (choice or "auto") == settings.density)
        self.place()
        self.redraw()
        self.table.redraw()

    def wear(self, look: Look) -> None:
        """Draw everything with other colours or glyphs."""
        self.look = look
        self.table.restyle(look)
        self.prompt.restyle(look)
        self.bar.restyle(look)
        self.errand_line.look = look
        self.errand_line.redraw()
        if self.replay:
            self.replay.restyle(look)
        self.redraw()


def _store(settings: Settings, setting: Setting, value: Any) -> str:
    path = settings.origin.path or ""
    config.store(path, setting, value, read_settings, write_settings)
    return f"saved: {setting.key} = {toml.written(config.spelled(value))}"
