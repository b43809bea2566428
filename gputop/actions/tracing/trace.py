"""The action: some steps of a training recorded by torch's own profiler in the process, of all ranks at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from gputop import words
from gputop.actions.action import Result, Run, begin
from gputop.actions.aim import aim
from gputop.actions.hold import Hold, Scope
from gputop.actions.target import Refusal, Rights, Target
from gputop.actions.tracing import kineto, remote
from gputop.actions.tracing.files import brought
from gputop.actions.tracing.order import MOST_STEPS, Order, Traced
from gputop.actions.tracing.routes import Route, route
from gputop.actions.tracing.shots import Shot, shoot
from gputop.model import Frame, Process, Role
from gputop.safe.attach import Barred
from gputop.safe.files import Refused

if TYPE_CHECKING:
    from gputop.trace.verdict import View

_REMOTE_TEXT = (
    "{pid} was not prepared: sys.remote_exec puts our agent into it, where it stays until {pid} ends;"
    " nothing else in it is changed"
)

# it cannot be taken off again: torch does not with CUDA graphs, and a job may make some at any time
AFTERWARDS = "CUPTI stays attached to the job: on an H200 steps of 1.56 ms took 1.66 to 1.92 ms after a trace"


class Trace:
    """The action."""

    id = "trace"
    title = "Trace"

    def rights(self, rights: Rights) -> Rights:
        """What its hold is made with."""
        return rights.inside

    def why_not(self, process: Process, rights: Rights) -> str | None:
        """Why it cannot be traced, and the command that makes it possible next time; None if it can."""
        barred = self.barred(process, rights)
        return barred.line if barred else None

    def barred(self, process: Process, rights: Rights, frame: Frame | None = None) -> Barred | None:
        """The same, with what would change it apart; in a frame that is the command of its job."""
        target = aim(process, self.rights(rights), {})
        if isinstance(target, Refusal):
            return Barred(target.text)
        why = target.denied()
        target.close()
        if why is not None:
            return Barred(why)
        if process.role is Role.LAUNCHER:
            return None
        if process.role is Role.LOADER:
            return Barred("it only loads data: trace the process that trains")
        found = route(process, frame)
        return found if isinstance(found, Barred) else None

    def run(self, hold: Hold, options: Order, tell: Callable[[Run], object]) -> Run:
        """Begin to record; returns at once."""
        return begin(f"trace of {hold.process.pid}", hold, lambda run: _trace(hold, options, run), tell)


TRACE = Trace()


def meant(hold: Hold, order: Order) -> tuple[Process, ...]:
    """Whom an order means: the ranks of the job, those that are tagged, or the process alone; of a launcher its ranks
    in any case."""
    if order.scope is Scope.TAGGED:
        tagged = hold.who(Scope.TAGGED)
        return tuple(process for process in tagged if process.role is Role.TRAINER) or tagged
    if order.scope is Scope.PROCESS and hold.process.role is not Role.LAUNCHER:
        return (hold.process,)
    ranks = tuple(process for process in hold.who(Scope.JOB) if process.role is Role.TRAINER)
    return ranks if ranks and (hold.process in ranks or hold.process.role is Role.LAUNCHER) else (hold.process,)


def _trace(hold: Hold, order: Order, run: Run) -> Result:
    if not 1 <= order.steps <= MOST_STEPS:
        return Traced(text=f"{order.steps} steps cannot be recorded: 1 to {MOST_STEPS}", good=False)
    asked = meant(hold, order)
    held = {one.pid: one for scope in (Scope.PROCESS, Scope.JOB, Scope.TAGGED) for one in hold.held(scope)}
    ways: dict[int, Route] = {}
    targets: list[Target] = []
    for process in asked:
        one = held[process.pid]
        if isinstance(one, Refusal):
            return Traced(text=f"nothing traced: {process.pid}: {one.text}", good=False)
        way = _prepared(one, hold.frame, order, run)
        if isinstance(way, Traced):
            return way
        ways[one.pid] = way
        targets.append(one)
    served = [one for one in targets if ways[one.pid] is Route.KINETO]
    shots = kineto.captured(served, order, run) if served else []
    shots += shoot([one for one in targets if one not in served], order, run)
    risky = next((shot for shot in shots if shot.risk), None)
    if risky is not None:
        return Traced(text=f"{risky.target.pid}: {risky.problem}", good=False, risk=risky.risk)
    run.say("reading what was recorded")
    return _brought(hold, order, shots)


def _prepared(target: Target, frame: Frame, order: Order, run: Run) -> Traced | Route:
    """Have an agent in it, or find another way; else say why there is none."""
    if (why := target.denied()) is not None:
        return Traced(text=f"nothing traced: {target.pid}: {why}", good=False)
    found = route(target.process, frame)
    if isinstance(found, Barred):
        return Traced(text=found.line, good=False)
    if found is Route.REMOTE:
        if remote.RISK not in order.confirmed:
            return Traced(text=_REMOTE_TEXT.format(pid=target.pid), good=False, risk=remote.RISK)
        problem = remote.inject(target, run)
        if problem is not None:
            return Traced(text=f"{target.pid}: {problem}", good=False)
    elif found is Route.KINETO and kineto.RISK not in order.confirmed:
        return Traced(text=kineto.risk(target.pid, order), good=False, risk=kineto.RISK)
    return found


def _brought(hold: Hold, order: Order, shots: Sequence[Shot]) -> Traced:
    """The traces of those that have one, read; what went wrong with the others."""
    # late: few looks at a screen end in a trace
    from gputop.trace import signatures  # noqa: F401
    from gputop.trace.read import read
    from gputop.trace.verdict import View

    done = [shot for shot in shots if shot.told is not None]
    problems = [f"{shot.target.pid}: {shot.problem}" for shot in shots if shot.told is None]
    if not done:
        return Traced(text=f"nothing traced: {problems[0]}", good=False, lines=tuple(problems[1:]))
    try:
        where, names = brought(hold.process, done)
    except Refused as refused:
        return Traced(text=f"traced, but not kept: {refused}", good=False)
    views: dict[str, View] = {}
    for name, shot in names.items():
        try:
            views[name] = View(read(f"{where.path}/{name}"))
        except Refused as refused:
            problems.append(f"{shot.target.pid}: {refused}")
    if not views:
        return Traced(text=f"nothing traced: {problems[0]}", good=False, lines=tuple(problems[1:]))
    for view in views.values():
        view.ranks = tuple(views.values())
    lines = (*_remarks(done, order), *afterwards(tuple(views.values())), *problems)
    return Traced(
        text=_told(tuple(views.values()), done),
        good=not problems,
        lines=lines,
        files=tuple(f"{where.path}/{name}" for name in views),
        views=tuple(views.values()),
        processes=tuple(names[name].target.process for name in views),
        notes=tuple(fact for name in views for fact in names[name].notes),
    )


def afterwards(views: Sequence[View]) -> tuple[str, ...]:
    """What a trace of a GPU costs once it is over."""
    return (AFTERWARDS,) if any(view.found.of_gpu for view in views) else ()


def _told(views: Sequence[View], done: Sequence[Shot]) -> str:
    """`3 steps of 2 ranks traced: DataLoader wait`."""
    steps = words.amount(max(view.steps for view in views), "step")
    who = f" of {len(views)} ranks" if len(views) > 1 else f" of {done[0].target.pid}"
    worst = next((verdict for view in views for verdict in view.verdicts if verdict.severity != "info"), None)
    return f"{steps}{who} traced" + (f": {worst.headline}" if worst else "")


def _remarks(done: Sequence[Shot], order: Order) -> tuple[str, ...]:
    said = []
    for shot in done:
        told = shot.told or {}
        if told.get("preempted") is True:
            said.append(f"{shot.target.pid}: it began to profile itself or to fork: recorded up to there")
        elif told.get("cut") is True:
            said.append(f"{shot.target.pid}: a step took longer than those before it: recorded up to there")
        elif told.get("timed") is True:
            without = " without shapes, stacks, allocations" if order.shapes or order.stacks or order.memory else ""
            said.append(f"{shot.target.pid}: {shot.how}{without}")
    return tuple(said)
