"""Keys and clicks about the GPUs: choose one, show only its processes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from textual import events, on

from gputop.model import Gpu
from gputop.monitor import Update
from gputop.ui.gpus.pane import Grid, grid
from gputop.ui.gpus.scene import with_instances
from gputop.ui.keys.declared import Key
from gputop.ui.keys.hints import hint
from gputop.ui.main.advising import Advising
from gputop.ui.main.seeking import Seeking
from gputop.ui.panes.layout import Panes, small
from gputop.ui.panes.parts import Parts
from gputop.ui.table.row import Row
from gputop.ui.table.widget import WHEEL


class Gpus(Advising, Seeking):
    """What keys and the mouse do while they are about the GPUs."""

    @property
    def on_gpus(self) -> bool:
        """Whether the arrows choose a GPU; where there is no room for processes they scroll."""
        return bool(self.focused is self.gpus and self.gpus.display and self.cards) and not small(*self.app.size)

    @property
    def cards(self) -> Sequence[Gpu]:
        """The GPUs in the order in which they are shown."""
        return with_instances(self.shown.frame.gpus) if self.shown else ()

    @property
    def chosen_gpu(self) -> Gpu | None:
        """The one that was chosen last, the first where that is gone."""
        cards = self.cards
        return next((gpu for gpu in cards if gpu.uuid == self.gpu), cards[0] if cards else None)

    @property
    def grid(self) -> Grid | None:
        """Where each stands; None while none is shown."""
        panes, count = self.panes, len(self.cards)
        return grid(panes.density, *panes.gpus[2:], count, self.first_gpu) if panes and panes.gpus and count else None

    def show(self, update: Update) -> None:
        """Draw an update; the GPU whose processes alone were shown may be gone."""
        only, before = self.table.listing.view.gpu, self.shown
        super().show(update)
        if before and only is not None and only not in update.frame.by_uuid:
            gone = before.frame.by_uuid.get(only)
            self.say(f"GPU {gone.index} is gone: the processes of all GPUs" if gone else "the processes of all GPUs")

    def parts(self, update: Update, panes: Panes, selected: Row | None) -> Parts:
        """What the panes around the table are drawn from; the chosen GPU while keys are about it."""
        parts, chosen = super().parts(update, panes, selected), self.chosen_gpu
        return replace(parts, gpu=chosen.uuid) if chosen and self.on_gpus else parts

    def label(self, key: Key) -> str:
        """What a key is called in the key bar."""
        if key.id != "details" or not self.on_gpus:
            return super().label(key)
        chosen = self.chosen_gpu
        return "All GPUs" if chosen and chosen.uuid == self.table.listing.view.gpu else "This GPU only"

    def why_not(self, key: Key) -> str:
        """Why a key does nothing now; empty if it does. A pane that is alone makes room for the processes of a GPU."""
        if key.id == "gpu" and not self.cards:
            return "no GPU is shown"
        about_gpus = key.id == "gpu" or (key.id == "details" and self.on_gpus)
        if about_gpus and self.alone is not None and "processes" not in self.hidden:
            return self.too_small("processes")
        return super().why_not(key)

    def action_gpu(self) -> None:
        """Show only the processes of the chosen GPU; from elsewhere, choose one first: that of the selected process."""
        if self.on_gpus:
            self.toggle_gpu()
            return
        row = self.table.listing.cursor
        used = [share.uuid for process in (row.members if row else ()) for share in process.gpus]
        self.gpu = next(iter([*filter(None, [self.table.listing.view.gpu]), *used]), self.gpu)
        self.unzoom()
        self.hidden -= {"gpus"}
        self.place()
        self.set_focus(self.gpus)
        self.refocused()
        self.choose_gpu(0)
        self.explain_gpus()

    def toggle_gpu(self) -> None:
        """Show only the processes of the chosen GPU, and go to them; or those of all GPUs again."""
        chosen = self.chosen_gpu
        if chosen is None:
            return
        self.bar.hush()
        if chosen.uuid == self.table.listing.view.gpu:
            self.show_only(gpu=None)
            self.refocused()
            return
        self.gpu = chosen.uuid
        self.unzoom()
        self.show_only(gpu=chosen.uuid)
        listing = self.table.listing
        if listing.cursor and listing.cursor.process is None:  # what the next key does is about one process
            listing.go(next((row.key for row in listing.rows if row.process), listing.cursor.key))
        self.set_focus(self.table)
        self.refocused()

    def choose_gpu(self, lines: int, columns: int = 0) -> None:
        """Another one, so many lines below and columns beside; in sight in any case."""
        chosen, places = self.chosen_gpu, self.grid
        if chosen is None or places is None:
            return
        cards = self.cards
        place = places.moved(next(at for at, gpu in enumerate(cards) if gpu is chosen), lines, columns)
        self.gpu, self.first_gpu = cards[place].uuid, places.showing(place)
        self.offer()
        self.redraw("gpus")

    def scroll_gpus(self, lines: int) -> None:
        """Others are in sight; the chosen one stays."""
        if places := self.grid:
            self.first_gpu = min(max(0, places.first + lines), places.furthest)
            self.redraw("gpus")

    def leave_gpus(self) -> bool:
        """The keys are about the processes again; whether they were about the GPUs."""
        if not self.on_gpus or not self.table.display:
            return False
        self.set_focus(self.table)
        self.refocused()
        return True

    def explain_gpus(self) -> None:
        """Say what the keys do that are about the GPUs now."""
        if self.on_gpus:
            only = hint(self.names, "; {} shows only its processes", "details")
            back = hint(self.names, "; {} goes back", "next-pane") if self.table.display else ""
            self.say(f"the arrows choose a GPU{only}{back}")
        else:
            self.say("the arrows scroll the GPUs")

    @on(events.Click, "#gpus")
    def click_gpu(self, event: events.Click) -> None:
        """A click chooses a GPU; on the one that is chosen it is as Enter."""
        places = self.grid
        place = places.at(event.x, event.y) if places and self.on_gpus else None
        if place is None:
            return
        uuid = self.cards[place].uuid
        if uuid == self.gpu and not self.why_not(next(key for key in self.keys if key.id == "details")):
            self.toggle_gpu()
            return
        self.gpu = uuid
        self.choose_gpu(0)
        only = hint(self.names, " {} or", "details")
        self.say(f"GPU {self.cards[place].index}:{only} a second click shows only its processes")

    @on(events.MouseScrollDown, "#gpus")
    @on(events.MouseScrollUp, "#gpus")
    def wheel_gpus(self, event: events.MouseEvent) -> None:
        """The wheel over the GPUs; the table has its own."""
        self.scroll_gpus(WHEEL if isinstance(event, events.MouseScrollDown) else -WHEEL)
