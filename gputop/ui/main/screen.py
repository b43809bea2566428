"""The main screen: which pane the keys are about, what is selected there, and the mouse.

What the keys do stands in `ui/commands`. What only a key opens is imported there when it is pressed, `# late`: the
first frame comes that much sooner.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from textual import events, on

from gputop import finding_text
from gputop.actions.handles import Scope, reaches
from gputop.diagnose import Finding
from gputop.model import Frame, Process, Role
from gputop.monitor import Update
from gputop.ui import copy_texts
from gputop.ui.advice.pages import PAGES, expanded, place_of
from gputop.ui.commands.command import hint
from gputop.ui.copy_texts import CopyText
from gputop.ui.main.panes import PanesScreen
from gputop.ui.main.view_state import measured_by, measured_process
from gputop.ui.panes.layout import Panes, small
from gputop.ui.panes.parts import Parts
from gputop.ui.table.row import TableRow
from gputop.ui.table.widget import WHEEL
from gputop.ui.targets import SHOWN, CommandTarget, Others

if TYPE_CHECKING:
    from gputop.ui.dialogs.saving import Shot
    from gputop.ui.profiling.tools import ToolId


class MainScreen(PanesScreen, inherit_bindings=False):
    """GPUs above, jobs below, advice under them, the host beside them where there is room."""

    CSS = "MainScreen Lines { position: absolute; display: none; width: 1; height: 1; }"

    def type(self, event: events.Key) -> bool:
        """Take a key as text while something is typed; whether it was."""
        return self.typing and self.prompt.take(event)

    # which pane the keys are about

    @property
    def advised(self) -> bool:
        """Whether the keys are about the advice."""
        return self.focused is self.advice and self.advice.display

    @property
    def on_gpus(self) -> bool:
        """Whether the arrows choose a GPU; where there is no room for processes they scroll."""
        return bool(self.focused is self.gpus and self.gpus.display and self.gpus.cards) and not small(*self.app.size)

    @on(events.DescendantFocus)
    @on(events.DescendantBlur)
    def refocused(self) -> None:
        """Show what the keys are about now, and which processes the chosen finding is about."""
        self.table.active = self.focused is self.table
        self.redraw()
        self.table.mark(self.scene(self.shown).marked_processes if self.shown else frozenset())
        self.table.redraw()
        self.offer()

    def move(self, lines: int) -> None:
        """Move by lines what the keys are about: the finding, the GPU, the cursor of the table."""
        if self.advised:
            self.choose_finding(lines)
        elif self.on_gpus:
            self.gpus.choose(lines)
        elif self._moves_gpus():
            self.gpus.scroll(lines)
        else:
            self.table.key()
            self.table.listing.move(lines)
            self.table.redraw()

    def page(self, pages: int) -> None:
        """Move by pages."""
        places = self.gpus.grid
        if self.advised:
            self.scroll_advice(pages * max(1, self.advice.size.height - 6))
        elif self._moves_gpus() and places:
            self.move(pages * max(1, (places.deep if places.across and self.on_gpus else places.fitting) - 1))
        else:
            self.move(pages * max(1, self.table.listing.height - 1))

    def _moves_gpus(self) -> bool:
        return self.focused is self.gpus or not (self.panes and self.panes.processes)

    def parts(self, update: Update, panes: Panes) -> Parts:
        """What the panes around the table are drawn from; the chosen GPU while keys are about it."""
        parts, chosen = super().parts(update, panes), self.gpus.chosen
        return replace(parts, gpu=chosen.uuid) if chosen and self.on_gpus else parts

    # the GPUs

    @on(events.Click, "#gpus")
    async def click_gpu(self, event: events.Click) -> None:
        """A click chooses a GPU; on the one that is chosen it is as Enter."""
        card = self.gpus.at(event.x, event.y) if self.on_gpus else None
        if card is None:
            return
        if card.uuid == self.gpus.uuid and not self.no_processes_of_gpu():
            await self.run("gpu")
            return
        self.gpus.uuid = card.uuid
        self.gpus.choose()
        only = hint(self.names, " {} or", "details")
        self.session.say(f"GPU {card.index}:{only} a second click shows only its processes")

    @on(events.MouseScrollDown, "#gpus")
    @on(events.MouseScrollUp, "#gpus")
    def wheel_gpus(self, event: events.MouseEvent) -> None:
        """The wheel over the GPUs; the table has its own."""
        self.gpus.scroll(WHEEL if isinstance(event, events.MouseScrollDown) else -WHEEL)

    # the advice

    def leave_advice(self) -> bool:
        """The keys are about the processes again; whether they were about the advice."""
        if self.focused is not self.advice:
            return False
        self.set_focus(self.table if self.table.display else None)  # a small screen may not have the processes
        self.refocused()
        return True

    def choose_finding(self, lines: int) -> None:
        """Choose another finding; of a page that is no list, scroll."""
        if self.alone == "advice" and self.advice_view.page is not PAGES[0]:
            self.scroll_advice(lines)
            return
        self.finding_list.move(lines)
        self.advice_view.first = 0
        self.refocused()
        self.find_measured()

    def scroll_advice(self, lines: int) -> None:
        """Other lines of the advice, where it has the screen for itself."""
        rect, view = self.panes.advice if self.panes else None, self.advice_view
        if rect and self.shown and self.alone == "advice":
            drawn = expanded(self.scene(self.shown), view.page, view.first, rect.width, rect.height)
            view.first = min(max(0, view.first + lines), drawn.furthest)
            self.redraw("advice")
        elif not self.alone:
            self.choose_finding(1 if lines > 0 else -1)

    def turn_advice(self, step: int) -> None:
        """Open the page beside, where there are pages."""
        if self.alone == "advice":
            self.advice_view.turn(step)
            self.redraw("advice")

    def find_measured(self) -> None:
        """Look for the newest result of the command that verifies the chosen finding, from whichever terminal."""
        step = self.finding_list.chosen.verify if self.finding_list.chosen and self.alone == "advice" else None
        if step is None or step.command is None or self.shown is None or not self.measures:
            return
        command, process = step.command, measured_process(step.command, self.shown)
        if process is None:
            return

        def tell(said: str) -> None:
            self.advice_view.measured = {**self.advice_view.measured, command: said}
            self.redraw("advice")

        self.session.files.do(lambda: measured_by(command, process), tell)

    def advised_process(self, wanted: str) -> Process | None:
        """The process that the chosen finding is about; where it is about none, that is said."""
        finding, shown = self.finding_list.chosen, self.shown
        if finding is None or shown is None:
            return None
        process = _process_of(finding, shown.frame)
        if process is None:
            self.session.say(f"{finding_text.subject_name(finding.subject, shown.frame)}: no process here {wanted}")
        return process

    @on(events.Click, "#advice")
    async def click_advice(self, event: events.Click) -> None:
        """A click on a finding of the list chooses it; on the pane it is as its key."""
        rect = self.panes.advice if self.panes else None
        if self.alone != "advice":
            await self.run("advice")
        elif rect and self.advice_view.page is PAGES[0]:
            place = place_of(self.finding_list, rect.height, event.y)
            if place is not None:
                self.finding_list.choose(place)
                self.choose_finding(0)

    @on(events.MouseScrollDown, "#advice")
    @on(events.MouseScrollUp, "#advice")
    def wheel_advice(self, event: events.MouseEvent) -> None:
        """The wheel over the advice scrolls it where it is long."""
        if self.alone == "advice":
            self.scroll_advice(WHEEL if isinstance(event, events.MouseScrollDown) else -WHEEL)

    # the processes

    def show_only(self, **changes: Any) -> None:
        """Show other processes; a cursor whose process is not among them begins at the top."""
        listing = self.table.listing
        before = listing.cursor
        self.table.key()
        self.table.see(**changes)
        if before and listing.cursor and listing.cursor.key != before.key:
            listing.move(-len(listing.rows))
            self.table.redraw()

    def show_everybody(self) -> bool:
        """Show all processes again, whatever hid them; whether anything did."""
        view = self.table.listing.view
        if view.filter is None and view.user is None and view.gpu is None:
            return False
        self.table.see(filter=None, user=None, gpu=None)
        return True

    def bring_cursor_in_sight(self) -> bool:
        """Whether the line that is meant was out of sight, where the wheel leaves it; it is no longer."""
        listing = self.table.listing
        before = listing.top
        if not listing.tags:
            listing.move(0)
            self.table.redraw()
        return listing.top != before

    def target(self) -> CommandTarget | None:
        """The process under the cursor; of a job the one that leads it, and then all of it is meant.

        What is tagged is meant before all others, as in htop; of a job of which only some are shown, these.
        """
        self.table.key()
        self.bring_cursor_in_sight()
        listing = self.table.listing
        row = listing.cursor
        if row is None:
            self.session.say("there is no process here")
        elif tagged := listing.tags.processes(row.frame):
            process = row.process or next(iter(_processes_of_job(row)), tagged[0])
            return CommandTarget(row.frame, process, Scope.TAGGED, Others(tagged))
        elif row.process:
            return CommandTarget(row.frame, row.process)
        elif members := _processes_of_job(row):
            return _target_of_job(row, members)
        else:
            self.session.say("several processes: unfold the line and choose one, or tag some")
        return None

    def open_tab(self, tab: str) -> None:
        """Open a tab of the selected process; with none named its threads, of a line of several fold or unfold it."""
        row = self.table.listing.cursor
        if row is None or self.shown is None or not (self.panes and self.panes.processes):
            return
        self.table.key()
        if row.process is None and tab:
            unfolds = hint(self.names, ": {} unfolds what stands for several", "details")
            self.session.say(f"choose one process{unfolds}")
        elif row.process is None:
            self.table.fold(-1 if row.open and row.kind != "more" else 1)
        elif row.process.identity not in self.shown.frame.by_identity:
            self.session.say(f"{row.process.pid} has ended")
        else:
            from gputop.ui.details.screen import ProcessScreen  # late

            identity = row.process.identity
            self.app.push_screen(ProcessScreen(self.session, self.jobs, identity, self.shown, tab or "threads"))

    def about_finding(self) -> bool:
        """Whether keys that look into a process are about that of the chosen finding."""
        return self.advised and self.finding_list.chosen is not None

    def target_to_profile(self, tool: ToolId) -> CommandTarget | None:
        """What to look into: of several that are tagged or shown the first that trains, and those that train."""
        if self.about_finding() and self.shown:
            process = self.advised_process("to look into")
            whole = Scope.JOB if tool == "stack" and _is_about_ranks(self.finding_list.chosen) else Scope.PROCESS
            return CommandTarget(self.shown.frame, process, whole) if process else None
        target = self.target()
        if target is None:
            return None
        frame, process, scope, others = target
        several = others.processes
        trains = [each for each in several if each.role is Role.TRAINER]
        if others.called == SHOWN and len(trains) == 1:
            return CommandTarget(frame, trains[0])
        if len(several) > 1:
            few = trains if len(trains) > 1 else several
            return CommandTarget(frame, (trains or several)[0], Scope.PROCESS, others._replace(processes=few))
        whole = Scope.JOB if scope is Scope.JOB else Scope.PROCESS
        return CommandTarget(frame, several[0] if several else process, whole)

    # what can be taken along

    def copy_texts(self) -> Sequence[CopyText]:
        """The pid of the line, then its command line; of the advice the commands of its steps."""
        if self.advised:
            return copy_texts.of_finding(self.finding_list.chosen)
        return copy_texts.of_row(self.table.listing.cursor)

    def copy_owner(self) -> Hashable:
        """The line under the cursor."""
        row = self.table.listing.cursor
        return row.key if row else None

    def copy_place(self, texts: Sequence[CopyText]) -> int:
        """Which text is to be copied now; the advice shows which the next press copies."""
        if not self.advised:
            return super().copy_place(texts)
        place = self.finding_list.copy_place
        self.finding_list.copied()
        self.redraw("advice")
        return place

    def shot(self) -> Shot:
        """What is on the screen, without secrets, to be saved."""
        from gputop.export import formats  # late
        from gputop.ui.dialogs.saving import Shot

        assert self.shown, "the command is not offered before"
        return Shot(self.drawn_without_secrets, partial(formats.snapshot, self.shown))


def _process_of(finding: Finding, frame: Frame) -> Process | None:
    """The first that it names; of a GPU the one that holds most of it; of the machine the busiest trainer."""
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


def _is_about_ranks(finding: Finding | None) -> bool:
    """Whether the step of a finding that takes stacks is about all ranks."""
    steps = finding.steps if finding else ()
    return any(step.action == "stack" and "--job" in (step.command or "").split() for step in steps)


def _target_of_job(row: TableRow, members: Sequence[Process]) -> CommandTarget:
    """What is meant by the line of a job: all of it, or those it stands for."""
    job = next(job for job in row.frame.jobs if row.key == ("job", job.key))
    if len(members) < sum(identity in row.frame.by_identity for identity in job.members):
        if len(members) > 1:
            return CommandTarget(row.frame, members[0], Scope.TAGGED, Others(members, SHOWN))
        return CommandTarget(row.frame, members[0])
    widest = next((reach.scope for reach in reversed(reaches(row.frame, members[0]))), Scope.PROCESS)
    return CommandTarget(row.frame, members[0], widest)


def _processes_of_job(row: TableRow) -> list[Process]:
    """Those of a job that its line stands for, the one that leads them first: its launcher, or what would be one."""
    job = next((job for job in row.frame.jobs if row.key == ("job", job.key)), None)
    shown = {process.identity for process in row.members}
    known = (row.frame.by_identity.get(identity) for identity in (job.members if job else ()))
    return [process for process in known if process is not None and process.identity in shown]
