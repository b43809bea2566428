"""What a result is good for: whether it can be opened, of which processes it is, what the rules learn from it."""

from __future__ import annotations

from gputop.actions import ActionResult
from gputop.actions.pyspy import ProfileResult, StackResult
from gputop.actions.torch_trace import Traced
from gputop.collectives.watch import facts_of
from gputop.model import Identity, Process
from gputop.monitor import Monitor
from gputop.profile.dump import look
from gputop.profile.store import StoredProfile

Opens = StackResult | ProfileResult | Traced | StoredProfile


def opens(result: ActionResult) -> Opens | None:
    """The result, if there is something to show."""
    if isinstance(result, StackResult) and any(shown.threads for shown in result.processes):
        return result
    if isinstance(result, ProfileResult) and result.profile is not None:
        return result
    return result if isinstance(result, Traced) and result.views else None


def processes_of(result: ActionResult, asked: Process) -> list[Identity]:
    """The processes of a result: the one that it was asked for, and the others of its job that are in it."""
    others: list[Identity] = []
    if isinstance(result, StackResult):
        others = [shown.process.identity for shown in result.processes if shown.threads]
    elif isinstance(result, Traced):
        others = [traced.identity for traced in result.processes]
    return list(dict.fromkeys((asked.identity, *others)))


def testify(monitor: Monitor, process: Process, result: ActionResult) -> None:
    """Have the rules know what was seen inside a process, and inside the others of its job."""
    recorded = result.recorded
    if isinstance(result, ProfileResult) and result.profile is not None:
        monitor.tell(process.identity, result.profile, recorded=recorded)
    elif isinstance(result, StackResult):
        for shown in result.processes:
            if shown.threads:
                monitor.tell(shown.process.identity, look(shown.threads), recorded=recorded)
        if result.collectives is not None:
            ranks = [shown.process for shown in result.processes]
            for identity, facts in facts_of(result.collectives, ranks).items():
                monitor.tell(identity, facts, recorded=recorded, witness="recorder")
    elif isinstance(result, Traced):
        for traced, view in zip(result.processes, result.views, strict=True):
            monitor.tell(traced.identity, view, recorded=recorded)
            monitor.tell(traced.identity, [fact for fact in result.notes if fact.process == traced.identity])
