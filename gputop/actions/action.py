"""The interface of an action: a title, a reason why it is unavailable, and a run that reports its progress."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Thread
from typing import Protocol, TypeVar

from gputop.actions.handles import Handles
from gputop.actions.target import Rights
from gputop.frozen_dataclass import frozen_dataclass
from gputop.model import Process

Options = TypeVar("Options", contravariant=True)


@frozen_dataclass(frozen=True, kw_only=True)
class ActionResult:
    """The result of a run. `text` is a complete line; `lines` add details, one each. Both are sanitized."""

    text: str
    good: bool
    lines: tuple[str, ...] = ()
    recorded: bool = False  # not measured now, but part of a demo


class ActionRun:
    """A running action in its own daemon thread.

    `line` is the latest progress line; `result` is None until the end. `tell(run)` is called in that thread when either
    changes and must only forward the event (in a Textual screen: `self.post_message`).
    """

    def __init__(
        self, title: str, work: Callable[[ActionRun], ActionResult], tell: Callable[[ActionRun], object]
    ) -> None:
        self.title = title
        self.line = ""
        self.result: ActionResult | None = None
        self._work, self._tell = work, tell
        self._stop = Event()
        self._dropped = False

    def start(self) -> ActionRun:
        """Start the thread."""
        Thread(target=self._work_to_end, name=f"action: {self.title}", daemon=True).start()
        return self

    def cancel(self, *, keep: bool = True) -> None:
        """Ask it to end soon; it still reports its result.

        Completed work stays; a recording is kept only with `keep`.
        """
        self._dropped = self._dropped or not keep
        self._stop.set()

    @property
    def cancelled(self) -> bool:
        """Whether cancellation was requested."""
        return self._stop.is_set()

    @property
    def discarded(self) -> bool:
        """Whether it was cancelled and its recording is not wanted."""
        return self._dropped

    def pause(self, seconds: float) -> bool:
        """For the work: wait this long, or until cancelled; return whether it was."""
        return self._stop.wait(seconds)

    def say(self, line: str) -> None:
        """For the work: set a new progress line."""
        if line != self.line:
            self.line = line
            self._tell(self)

    def _work_to_end(self) -> None:
        try:
            self.result = self._work(self)
        except BaseException as error:
            # the screen must not wait forever; threading.excepthook reports the details
            self.result = ActionResult(text=f"{self.title}: internal error ({type(error).__name__})", good=False)
            self._tell(self)
            raise
        self._tell(self)


def start_run(
    title: str, handles: Handles, work: Callable[[ActionRun], ActionResult], tell: Callable[[ActionRun], object]
) -> ActionRun:
    """A run that keeps the handles open until it has ended."""
    handles.keep()

    def kept(run: ActionRun) -> ActionResult:
        try:
            return work(run)
        finally:
            handles.close()

    return ActionRun(title, kept, tell).start()


class Action(Protocol[Options]):
    """One action on processes. Stateless."""

    @property
    def id(self) -> str:
        """Its name for keys, settings and the command line."""

    @property
    def title(self) -> str:
        """Its display name."""

    def why_not(self, process: Process, rights: Rights) -> str | None:
        """Why it is unavailable for this process, in one line; None if available. Queries the kernel: about 0.1 ms."""

    def run(self, handles: Handles, options: Options, tell: Callable[[ActionRun], object]) -> ActionRun:
        """Start the action on the processes of the handles; returns at once."""
