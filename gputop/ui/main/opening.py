"""Keys that open a process."""

from __future__ import annotations

from gputop.ui.keys.hints import hint
from gputop.ui.main.doing import Doing
from gputop.ui.main.gpus import Gpus
from gputop.ui.main.profiling import Profiling
from gputop.ui.main.replaying import Replaying
from gputop.ui.main.taking import Taking


class Opening(Gpus, Profiling, Doing, Taking, Replaying):
    """What Enter, `e` and `l` do on the line under the cursor."""

    def action_open(self, tab: str = "") -> None:
        """The details of its process; a line of several is unfolded, or folded again; of a GPU only its processes."""
        if self.advised and not tab:
            about = self.scene(self.shown).concerned if self.shown else ()
            if not self.program.errands.open_newest(about):
                self.go_to_advised()
            return
        if self.on_gpus and not tab:
            self.toggle_gpu()
            return
        listing = self.table.listing
        row = listing.cursor
        if row is None or self.shown is None or not (self.panes and self.panes.processes):
            return
        self.table.key()
        if row.process is None:
            if tab:
                self.say(f"choose one process{hint(self.names, ': {} unfolds what stands for several', 'details')}")
            else:
                self.table.fold(-1 if row.open and row.kind != "more" else 1)
        elif row.process.identity not in self.shown.frame.by_identity:
            self.say(f"{row.process.pid} has ended")
        else:
            from gputop.ui.details.screen import Details  # late

            identity, look = row.process.identity, self.look
            self.app.push_screen(
                Details(self.program, self, identity, self.shown, self.past, look, self.every_key, tab or "threads")
            )
