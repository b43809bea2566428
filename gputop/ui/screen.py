"""A screen whose keys are commands: it runs the one that a key stands for, or says why not now."""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import Collection, Sequence
from typing import ClassVar

from textual.events import Key
from textual.screen import Screen

from gputop.config import Setting, Settings
from gputop.monitor import Update
from gputop.ui.commands.command import Command, Names, Place, names, offered
from gputop.ui.session import Session
from gputop.ui.theme import Look
from gputop.ui.widgets.key_bar import KeyBar


class CommandScreen(Screen[None], inherit_bindings=False):
    """What commands may ask of any screen that has some. `shown` is the update that is drawn, if there is one yet."""

    PLACE: ClassVar[Place]

    def __init__(self, session: Session) -> None:
        super().__init__()
        self.session = session
        self.commands = [command for command in session.commands if self.PLACE in command.on]
        self.names: Names = names(self.commands)
        self.bar = KeyBar(session.look, ())
        self.shown: Update | None = None
        self._refusal = ""  # why the last command could not be run, as it is on the last line
        self._by_key = {key: command for command in self.commands for key in command.keys}

    @property
    def look(self) -> Look:
        """The theme and the glyphs."""
        return self.session.look

    @property
    def typing(self) -> bool:
        """Whether something is being typed: nothing may open over it."""
        return False

    def type(self, event: Key) -> bool:  # noqa: ARG002
        """Take a key as text while something is typed; whether it was."""
        return False

    async def press_key(self, keys: Collection[str]) -> bool:
        """Run the command of a key, by any of its names; whether it has one here."""
        command = next((self._by_key[key] for key in keys if key in self._by_key), None)
        if command is not None:
            await self.press(command)
        return command is not None

    async def press(self, command: Command) -> None:
        """Run a command, or say why not now; what was said so of the last one goes."""
        if self._refusal and self.bar.said == self._refusal:
            self.bar.hush()
        reason = command.unavailable(self)
        self._refusal = f"not now: {reason}" if reason else ""
        if reason:
            self.session.say(self._refusal)
        elif inspect.isawaitable(done := command.run(self)):
            await done

    async def run(self, id: str) -> None:
        """Run a command of this screen, or say why not now."""
        await self.press(next(command for command in self.commands if command.id == id))

    def caught_up(self) -> None:
        """Draw what keys have changed that were overtaken by the next."""

    def offered(self) -> Sequence[Command]:
        """What the key bar offers: what can be run now, by the title it has now."""
        return offered(self.commands, self)

    def show(self, update: Update) -> None:
        """Draw an update."""
        self.shown = update
        self.redraw()

    @abstractmethod
    def redraw(self) -> None:
        """Draw everything again."""

    def set_theme(self, look: Look) -> None:
        """Draw everything with other colours or glyphs."""
        self.bar.restyle(look)
        self.redraw()

    @abstractmethod
    def move(self, lines: int) -> None:
        """Move the cursor by lines."""

    @abstractmethod
    def page(self, pages: int) -> None:
        """Move the cursor by pages."""

    def columns_in_sight(self) -> Collection[str]:
        """The ids of the table's columns that there is room for."""
        return ()

    def settings_now(self, settings: Settings) -> Settings:
        """The settings with what keys have changed on this screen."""
        return settings

    def apply_setting(self, setting: Setting) -> None:
        """Let the screen follow a setting that was changed."""
