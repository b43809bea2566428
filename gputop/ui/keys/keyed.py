"""A screen whose keys are declared: it does what the key of an id does."""

from __future__ import annotations

from collections.abc import Sequence

from textual.screen import Screen

from gputop.ui.keys.declared import Key
from gputop.ui.keys.held import at_once


class Keyed(Screen[None], inherit_bindings=False):
    """`keys` are those that do something on it, as they are in the settings."""

    keys: Sequence[Key]

    async def action_press(self, id: str) -> None:
        """Do what a key does."""
        for key in self.keys:
            if key.id == id:
                await self.act(at_once(self.app, key.action))

    async def act(self, action: str) -> None:
        """Do what a key or a line of the palette names."""
        await self.run_action(action)
