"""What can be seen inside a process from the screen: by which tool, with which options, and what was taken before."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from threading import Event, Lock, Thread
from typing import Any, Literal

from gputop import labels
from gputop.actions import Action, Handles, Rights, Scope, torch_trace
from gputop.actions.pyspy import PROFILE, STACK, Asked, Sampling
from gputop.actions.pyspy.cost import remembered
from gputop.actions.pyspy.record import threads
from gputop.actions.target import command
from gputop.frozen_dataclass import frozen_dataclass
from gputop.model import Identity, Process, Role
from gputop.profile import store
from gputop.profile.store import StoredProfile
from gputop.safe.files import Refused, homely
from gputop.safe.ptrace_access import Barred


@frozen_dataclass(frozen=True, slots=True)
class PastResults:
    """Those of the process itself and of the same command line, the newest first, and where all of them lie."""

    own: tuple[StoredProfile, ...] = ()
    others: tuple[StoredProfile, ...] = ()
    place: str = ""  # as a person writes it; empty where nothing can be kept

    @property
    def older(self) -> tuple[StoredProfile, ...]:
        """All of them, its own first."""
        return (*self.own, *self.others)

    def cost(self, *, trace: bool) -> str:
        """What the newest of its kind cost this very process; empty where that was not measured."""
        return next(_costs(self.own, trace), "")


def past(process: Process) -> PastResults:
    """Look for them: reads a file each, so not on the screen's time."""
    try:
        place = homely(store.place())
        own = store.history(process.pid, process.started_ticks)
        alike = store.alike(command(process))
    except Refused:
        return PastResults()
    names = {each.name for each in own}
    return PastResults(tuple(own), tuple(each for each in alike if each.name not in names), place)


def _costs(own: tuple[StoredProfile, ...], trace: bool) -> Iterator[str]:
    for each in own:
        cost, stop_ms = remembered(each.meta.get("cost")), each.meta.get("stop_ms")
        if not trace and cost is not None:
            yield cost.text
        elif trace and isinstance(stop_ms, (int, float)) and 0 < stop_ms < 1e6:
            yield f"it was stopped for {stop_ms:.0f} ms at the end"


ToolId = Literal["profile", "stack", "torch"]  # as the commands that ask for it
Order = Sampling | Asked | torch_trace.TraceOrder
Chosen = Mapping[str, float]  # the value of each option by its id; of a box 0 or 1


@frozen_dataclass(frozen=True, slots=True)
class ChoiceOption:
    """An option that has one of several values."""

    id: str
    label: str
    values: tuple[tuple[float, str], ...]
    usual: float


@frozen_dataclass(frozen=True, slots=True)
class CheckOption:
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
    several: tuple[ChoiceOption, ...]
    boxes: tuple[CheckOption, ...]


def _named(title: str) -> Callable[[Handles], str]:
    return lambda _: title


def _loaders(handles: Handles) -> str:
    count = len(handles.processes(Scope.LOADERS)) - 1
    return f"its {labels.amount(count, 'worker')}" if count > 0 else ""


def _children(handles: Handles) -> str:
    return _loaders(handles) or (
        "its children" if threads(handles.frame, handles.process, children=True)[1] > 1 else ""
    )


def _ranks(handles: Handles) -> str:
    count = sum(process.role is Role.TRAINER for process in handles.processes(Scope.JOB))
    return f"all {count} ranks" if count > 1 else ""


def _leader(handles: Handles) -> str:
    leader = handles.leader
    return "" if leader is None else f"only {leader.pid}, {_led(leader)}"


def _led(leader: Process) -> str:
    return "the launcher" if leader.role is Role.LAUNCHER else "which started the ranks"


def _tagged(handles: Handles) -> str:
    several = len(handles.processes(Scope.TAGGED)) > 1
    return next((reach.title for reach in handles.reaches if several and reach.scope is Scope.TAGGED), "")


def _scope(chosen: Chosen) -> Scope:
    """The targets: one box at most is ticked."""
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


def _order(chosen: Chosen) -> torch_trace.TraceOrder:
    return torch_trace.TraceOrder(
        scope=_scope(chosen),
        steps=int(chosen["steps"]),
        shapes=bool(chosen["shapes"]),
        stacks=bool(chosen["stacks"]),
        memory=bool(chosen["memory"]),
        wait_s=chosen["wait"],
    )


