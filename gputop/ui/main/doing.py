"""Everything that can be done, by name; and letting go of the driver."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from gputop.config import BY_KEY
from gputop.source import Releasable, Staged
from gputop.ui.keys.declared import Key
from gputop.ui.main.changing import Changing
from gputop.ui.table.columns import PRESETS

if TYPE_CHECKING:
    from gputop.ui.dialogs.palette import Deed

_THEMES = {"auto": "dark, or the terminal's own 16 colours", "terminal": "the terminal's own 16 colours"}


class Doing(Changing):
    """The palette."""

    def action_palette(self) -> None:
        """Choose what to do."""
        from gputop.ui.dialogs.palette import Palette, do  # late

        self.app.push_screen(Palette(self.look, self.deeds), do)

    def deeds(self) -> Iterator[Deed]:
        """What every key does; presets of columns, themes."""
        from gputop.ui.dialogs.palette import Deed, of_keys  # late

        yield from of_keys(self.keys, self._act, self.why_not)
        yield Deed(
            "columns", "choose and order the columns", partial(self._act, "columns"), also="show hide move fields"
        )
        for preset, title in PRESETS.items():
            yield Deed(f"columns-{preset}", f"columns: {title}", partial(self._act, f"preset('{preset}')"))
        source = self.program.source
        if isinstance(source, Staged):
            for name, about in source.scenes.items():
                yield Deed(f"demo-{name}", f"demo: {about}", partial(source.stage, name))
        yield from self.themes()

    def themes(self) -> Iterator[Deed]:
        """Other colours."""
        from gputop.ui.dialogs.palette import Deed  # late

        setting, no_colour = BY_KEY["theme"], "NO_COLOR is set" if os.environ.get("NO_COLOR") else ""
        for theme in setting.choices:
            change = partial(self.change, setting, theme, self.say)
            yield Deed(f"theme-{theme}", f"colours: {_THEMES.get(theme, theme)}", change, why_not=no_colour)

    async def _act(self, action: str) -> None:
        await self.run_action(action)

    def why_not(self, key: Key) -> str:
        """Why a key does nothing now; empty if it does."""
        if key.id == "release-driver" and not isinstance(self.program.source, Releasable):
            return "this is no live machine"
        if key.id == "release-driver" and not self.settings.nvml:
            return "the driver is not asked"
        return super().why_not(key)

    def action_driver(self) -> None:
        """Let go of the driver, or take it again."""
        source = self.program.source
        if isinstance(source, Releasable):
            source.released = not source.released
            self.say("the driver is let go of" if source.released else "the driver is asked again")
