"""Keys of the advice: look at it, choose a finding, mute it, go to whom it is about."""

from __future__ import annotations

from textual import events, on

from gputop import finding_text
from gputop.diagnose import Finding
from gputop.model import Process, Role
from gputop.ui.advice.pages import EXPERIMENTS, PAGES, Page, expanded, place_of
from gputop.ui.keys.declared import Key
from gputop.ui.keys.hints import hint
from gputop.ui.main.framing import Framing
from gputop.ui.table.row import process_key
from gputop.ui.table.widget import WHEEL

_INSIDE = frozenset({"profile", "torch", "stack"})  # keys that look into the process of the chosen finding


class Advising(Framing):
    """What keys and the mouse do while they are about the advice."""

    @property
    def advised(self) -> bool:
        """Whether the keys are about the advice."""
        return self.focused is self.advice and self.advice.display

    def why_not(self, key: Key) -> str:
        """Why a key does nothing now; empty if it does."""
        if key.id == "advice-mute" and not (self.advised and self.sheet.chosen):
            first = hint(self.names, "{} chooses a finding first", "advice") or "choose a finding first"
            return first if self.sheet.listed else "there is no finding"
        if self.advised and key.id == "details" and not self.sheet.chosen:
            return "there is no finding to go to"
        if self.advised and (key.id == "details" or (key.id in _INSIDE and self.sheet.chosen)):
            return ""  # it is about the finding, whether the processes are shown or not
        return super().why_not(key)

    def label(self, key: Key) -> str:
        """What a key is called in the key bar."""
        if key.id != "details" or not (self.advised and self.shown):
            return super().label(key)
        return "Profile" if self.scene(self.shown).profiled else "Process"

    def action_advice(self) -> None:
        """The advice has the screen for itself, and the keys; again, all panes are back as they were."""
        if not self._collapse():
            self._expand(PAGES[0])

    def action_experiments(self) -> None:
        """The same, with the page of the experiments."""
        if self.page is not EXPERIMENTS or not self._collapse():
            self._expand(EXPERIMENTS)

    def _collapse(self) -> bool:
        """All panes as they were before the advice had the screen for itself; whether it had."""
        if self.alone != "advice":
            return False
        self.unzoom()
        self.leave_advice()
        return True

    def _expand(self, page: Page) -> None:
        self.hidden -= {"advice"}
        self.page, self.page_first, self.alone = page, 0, "advice"
        self.place()
        self.set_focus(self.advice)
        self.refocused()

    def leave_advice(self) -> bool:
        """The keys are about the processes again; whether they were not."""
        if self.focused is not self.advice:
            return False
        self.set_focus(self.table if self.table.display else None)  # a small screen may not have the processes
        self.refocused()
        return True

    @on(events.DescendantFocus)
    @on(events.DescendantBlur)
    def refocused(self) -> None:
        """Show what the keys are about now, and whom the chosen finding is about."""
        self.table.active = self.focused is self.table
        self.redraw()
        self.table.mark(self.scene(self.shown).marked_processes if self.shown else frozenset())
        self.table.redraw()
        self.offer()

    def advise(self, lines: int) -> None:
        """Choose another finding; of a page that is no list, scroll."""
        if self.alone == "advice" and self.page is not PAGES[0]:
            self.scroll_advice(lines)
            return
        self.sheet.move(lines)
        self.page_first = 0
        self.refocused()

    def scroll_advice(self, lines: int) -> None:
        """Other lines of what is told, where it has the screen for itself."""
        rect = self.panes.advice if self.panes else None
        if rect and self.shown and self.alone == "advice":
            drawn = expanded(self.scene(self.shown), self.page, self.page_first, rect.width, rect.height)
            self.page_first = min(max(0, self.page_first + lines), drawn.furthest)
            self.redraw("advice")
        elif not self.alone:
            self.advise(1 if lines > 0 else -1)

    def turn_advice(self, step: int) -> bool:
        """The next page, where there are pages; whether there are."""
        if not self.advised:
            return False
        if self.alone == "advice":
            place = PAGES.index(self.page) + step
            self.page, self.page_first = PAGES[place % len(PAGES)], 0
            self.redraw("advice")
        return True

    def action_mute(self) -> None:
        """Tell no more of the chosen finding until it changes."""
        muted = self.sheet.mute()
        if muted is not None:
            self.place()
            self.refocused()
            lists = hint(self.names, "; {} lists it", "advice") if self.alone is None else ""
            self.say(f"muted until it changes{lists}" if muted else "told again")

    def go_to_advised(self) -> None:
        """The cursor of the table on the process that the chosen finding is about."""
        process = self.advised_process("to go to")
        if process is None:
            return
        if not self.table.listing.go(process_key(process)):
            # the keys stay with the advice: on the table they would be about whoever is under its cursor
            self.say(f"{process.pid} {self._hidden()}")
            return
        self.unzoom()
        if not (self.panes and self.panes.processes):
            self.say("the processes are not shown here")
            return
        self.set_focus(self.table)
        self.table.key()
        self.refocused()
        self.table.redraw()

    def _hidden(self) -> str:
        """Why a process has no line, and the key that gives it one."""
        view = self.table.listing.view
        if view.filter is None and view.user is None and view.gpu is None:
            return f"is not listed{hint(self.names, ': {} lists all processes', 'everything')}"
        gpu = self.shown.frame.by_uuid.get(view.gpu or "") if self.shown else None
        only = f"while only {view.user} is shown" if gpu is None else f"while only GPU {gpu.index} is shown"
        by = "by the filter" if view.filter is not None else only
        twice = hint(self.names, ": {} leaves the advice, and again shows all", "back")
        return f"is hidden {by}{twice}"

    def advised_process(self, wanted: str) -> Process | None:
        """The process that the chosen finding is about; where it is about none, that is said."""
        finding, shown = self.sheet.chosen, self.shown
        process = self._process(finding) if finding else None
        if process is None and finding and shown:
            self.say(f"{finding_text.whom(finding.subject, shown.frame)}: no process here {wanted}")
        return process

    def _process(self, finding: Finding) -> Process | None:
        """The first that it names; of a GPU the one that holds most of it; of the machine the busiest trainer."""
        frame = self.shown.frame if self.shown else None
        if frame is None:
            return None
        for identity in finding.subject.processes:
            if identity in frame.by_identity:
                return frame.by_identity[identity]
        holders: list[tuple[float, Process]] = [
            (share.vram_bytes or 0, process)
            for process in frame.processes
            for share in process.gpus
            if share.uuid in finding.subject.gpus
        ]
        if finding.subject.kind == "host":
            trainers = (process for process in frame.processes if process.role is Role.TRAINER)
            holders = [(process.cpu_percent or 0, process) for process in trainers]
        return max(holders, key=lambda held: held[0])[1] if holders else None

    @on(events.Click, "#advice")
    def click_advice(self, event: events.Click) -> None:
        """A click on a finding of the list chooses it; on the pane it is as its key."""
        rect = self.panes.advice if self.panes else None
        if self.alone != "advice":
            self.action_advice()
        elif rect and self.page is PAGES[0]:
            place = place_of(self.sheet, rect.height, event.y)
            if place is not None:
                self.sheet.choose(place)
                self.advise(0)

    @on(events.MouseScrollDown, "#advice")
    @on(events.MouseScrollUp, "#advice")
    def wheel_advice(self, event: events.MouseEvent) -> None:
        """The wheel over the advice scrolls it where it is long."""
        if self.alone == "advice":
            self.scroll_advice(WHEEL if isinstance(event, events.MouseScrollDown) else -WHEEL)
