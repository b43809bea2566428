"""What comes of signals and of niceness: said on the last line; KILL is proposed where TERM was not enough."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from textual.app import App

from gputop.actions.handles import Handles, Scope
from gputop.frozen_dataclass import frozen_dataclass
from gputop.model import Identity
from gputop.ui.commands.command import Names, hint
from gputop.ui.theme import Token

if TYPE_CHECKING:
    from gputop.actions.action import ActionRun
    from gputop.actions.signals import SignalChoice

_PROGRESS_S, _RESULT_S = 3.0, 12.0


class Say(Protocol):
    """Says a line on the screen."""

    def __call__(self, text: str, seconds: float = ..., token: Token = ...) -> None:
        """Say it for so long."""


@frozen_dataclass(frozen=True, slots=True)
class Addressees:
    """What a run was sent to: the process it was asked for, how far it reaches, and everything within that reach."""

    process: Identity
    scope: Scope
    everybody: frozenset[Identity]


class ActionOutcomes:
    """Follows runs of actions; the newest is shown."""

    def __init__(self, app: App[Any], say: Say, names: Names) -> None:
        self._app, self._say, self._names = app, say, names
        self._newest: ActionRun | None = None
        self._still: tuple[Addressees, float] | None = None  # what did not end when asked to, and until when it is news

    def follow(
        self, start: Callable[[Callable[[ActionRun], object]], ActionRun], handles: Handles, scope: Scope
    ) -> None:
        """Start a run, and say how it goes and what came of it."""
        about = Addressees(
            handles.process.identity, scope, frozenset(process.identity for process in handles.processes(scope))
        )
        self._newest = start(lambda run: self._app.call_later(self._show, run, about))

    def forget(self) -> None:
        """Something else is sent: what did not end before is no news."""
        self._still = None

    def proposed(self, handles: Handles, scope: Scope) -> tuple[SignalChoice, Scope]:
        """TERM; KILL while it is news that none of the targets ended when asked to."""
        from gputop.actions.signals import BY_NAME  # late

        if self._still:
            asked, until_s = self._still
            again = Scope.TAGGED if scope is Scope.TAGGED else asked.scope
            targets = {process.identity for process in handles.processes(again)}
            same = again is Scope.TAGGED or handles.process.identity == asked.process
            if time.monotonic() < until_s and same and targets and targets <= asked.everybody:
                return BY_NAME["KILL"], again
        return BY_NAME["TERM"], scope

    def _show(self, run: ActionRun, about: Addressees) -> None:
        """Show it, unless there is something newer to show."""
        from gputop.actions.signals import Signalled  # late

        result = run.result
        if result is None:
            if run is self._newest:
                self._say(run.line, _PROGRESS_S)
            return
        parts = [result.text, *(line for line in result.lines if line != result.text)]
        if isinstance(result, Signalled) and result.still:
            self._still = about, time.monotonic() + _RESULT_S
            parts.insert(1, f"KILL?{hint(self._names, ' press {}', 'signal')}")
        self._say(" · ".join(parts), _RESULT_S, "bright" if result.good else "warn")
