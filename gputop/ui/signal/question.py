"""What the signal dialog asks, without a screen: what has been chosen so far, what it would do, and what is missing."""

from __future__ import annotations

from typing import Literal

from gputop.actions import Handles, Reach, Scope
from gputop.actions.signals import BY_NAME, CHOICES, Choice, Order, warnings
from gputop.model import Process

Button = Literal["cancel", "send"]
Stop = Scope | Choice | Button  # where the cursor can be
BUTTONS: tuple[Button, ...] = ("cancel", "send")
_ANYBODY = Scope.PROCESS


class Question:
    """The state of one dialog. `why` is why nothing at all can be sent to the process; the cursor starts on Cancel."""

    def __init__(
        self, hold: Handles, why: str | None, scope: Scope = _ANYBODY, choice: Choice = BY_NAME["TERM"]
    ) -> None:
        self.hold = hold
        self.choice = choice
        self.at: Stop = "cancel"
        self.typed = ""  # the pid, where a person must insist
        self.sure = False  # asked a second time
        self.told = ""  # what became of the last key
        self._why = why
        self._ticked = {scope} - {_ANYBODY}
        self._weigh()

    @property
    def boxes(self) -> tuple[Reach, ...]:
        """What can be ticked: as long as others are meant instead, nothing that belongs to the process."""
        instead = self.scope is Scope.TAGGED
        return tuple(reach for reach in self.hold.reaches if not instead or reach.scope is Scope.TAGGED)

    @property
    def stops(self) -> tuple[Stop, ...]:
        """Where the cursor can be, in order."""
        return (*(reach.scope for reach in self.boxes), *CHOICES, *BUTTONS)

    @property
    def scope(self) -> Scope:
        """Who is meant: the widest of what is ticked."""
        return next((scope for scope in (Scope.TAGGED, Scope.JOB, Scope.LOADERS) if scope in self._ticked), _ANYBODY)

    @property
    def first(self) -> Process:
        """Whom it names: the process, or the first of those that are meant instead."""
        return self.hold.who(self.scope)[0] if self.scope is Scope.TAGGED else self.hold.process

    def ticked(self, scope: Scope) -> bool:
        """Whether its box is ticked; those of a job have their loaders among them."""
        return scope in self._ticked or (scope is Scope.LOADERS and Scope.JOB in self._ticked)

    @property
    def why_not(self) -> str | None:
        """Why nothing can be sent to anybody who is meant; None if something can."""
        if self.count:
            return None
        return (self._why if self.scope is _ANYBODY else None) or next(iter(self.spared.values()), "nobody is left")

    @property
    def count(self) -> int:
        """How many would get it."""
        if self._why and self.scope is _ANYBODY:
            return 0
        return len(self.hold.who(self.scope)) - len(self.spared)

    def move(self, steps: int) -> None:
        """Move the cursor, around the ends."""
        self.at = self.stops[(self.stops.index(self.at) + steps) % len(self.stops)]
        self.told = ""

    def jump(self, step: int) -> None:
        """To the next group: the boxes, the chosen signal, the buttons."""
        groups: list[Stop] = [*self.stops[:1], self.choice, "cancel"] if self.boxes else [self.choice, "cancel"]
        kind = next(place for place, stop in enumerate(groups) if isinstance(self.at, type(stop)))
        self.at = groups[(kind + step) % len(groups)]
        self.told = ""

    def take(self, stop: Stop) -> None:
        """Tick a box or choose a signal; the cursor goes there. For buttons see `order`."""
        self.at, self.told = stop, ""
        if isinstance(stop, Scope):
            self._tick(stop)
        elif isinstance(stop, Choice):
            self.choice = stop
        self.sure = False
        self._weigh()

    def type(self, text: str) -> None:
        """Digits of the pid, or an empty text to take one back."""
        if self.cautions:
            self.typed = (self.typed + text)[:10] if text else self.typed[:-1]
            self.told = ""

    def order(self) -> Order | None:
        """What is to be sent; None while something is missing, which is then said in `told` or asked by `sure`."""
        pid = str(self.first.pid)
        if self.why_not:
            self.told = f"nothing can be sent: {self.why_not}"
        elif self.cautions and self.typed != pid:
            self.told = f"type {pid} first"
        elif self.choice.confirm and not self.sure:
            self.sure, self.at = True, "cancel"
        else:
            return Order(self.choice, self.scope, confirmed=self.sure, insists=bool(self.cautions))
        return None

    def _tick(self, scope: Scope) -> None:
        if why := self.hold.why_not(scope):
            self.told = why
        elif scope is Scope.LOADERS and Scope.JOB in self._ticked:
            self.told = "they are in the whole job"
        elif scope is Scope.TAGGED:
            self._ticked = set() if scope in self._ticked else {scope}
        else:
            self._ticked = (self._ticked ^ {scope}) - {Scope.TAGGED}
        self.typed = ""

    def _weigh(self) -> None:
        """Ask again what would happen: reads /proc."""
        self.spared = self.hold.spared(self.scope)
        self.cautions = () if self.why_not else self.hold.cautions(self.scope)
        self.warnings = () if self.why_not else warnings(self.hold, self.scope, self.choice)
