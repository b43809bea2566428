"""Running profiles, while the monitor lives; and the news of those that have ended."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from gputop.actions import ActionResult, ActionRun, Handles
from gputop.frozen_dataclass import frozen_dataclass
from gputop.model import Identity, Process
from gputop.ui.commands.command import hint
from gputop.ui.session import Session
from gputop.ui.theme import Token

if TYPE_CHECKING:
    from gputop.ui.profiling.results import Opens
    from gputop.ui.profiling.tools import Asking, Order, Tool

_LAST_S = 0.5  # what is under way gets when the program ends; what then goes on, ends by itself and leaves nothing
_LOOK_S = 0.01
_MOST_TAKEN = 16  # processes whose newest result is kept at hand


@dataclass(eq=False, slots=True)
class BackgroundJob:
    """One that is under way: by which tool, about which process, what its action was asked to do."""

    tool: Tool
    handles: Handles
    order: Order
    run: ActionRun

    @property
    def pid(self) -> int:
        """The process that it is about."""
        return self.handles.process.pid


@frozen_dataclass(frozen=True, slots=True)
class News:
    """The line about one that has ended, until a key is pressed; `opens` is what Enter opens then."""

    text: str
    token: Token
    opens: Opens | None = None


@runtime_checkable
class ShowsJobs(Protocol):
    """A screen that has a line for them."""

    @property
    def typing(self) -> bool:
        """Whether something is being typed there: nothing may open over it."""

    def progressed(self) -> None:
        """Draw the line again."""


class BackgroundJobs:
    """All of them, the newest last. Everything but what `ActionRun` does itself happens in the screen's thread."""

    def __init__(self, session: Session) -> None:
        self.news: News | None = None
        self.under_way: list[BackgroundJob] = []
        self._session = session
        self._taken: dict[Identity, Opens] = {}  # the result to open of each process, the newest last

    @property
    def newest(self) -> BackgroundJob | None:
        """The one that is shown."""
        return self.under_way[-1] if self.under_way else None

    @cached_property
    def asking(self) -> Asking:
        """What finds out whether a tool can look into a process."""
        from gputop.ui.profiling.tools import Asking  # late

        return Asking()

    def start(self, tool: Tool, handles: Handles, order: Order) -> None:
        """Begin; it keeps the handles open for as long as it needs them."""
        handles.keep()
        later = self._session.app.call_later
        run = tool.action.run(handles, order, lambda run: later(self._progressed, run))
        self.under_way.append(BackgroundJob(tool, handles, order, run))
        self.news = None
        self._changed()

    def ask_to_stop(self) -> bool:
        """Ask whether the newest is to end, and what becomes of what it has; whether there is one."""
        from gputop.ui.dialogs.questions import Confirm  # late

        job, session = self.newest, self._session
        if job is None:
            return False
        keeps = job.tool.id == "profile"
        buttons = (("keep", "Keep partial result"), ("drop", "Discard")) if keeps else (("drop", "Stop"),)

        def answered(answer: str | None) -> None:
            if answer in ("keep", "drop"):
                job.run.cancel(keep=answer == "keep")

        title = f"{job.run.title}: stop it?"
        session.app.push_screen(Confirm(session.look, title, "", (*buttons, ("on", "Continue")), answered))
        return True

    def press(self, id: str) -> bool:
        """A key was pressed: news have been read; whether the key was for them and for nothing else."""
        news, self.news = self.news, None
        if news is None:
            return False
        self._changed()
        if news.opens is not None and id in ("details", "take"):
            self.open(news.opens)
            return True
        return id in ("back", "close")

    def click(self) -> None:
        """The line was clicked."""
        if self.news is not None:
            self.press("details")
        else:
            self.ask_to_stop()

    def open(self, found: Opens) -> None:
        """Show a result on a separate screen."""
        from gputop.ui.result.screen import ResultScreen  # late: it knows the traces

        self._session.app.push_screen(ResultScreen(self._session, found))

    @property
    def looked_into(self) -> frozenset[Identity]:
        """The processes of which there is a profile, a trace or stacks to open."""
        return frozenset(self._taken)

    def open_newest(self, processes: Iterable[Identity]) -> bool:
        """Show the newest result of some processes; whether there is one."""
        about = frozenset(processes)
        newest = next((taken for one, taken in reversed(self._taken.items()) if one in about), None)
        if newest is not None:
            self.open(newest)
        return newest is not None

    def leave(self) -> None:
        """The program ends, and so do they; nothing is kept."""
        for job in self.under_way:
            job.run.cancel(keep=False)

    def close(self) -> None:
        """Wait for their end, not for long."""
        deadline_s = time.monotonic() + _LAST_S
        while any(job.run.result is None for job in self.under_way) and time.monotonic() < deadline_s:
            time.sleep(_LOOK_S)

    def add(self, process: Process, result: ActionResult, *, shows: bool = True) -> None:
        """There is a result without a run: the rules get it, and it is opened where it `shows`."""
        from gputop.ui.profiling.results import opens, testify  # late

        testify(self._session.monitor, process, result)
        self._keep(process, result)
        found = opens(result)
        if found is None:
            self.news = News(result.text, "warn")
        elif shows:
            self.open(found)
        self._changed()

    def _keep(self, process: Process, result: ActionResult) -> None:
        """Keep the newest result of a process at hand."""
        from gputop.ui.profiling.results import opens, processes_of  # late

        found = opens(result)
        if found is None:
            return
        for one in processes_of(result, process):
            self._taken.pop(one, None)
            self._taken[one] = found
        while len(self._taken) > _MOST_TAKEN:
            del self._taken[next(iter(self._taken))]

    def _progressed(self, run: ActionRun) -> None:
        job = next((job for job in self.under_way if job.run is run), None)
        if job is not None and run.result is not None:
            self.under_way.remove(job)
            self._ended(job, run.result)
            job.handles.close()
        self._changed()

    def _ended(self, job: BackgroundJob, result: ActionResult) -> None:
        from gputop.actions.torch_trace import Traced  # late
        from gputop.ui.profiling.results import opens, testify

        session = self._session
        testify(session.monitor, job.handles.process, result)
        found, top = opens(result), session.app.screen
        self._keep(job.handles.process, result)
        if isinstance(result, Traced) and result.risk is not None:
            self._ask(job, result.text, result.risk)
        elif job.run.cancelled and found is None:
            session.app.tell(result.text)
        elif found is None:
            self.news = News(". ".join((result.text, *result.lines[:1])), "warn")
        elif isinstance(top, ShowsJobs) and not top.typing:
            self.open(found)
        else:
            opens_it = hint(session.names, ": {} opens it", "details")
            self.news = News(f"{job.run.title} is ready{opens_it}", "bright", found)

    def _ask(self, job: BackgroundJob, text: str, risk: str) -> None:
        """It may harm the training: only after the user has read how."""
        from gputop.actions import torch_trace  # late
        from gputop.ui.dialogs.questions import Confirm

        order, session = job.order, self._session
        assert isinstance(order, torch_trace.TraceOrder)
        job.handles.keep()

        def answered(answer: str | None) -> None:
            if answer == "on":
                self.start(job.tool, job.handles, replace(order, confirmed=order.confirmed | {risk}))
            job.handles.close()

        buttons = (("cancel", "Cancel"), ("on", "Continue"))
        session.app.push_screen(Confirm(session.look, f"trace {job.pid}", text, buttons, answered))

    def _changed(self) -> None:
        for screen in self._session.app.screen_stack:
            if isinstance(screen, ShowsJobs):
                screen.progressed()
