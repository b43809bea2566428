"""What can be seen inside a process from the screen: by which tool, with which options, and what those mean to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from gputop import labels
from gputop.actions import Action, Handles, Rights, Scope, torch_trace
from gputop.actions.pyspy import PROFILE, STACK, Asked, Sampling
from gputop.actions.pyspy.record import threads
from gputop.frozen_dataclass import frozen_dataclass
from gputop.model import Process, Role
from gputop.safe.ptrace_access import Barred

ToolId = Literal["profile", "stack", "trace"]  # as the keys that ask for it
Order = Sampling | Asked | torch_trace.Order
Chosen = Mapping[str, float]  # the value of each option by its id; of a box 0 or 1


@frozen_dataclass(frozen=True, slots=True)
class Several:
    """An option that has one of several values."""

    id: str
    label: str
    values: tuple[tuple[float, str], ...]
    usual: float


@frozen_dataclass(frozen=True, slots=True)
class Box:
    """An option that is wanted or not; `title` says what it is of these processes, nothing where there is none."""

    id: str
    title: Callable[[Handles], str]
    usual: bool = False


@frozen_dataclass(frozen=True, slots=True)
class Tool:
    """One of them. `options` makes of what was chosen what the action takes."""

    id: ToolId
    title: str
    about: str
    action: Action[Any]
    barred: Callable[[Handles, Rights], Barred | None]
    options: Callable[[Chosen], Order]
    several: tuple[Several, ...]
    boxes: tuple[Box, ...]


def _named(title: str) -> Callable[[Handles], str]:
    return lambda _: title


def _loaders(hold: Handles) -> str:
    count = len(hold.who(Scope.LOADERS)) - 1
    return f"its {labels.amount(count, 'loader')}" if count > 0 else ""


def _children(hold: Handles) -> str:
    return _loaders(hold) or ("its children" if threads(hold.frame, hold.process, children=True)[1] > 1 else "")


def _ranks(hold: Handles) -> str:
    count = sum(process.role is Role.TRAINER for process in hold.who(Scope.JOB))
    return f"all {count} ranks" if count > 1 else ""


def _leader(hold: Handles) -> str:
    leader = hold.leader
    return "" if leader is None else f"only {leader.pid}, {_led(leader)}"


def _led(leader: Process) -> str:
    return "the launcher" if leader.role is Role.LAUNCHER else "which started them"


def _tagged(hold: Handles) -> str:
    several = len(hold.who(Scope.TAGGED)) > 1
    return next((reach.title for reach in hold.reaches if several and reach.scope is Scope.TAGGED), "")


def _scope(chosen: Chosen) -> Scope:
    """Who is meant: one box at most is ticked."""
    scopes = {"tagged": Scope.TAGGED, "ranks": Scope.JOB, "children": Scope.LOADERS}
    return next((scope for box, scope in scopes.items() if chosen.get(box)), Scope.PROCESS)


def sampling(chosen: Chosen) -> Sampling:
    """What py-spy is to do."""
    return Sampling(
        seconds=chosen["seconds"],
        children=bool(chosen["children"]),
        waiting=bool(chosen["waiting"]),
        gil=bool(chosen["gil"]),
        native=bool(chosen["native"]),
    )


def _asked(chosen: Chosen) -> Asked:
    return Asked(_scope(chosen), bool(chosen["native"]))


def _order(chosen: Chosen) -> torch_trace.Order:
    return torch_trace.Order(
        scope=_scope(chosen),
        steps=int(chosen["steps"]),
        shapes=bool(chosen["shapes"]),
        stacks=bool(chosen["stacks"]),
        memory=bool(chosen["memory"]),
        wait_s=chosen["wait"],
    )


TAGGED = Box("tagged", _tagged, usual=True)
LEADER = Box("leader", _leader)
TOOLS: tuple[Tool, ...] = (
    Tool(
        "profile",
        "py-spy record",
        "where its time goes, in Python",
        PROFILE,
        lambda hold, rights: PROFILE.barred(hold.process, rights),
        lambda chosen: sampling(chosen),
        (Several("seconds", "for", ((5, "5 s"), (10, "10 s"), (30, "30 s"), (60, "60 s")), 10),),
        (
            TAGGED,
            Box("ranks", _ranks),
            LEADER,
            Box("children", _children, usual=True),
            Box("waiting", _named("waiting threads"), usual=True),
            Box("gil", _named("GIL only")),
            Box("native", _named("native")),
        ),
    ),
    Tool(
        "stack",
        "py-spy dump",
        "where every thread is, now",
        STACK,
        lambda hold, rights: STACK.barred(hold.process, rights),
        _asked,
        (),
        (TAGGED, Box("children", _loaders), Box("ranks", _ranks), LEADER, Box("native", _named("native"))),
    ),
    Tool(
        "trace",
        "torch.profiler",
        "kernels, operators, memory",
        torch_trace.TRACE,
        lambda hold, rights: torch_trace.TRACE.barred(hold.process, rights, hold.frame),
        _order,
        (
            Several("steps", "steps", ((3, "3"), (5, "5"), (10, "10"), (30, "30"), (100, "100")), 3),
            Several("wait", "wait", ((30, "30 s"), (120, "2 min"), (600, "10 min for a step to end")), 30),
        ),
        (
            TAGGED,
            Box("ranks", _ranks, usual=True),
            Box("shapes", _named("shapes")),
            Box("stacks", _named("stacks")),
            Box("memory", _named("memory")),
        ),
    ),
)
BY_ID = {tool.id: tool for tool in TOOLS}