TAGGED = CheckOption("tagged", _tagged, usual=True)
LEADER = CheckOption("leader", _leader)
TOOLS: tuple[Tool, ...] = (
    Tool(
        "profile",
        "py-spy record",
        "where Python time goes",
        PROFILE,
        lambda handles, rights: PROFILE.barred(handles.process, rights),
        lambda chosen: sampling(chosen),
        (ChoiceOption("seconds", "for", ((5, "5 s"), (10, "10 s"), (30, "30 s"), (60, "60 s")), 10),),
        (
            TAGGED,
            CheckOption("ranks", _ranks),
            LEADER,
            CheckOption("children", _children, usual=True),
            CheckOption("waiting", _named("waiting threads"), usual=True),
            CheckOption("gil", _named("GIL only")),
            CheckOption("native", _named("native")),
        ),
    ),
    Tool(
        "stack",
        "py-spy dump",
        "current stack of every thread",
        STACK,
        lambda handles, rights: STACK.barred(handles.process, rights),
        _asked,
        (),
        (
            TAGGED,
            CheckOption("children", _loaders),
            CheckOption("ranks", _ranks),
            LEADER,
            CheckOption("native", _named("native")),
        ),
    ),
    Tool(
        "torch",
        "torch.profiler",
        "kernels, operators, memory",
        torch_trace.TRACE,
        lambda handles, rights: torch_trace.TRACE.barred(handles.process, rights, handles.frame),
        _order,
        (
            ChoiceOption("steps", "steps", ((3, "3"), (5, "5"), (10, "10"), (30, "30"), (100, "100")), 3),
            ChoiceOption("wait", "wait", ((30, "30 s"), (120, "2 min"), (600, "10 min for a step to end")), 30),
        ),
        (
            TAGGED,
            CheckOption("ranks", _ranks, usual=True),
            CheckOption("shapes", _named("shapes")),
            CheckOption("stacks", _named("stacks")),
            CheckOption("memory", _named("memory")),
        ),
    ),
)
BY_ID = {tool.id: tool for tool in TOOLS}


PATIENCE_S = 0.2  # as a rule it is a millisecond; a screen that waits for so long is not noticed
ASKING = Barred("no answer yet: a process blocked on a file server answers when the server does")

Answers = dict[ToolId, Barred | None]
Tell = Callable[[ToolId, Barred | None], object]


class Asking:
    """Asks in threads; never the same of a process twice at a time, or each time would cost a thread for good."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[Identity, ToolId], list[Tell]] = {}
        self._lock = Lock()

    def ask(self, handles: Handles, rights: Rights, tell: Tell) -> Answers:
        """Why each tool cannot be used on it. What is not known at once is ASKING; `tell` gets it, from a thread."""
        answers: Answers = {tool.id: ASKING for tool in TOOLS}
        done, returned = Event(), False

        def given(id: ToolId, barred: Barred | None) -> None:
            with self._lock:
                answers[id], late = barred, returned
            if late:
                tell(id, barred)

        with self._lock:
            fresh = [tool for tool in TOOLS if (handles.process.identity, tool.id) not in self._waiting]
            for tool in TOOLS:
                self._waiting.setdefault((handles.process.identity, tool.id), []).append(given)
        try:
            Thread(target=self._run, args=(fresh, handles, rights, done), name="asking", daemon=True).start()
        except RuntimeError as error:  # this user may have no more threads
            for tool in fresh:
                self._answer(handles, tool, Barred(f"cannot be checked: {error}"))
            done.set()
        done.wait(PATIENCE_S)
        with self._lock:
            returned = True
            return dict(answers)

    def _run(self, fresh: Sequence[Tool], handles: Handles, rights: Rights, done: Event) -> None:
        for tool in fresh:
            self._answer(handles, tool, _barred(tool, handles, rights))
        done.set()

    def _answer(self, handles: Handles, tool: Tool, barred: Barred | None) -> None:
        with self._lock:
            waiting = self._waiting.pop((handles.process.identity, tool.id))
        for given in waiting:
            with suppress(Exception):  # a screen that is gone keeps no other from its answer
                given(tool.id, barred)


def _barred(tool: Tool, handles: Handles, rights: Rights) -> Barred | None:
    if handles.refusal:
        return Barred(handles.refusal)
    try:
        return tool.barred(handles, rights)
    except Exception as error:  # it is not left unanswered
        return Barred(f"{type(error).__name__}: {error}")
