"""Changes settings while it runs, and keeps them in the file; says why one cannot be changed or kept."""

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
from gputop.ui.commands.time_control import AS_RECORDED
from gputop.ui.screen import CommandScreen
from gputop.ui.session import Session
from gputop.ui.theme import Look


class SettingsEditor:
    """The settings of a session, wherever in it they are used."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @property
    def look(self) -> Look:
        """The theme and the glyphs now."""
        return self._session.look

    def current(self) -> Settings:
        """The settings as they are now, with what keys have changed since the start."""
        settings = replace(self._session.settings, interval_s=self._session.source.interval_s)
        for screen in self._screens():
            settings = screen.settings_now(settings)
        return settings

    def columns_in_sight(self) -> Collection[str]:
        """The ids of the columns that there is room for."""
        return {id for screen in self._screens() for id in screen.columns_in_sight()}

    def fixed(self, setting: Setting) -> str:
        """Why a setting cannot be changed here: it would do nothing now, and not be saved or not be meant to."""
        if setting.field == "interval_s" and self._session.source.elsewhere == RECORDED:
            return f"not changed: {AS_RECORDED}"
        unsaved = self._unsaved(setting)
        return unsaved and f"not changed: {unsaved}" if setting.later else ""

    def change(self, setting: Setting, value: Any, tell: Callable[[str], object]) -> None:
        """Change a setting now and in the file; `tell` gets the outcome."""
        session = self._session
        session.settings = replace(self.current(), **{setting.field: value})
        self._apply(setting)
        if unsaved := self._unsaved(setting):
            tell(f"for this session only: {unsaved}")
        else:
            settings = session.settings
            session.files.do(lambda: _store(settings, setting, value), tell)

    def _unsaved(self, setting: Setting) -> str:
        """Why a change of this setting is not written to the file."""
        origin = self._session.settings.origin
        if self._session.readonly:
            return "gputop is read-only"
        if setting.key in origin.overruled:
            return f"{origin.overruled[setting.key]} overrides the file"
        if origin.trouble:
            return f"the file is not used: {origin.trouble}"
        return "" if origin.path else "no settings file: neither HOME nor XDG_CONFIG_HOME is set"

    def _apply(self, setting: Setting) -> None:
        """Let what is on the screen follow."""
        session, settings = self._session, self._session.settings
        if setting.field in ("theme", "ascii"):
            new = theme.choose(settings.theme, settings.ascii, getattr(sys.stdout, "encoding", None), os.environ)
            palette, glyphs = (
                (new.palette, self.look.glyphs) if setting.field == "theme" else (self.look.palette, new.glyphs)
            )
            session.set_theme(Look(palette, glyphs))
        elif setting.field == "mouse":
            session.app.listen_to_mouse(settings.mouse)
        elif setting.field == "interval_s":
            session.set_interval(settings.interval_s)
        for screen in self._screens():
            screen.apply_setting(setting)

    def _screens(self) -> list[CommandScreen]:
        return [screen for screen in self._session.app.screen_stack if isinstance(screen, CommandScreen)]


def _store(settings: Settings, setting: Setting, value: Any) -> str:
    path = settings.origin.path or ""
    config.store(path, setting, value, read_settings, write_settings)
    return f"saved: {setting.key} = {toml.to_toml(config.spelled(value))}"
