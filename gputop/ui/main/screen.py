"""The main screen: the keys that move, the mouse, and which process is meant.

What the keys do stands in `ui/commands`. What only a key opens is imported there when it is pressed, `# late`: the
first frame comes that much sooner.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from textual import events, on

from gputop.actions.handles import Scope, reaches
from gputop.model import Process, Role
from gputop.ui import copy_texts
from gputop.ui.commands.command import hint
from gputop.ui.copy_texts import CopyText
from gputop.ui.main.panes import PanesScreen
from gputop.ui.table.row import TableRow
from gputop.ui.targets import SHOWN, CommandTarget, Others
from gputop.ui.widgets.cursor_list import WHEEL

if TYPE_CHECKING:
    from gputop.ui.dialogs.saving import Shot
    from gputop.ui.profiling.tools import ToolId


class MainScreen(PanesScreen, inherit_bindings=False):
    """GPUs above, jobs below, advice under them, the host beside them where there is room."""

    CSS = "MainScreen Lines { position: absolute; display: none; width: 1; height: 1; }"
    overview: Callable[[], None] | None = None  # leads back to the overview of several hosts

    def to_hosts(self) -> None:
        """Go back to the overview of several hosts, if this is the screen of one of them."""
        if self.overview:
            self.overview()

    def type(self, event: events.Key) -> bool:
        """Take a key as text while something is typed; whether it was."""
        return self.typing and self.prompt.take(event)

    def move(self, lines: int) -> None:
        """Move by lines what the keys are about: the finding, the GPU, the cursor of the table."""
        if self.advised:
            self.advice.choose(lines)
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
            self.advice.scroll(pages * max(1, self.advice.size.height - 6))
        elif self._moves_gpus() and places:
            self.move(pages * max(1, (places.deep if places.across and self.on_gpus else places.fitting) - 1))
        else:
            self.move(pages * max(1, self.table.listing.height - 1))

    def _moves_gpus(self) -> bool:
        return self.focused is self.gpus or not (self.panes and self.panes.processes)

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

    @on(events.Click, "#advice")
    async def click_advice(self, event: events.Click) -> None:
        """A click on a finding of the list chooses it; on the pane it is as its key."""
        if not self.advice.click(event.y):
            await self.run("advice")

    @on(events.MouseScrollDown, "#advice")
    @on(events.MouseScrollUp, "#advice")
    def wheel_advice(self, event: events.MouseEvent) -> None:
        """The wheel over the advice scrolls it where it is long."""
        if self.advice.alone:
            self.advice.scroll(WHEEL if isinstance(event, events.MouseScrollDown) else -WHEEL)

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
            self.session.say("no process selected")
        elif tagged := listing.tags.processes(row.frame):
            process = row.process or next(iter(_processes_of_job(row)), tagged[0])
            return CommandTarget(row.frame, process, Scope.TAGGED, Others(tagged))
        elif row.process:
            return CommandTarget(row.frame, row.process)
        elif members := _processes_of_job(row):
            return _target_of_job(row, members)
        else:
            self.session.say("several processes: expand the row and select one, or tag some")
        return None

    def open_tab(self, tab: str) -> None:
        """Open a tab of the selected process; with none named its threads, of a line of several fold or unfold it."""
        row = self.table.listing.cursor
        if row is None or self.shown is None or not (self.panes and self.panes.processes):
            return
        self.table.key()
        if row.process is None and tab:
            unfolds = hint(self.names, "; {} expands a row of several", "details")
            self.session.say(f"select one process{unfolds}")
        elif row.process is None:
            self.table.fold(-1 if row.open and row.kind != "more" else 1)
        elif row.process.identity not in self.shown.frame.by_identity:
            self.session.say(f"{row.process.pid} has exited")
        else:
            from gputop.ui.details.screen import ProcessScreen  # late

            identity = row.process.identity
            self.app.push_screen(ProcessScreen(self.session, self.jobs, identity, self.shown, tab or "threads"))

    def about_finding(self) -> bool:
        """Whether keys that look into a process are about that of the chosen finding."""
        return self.advised and self.advice.finding_list.chosen is not None

    def target_to_profile(self, tool: ToolId) -> CommandTarget | None:
        """What to look into: of several that are tagged or shown the first that trains, and those that train."""
        if self.about_finding() and self.shown:
            process = self.advice.process("to profile")
            whole = Scope.JOB if tool == "stack" and self.advice.about_ranks else Scope.PROCESS
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
            return copy_texts.of_finding(self.advice.finding_list.chosen)
        return copy_texts.of_row(self.table.listing.cursor)

    def copy_owner(self) -> Hashable:
        """The line under the cursor."""
        row = self.table.listing.cursor
        return row.key if row else None

    def copy_place(self, texts: Sequence[CopyText]) -> int:
        """Which text is to be copied now; the advice shows which the next press copies."""
        if not self.advised:
            return super().copy_place(texts)
        place = self.advice.finding_list.copy_place
        self.advice.finding_list.copied()
        self.redraw("advice")
        return place

    def shot(self) -> Shot:
        """What is on the screen, without secrets, to be saved."""
        from gputop.export import formats  # late
        from gputop.ui.dialogs.saving import Shot

        assert self.shown, "the command is not offered before"
        return Shot(self.drawn_without_secrets, partial(formats.snapshot, self.shown))


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
