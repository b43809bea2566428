"""What looks inside processes and is under way, while the monitor lives; and the news of what has ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from textual.screen import Screen

from gputop.actions import Handles, Result, Run
from gputop.frozen_dataclass import frozen_dataclass
from gputop.model import Identity, Process
from gputop.monitor import Monitor
from gputop.ui.keys.declared import Key
from gputop.ui.keys.hints import hint, names
from gputop.ui.result.program import Program as Shows
from gputop.ui.theme import Look, Token

if TYPE_CHECKING:
    from gputop.ui.profiling.results import Opens
    from gputop.ui.profiling.tools import Order, Tool

_LAST_S = 0.5  # what is under way gets when the program ends; what then goes on, ends by itself and leaves nothing
_LOOK_S = 0.01
_MOST_TAKEN = 16  # processes whose newest result is kept at hand


@dataclass(eq=False, slots=True)
class Errand:
    """One that is under way: by which tool, about whom, what its action was asked to do."""

    tool: Tool
    hold: Handles
    order: Order
    run: Run

    @property
    def pid(self) -> int:
        """The process that it is about."""
        return self.hold.process.pid


@frozen_dataclass(frozen=True, slots=True)
class News:
    """What there is to say of one that has ended, until a key is pressed; `opens` is what Enter opens then."""

    text: str
    token: Token
    opens: Opens | None = None


class Program(Shows, Protocol):
    """What they ask of the program they belong to, for results too."""

    monitor: Monitor
    look: Look

    @property
    def screen(self) -> Screen[Any]:
        """The screen on top."""

    @property
    def screen_stack(self) -> list[Screen[Any]]:
        """All screens, that on top last."""

    def call_later(self, callback: Callable[..., Any], *args: Any) -> bool:
        """Call it on the screen's side; from any thread."""

    def push_screen(self, screen: Screen[Any]) -> object:
        """Put a screen on top."""

    def tell(self, line: str) -> None:
        """Say something on the last line, for a while."""


@runtime_checkable
class Place(Protocol):
    """A screen that has a line for them."""

    @property
    def typing(self) -> bool:
        """Whether a person is writing something there: nothing may open over it."""

    def progressed(self) -> None:
        """Draw the line anew."""


class Errands:
    """All of them, the newest last. Everything but what `Run` does itself happens on the screen's side."""

    def __init__(self, program: Program, keys: tuple[Key, ...]) -> None:
        self.news: News | None = None
        self.under_way: list[Errand] = []
        self._program, self._keys = program, keys
        self._taken: dict[Identity, Opens] = {}  # what there is to look at of a process, the newest last

    @property
    def newest(self) -> Errand | None:
        """The one that is shown."""
        return self.under_way[-1] if self.under_way else None

    def start(self, tool: Tool, hold: Handles, order: Order) -> None:
        """Begin; it keeps the hold open for as long as it needs it."""
        hold.keep()
        ended = self._program.call_later
        errand = Errand(tool, hold, order, tool.action.run(hold, order, lambda run: ended(self._told, run)))
        self.under_way.append(errand)
        self.news = None
        self._changed()

    def stop(self, errand: Errand, *, keep: bool) -> None:
        """End it early; what it has is kept, or not."""
        errand.run.cancel(keep=keep)

    def ask_to_stop(self) -> bool:
        """Ask whether the newest is to end, and what becomes of what it has; whether there is one."""
        from gputop.ui.dialogs.dialog import Confirm  # late

        errand = self.newest
        if errand is None:
            return False
        keeps = errand.tool.id == "profile"
        buttons = (("keep", "Keep what is there"), ("drop", "Drop it")) if keeps else (("drop", "Stop"),)

        def answered(answer: str | None) -> None:
            if answer in ("keep", "drop"):
                self.stop(errand, keep=answer == "keep")

        title = f"{errand.run.title}: end it now?"
        self._program.push_screen(Confirm(self._program.look, title, "", (*buttons, ("on", "Go on")), answered))
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

    def touch(self) -> None:
        """The line was clicked."""
        if self.news is not None:
            self.press("details")
        else:
            self.ask_to_stop()

    def open(self, found: Opens) -> None:
        """Show a result on a screen of its own."""
        from gputop.ui.profiling.results import screen  # late

        self._program.push_screen(screen(self._program, found, self._program.look, self._keys))

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
        for errand in self.under_way:
            errand.run.cancel(keep=False)

    def close(self) -> None:
        """Wait for their end, not for long."""
        deadline_s = time.monotonic() + _LAST_S
        while any(errand.run.result is None for errand in self.under_way) and time.monotonic() < deadline_s:
            time.sleep(_LOOK_S)

    def took(self, process: Process, result: Result, *, shows: bool = True) -> None:
        """There is a result without a run: the rules are told, and it is opened where it `shows`."""
        from gputop.ui.profiling.results import opens, testify  # late

        testify(self._program.monitor, process, result)
        self._keep(process, result)
        found = opens(result)
        if found is None:
            self.news = News(result.text, "warn")
        elif shows:
            self.open(found)
        self._changed()

    def _keep(self, process: Process, result: Result) -> None:
        """Have it at hand for who asks for the newest of a process."""
        from gputop.ui.profiling.results import opens, processes_of  # late

        found = opens(result)
        if found is None:
            return
        for one in processes_of(result, process):
            self._taken.pop(one, None)
            self._taken[one] = found
        while len(self._taken) > _MOST_TAKEN:
            del self._taken[next(iter(self._taken))]

    def _told(self, run: Run) -> None:
        errand = next((errand for errand in self.under_way if errand.run is run), None)
        if errand is not None and run.result is not None:
            self.under_way.remove(errand)
            self._ended(errand, run.result)
            errand.hold.close()
        self._changed()

    def _ended(self, errand: Errand, result: Result) -> None:
        from gputop.actions.torch_trace import Traced  # late
        from gputop.ui.profiling.results import opens, testify

        testify(self._program.monitor, errand.hold.process, result)
        found, top = opens(result), self._program.screen
        self._keep(errand.hold.process, result)
        if isinstance(result, Traced) and result.risk is not None:
            self._ask(errand, result.text, result.risk)
        elif errand.run.cancelled and found is None:
            self._program.tell(result.text)
        elif found is None:
            self.news = News(". ".join((result.text, *result.lines[:1])), "warn")
        elif isinstance(top, Place) and not top.typing:
            self.open(found)
        else:
            opens_it = hint(names(self._keys), ": {} opens it", "details")
            self.news = News(f"{errand.run.title} is ready{opens_it}", "bright", found)

    def _ask(self, errand: Errand, text: str, risk: str) -> None:
        """It may harm the job: only after a person has read how."""
        from gputop.actions import torch_trace  # late
        from gputop.ui.dialogs.dialog import Confirm

        order = errand.order
        assert isinstance(order, torch_trace.Order)
        errand.hold.keep()

        def answered(answer: str | None) -> None:
            if answer == "on":
                self.start(errand.tool, errand.hold, replace(order, confirmed=order.confirmed | {risk}))
            errand.hold.close()

        buttons = (("cancel", "Cancel"), ("on", "Go on"))
        self._program.push_screen(Confirm(self._program.look, f"trace {errand.pid}", text, buttons, answered))

    def _changed(self) -> None:
        for each in self._program.screen_stack:
            if isinstance(each, Place):
                each.progressed()
