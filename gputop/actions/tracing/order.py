"""What a person wants traced, and what came of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputop.actions.action import Result
from gputop.actions.hold import Scope
from gputop.declare import record
from gputop.model import Fact, Process

if TYPE_CHECKING:
    from gputop.trace.verdict import View

MOST_STEPS = 100


@record(frozen=True, kw_only=True)
class Order:
    """A trace of some steps. `confirmed` has the risks that a person has been told of and takes: see `Traced.risk`."""

    scope: Scope = Scope.JOB  # PROCESS: only this one; JOB: all ranks of its job at once; TAGGED: those at once
    steps: int = 3  # 1 to MOST_STEPS
    shapes: bool = False
    stacks: bool = False
    memory: bool = False
    wait_s: float = 30.0  # for a step to end
    confirmed: frozenset[str] = frozenset()


@record(frozen=True, kw_only=True)
class Traced(Result):
    """What was traced: `views` are the traces, read, in the order of `files`; `processes` those they are of.

    `risk` names what a person must be told before it can be done, and `text` tells it: run it again with that in
    `confirmed`.
    """

    files: tuple[str, ...] = ()
    views: tuple[View, ...] = ()
    processes: tuple[Process, ...] = ()
    notes: tuple[Fact, ...] = ()  # what the programs say of themselves, for `Monitor.tell`
    risk: str | None = None
