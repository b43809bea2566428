"""What every action is: a title, a reason why it cannot be done now, and a run that says how it goes."""

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
class Result:
    """How it ended. `text` is one line and says it all; `lines` say more, one thing each. Both are clean."""

    text: str
    good: bool
    lines: tuple[str, ...] = ()
    recorded: bool = False  # it was not measured now: a demo brings it


class Run:
    """An action under way in a daemon thread of its own; nobody has to wait for it.

    `line` is the newest line of progress, `result` is None until the end. `tell(run)` is called in that thread when
    either changes: it must only pass the word on (in a Textual screen: `self.post_message`).
    """

    def __init__(self, title: str, work: Callable[[Run], Result], tell: Callable[[Run], object]) -> None:
        self.title = title
        self.line = ""
        self.result: Result | None = None
        self._work, self._tell = work, tell
        self._stop = Event()
        self._dropped = False

    def start(self) -> Run:
        """Begin."""
        Thread(target=self._go, name=f"action: {self.title}", daemon=True).start()
        return self

    def cancel(self, *, keep: bool = True) -> None:
        """Ask it to end soon; it still tells its result. What was done stays done; what was recorded only to `keep`."""
        self._dropped = self._dropped or not keep
        self._stop.set()

    @property
    def cancelled(self) -> bool:
        """Whether it was asked to end."""
        return self._stop.is_set()

    @property
    def dropped(self) -> bool:
        """Whether it was asked to end and nobody wants what it has."""
        return self._dropped

    def pause(self, seconds: float) -> bool:
        """For the work: wait so long, or until cancelled; whether it was."""
        return self._stop.wait(seconds)

    def say(self, line: str) -> None:
        """For the work: a new line of progress."""
        if line != self.line:
            self.line = line
            self._tell(self)

    def _go(self) -> None:
        try:
            self.result = self._work(self)
        except BaseException as error:
            # the screen must not wait for ever; the details are the business of threading.excepthook
            self.result = Result(text=f"{self.title}: internal error ({type(error).__name__})", good=False)
            self._tell(self)
            raise
        self._tell(self)


def begin(title: str, hold: Handles, work: Callable[[Run], Result], tell: Callable[[Run], object]) -> Run:
    """A run that keeps the hold open until it has ended."""
    hold.keep()

    def kept(run: Run) -> Result:
        try:
            return work(run)
        finally:
            hold.close()

    return Run(title, kept, tell).start()


class Action(Protocol[Options]):
    """One thing that can be done to processes. It has no state."""

    @property
    def id(self) -> str:
        """Its name for keys, settings and the command line."""

    @property
    def title(self) -> str:
        """What a person calls it."""

    def why_not(self, process: Process, rights: Rights) -> str | None:
        """Why it cannot be done to this process now, as one line; None if it can. Asks the kernel: about 0.1 ms."""

    def run(self, hold: Handles, options: Options, tell: Callable[[Run], object]) -> Run:
        """Begin to do it to what the hold has; returns at once."""
