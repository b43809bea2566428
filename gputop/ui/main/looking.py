"""Keys that change what is looked at, and when: density, freeze, delay, help."""

from __future__ import annotations

from gputop.ui.main.board import CHOICES
from gputop.ui.main.gpus import Gpus
from gputop.ui.panes import empty
from gputop.ui.table.columns import PRESETS, Preset


class Looking(Gpus):
    """What the keys of the groups LOOK and TIME do, and Esc."""

    def action_density(self) -> None:
        """The GPUs in another size."""
        place = CHOICES.index(self.density) + 1
        self.density = CHOICES[place % len(CHOICES)]
        self.first_gpu = 0
        self.place()
        self.redraw()
        fits = not self.panes or self.density in (None, self.panes.density)
        self.say(f"GPUs: {self.density or 'what fits best'}" if fits else f"GPUs: no room for a {self.density}")

    def action_next_preset(self) -> None:
        """The columns of the next preset."""
        presets = list(PRESETS)
        place = presets.index(self.table.listing.view.preset) + 1
        self.action_preset(presets[place % len(presets)])

    def action_preset(self, preset: Preset) -> None:
        """The columns of a preset; KeyError when there is none of this id."""
        said = PRESETS[preset]
        self.table.preset(preset)
        self.look_closer()
        self.say(f"columns: {said}")

    def action_freeze(self) -> None:
        """Hold the picture."""
        self.program.freeze()

    def action_delay(self) -> None:
        """Another time between two looks."""
        from gputop.ui.dialogs.dialog import DelayDialog  # late

        self.app.push_screen(DelayDialog(self.look, self.program.source.interval_s), self.program.pace)

    def action_help(self) -> None:
        """Help."""
        from gputop.ui.dialogs.help import Help  # late

        notes = empty.noted(self.shown.frame) if self.shown else ()
        self.app.push_screen(Help(self.look, notes, self.every_key, why_not=self.why_not))

    def action_back(self) -> None:
        """End what is said, and one more thing: a pane alone, a filter, the frozen picture."""
        self.bar.hush()
        if self.program.errands.ask_to_stop():
            return
        gone = self.unzoom() or self.leave_advice()
        if not (gone or self.clear() or self.leave_gpus()) and self.program.frozen:
            self.program.freeze()
