"""By which tools a process can be looked into, asked aside: who hangs in a file server may never tell what it maps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Event, Lock, Thread

from gputop.actions import Handles, Rights
from gputop.model import Identity
from gputop.safe.ptrace_access import Barred
from gputop.ui.profiling.tools import TOOLS, Tool, ToolId

PATIENCE_S = 0.2  # as a rule it is a millisecond; nobody sees a screen that waits for so long
ASKING = Barred("it has not answered yet: a process that waits for a file server answers when that does")

Answers = dict[ToolId, Barred | None]
Tell = Callable[[ToolId, Barred | None], object]


class Asking:
    """Asks in threads; never the same of a process twice at a time, or each time would cost a thread for good."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[Identity, ToolId], list[Tell]] = {}
        self._lock = Lock()

    def ask(self, hold: Handles, rights: Rights, tell: Tell) -> Answers:
        """Why each tool cannot be used on it. What is not known at once is ASKING; `tell` gets it, from a thread."""
        answers: Answers = {tool.id: ASKING for tool in TOOLS}
        done, returned = Event(), False

        def given(id: ToolId, barred: Barred | None) -> None:
            with self._lock:
                answers[id], late = barred, returned
            if late:
                tell(id, barred)

        with self._lock:
            fresh = [tool for tool in TOOLS if (hold.process.identity, tool.id) not in self._waiting]
            for tool in TOOLS:
                self._waiting.setdefault((hold.process.identity, tool.id), []).append(given)
        try:
            Thread(target=self._run, args=(fresh, hold, rights, done), name="asking", daemon=True).start()
        except RuntimeError as error:  # this user may have no more threads
            for tool in fresh:
                self._answer(hold, tool, Barred(f"it cannot be asked: {error}"))
            done.set()
        done.wait(PATIENCE_S)
        with self._lock:
            returned = True
            return dict(answers)

    def _run(self, fresh: Sequence[Tool], hold: Handles, rights: Rights, done: Event) -> None:
        for tool in fresh:
            self._answer(hold, tool, _barred(tool, hold, rights))
        done.set()

    def _answer(self, hold: Handles, tool: Tool, barred: Barred | None) -> None:
        with self._lock:
            waiting = self._waiting.pop((hold.process.identity, tool.id))
        for given in waiting:
            with suppress(Exception):  # a screen that is gone keeps no other from its answer
                given(tool.id, barred)


def _barred(tool: Tool, hold: Handles, rights: Rights) -> Barred | None:
    if hold.refusal:
        return Barred(hold.refusal)
    try:
        return tool.barred(hold, rights)
    except Exception as error:  # it is not left unanswered
        return Barred(f"{type(error).__name__}: {error}")
