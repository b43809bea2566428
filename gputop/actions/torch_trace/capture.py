"""Trace several processes at once through their agents, from a common step on; the slowest sets the duration."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gputop import labels
from gputop.actions.action import ActionResult, ActionRun
from gputop.actions.handles import Scope
from gputop.actions.target import TargetProcess
from gputop.actions.torch_trace.agent_facts import facts_of, mark_facts
from gputop.agent_client import Agent, AgentLost, NoAgent, connect, root
from gputop.frozen_dataclass import frozen_dataclass
from gputop.model import Fact, Process
from gputop.safe.deadline import readable
from gputop.safe.text import clean

if TYPE_CHECKING:
    from gputop.trace.verdict import TraceView


MOST_STEPS = 100


@frozen_dataclass(frozen=True, kw_only=True)
class TraceOrder:
    """A trace of some steps. `confirmed` has the risks that the user has accepted: see `Traced.risk`."""

    scope: Scope = Scope.JOB  # PROCESS: this one; JOB: all ranks of its job at once; TAGGED: the tagged ones at once
    steps: int = 3  # 1 to MOST_STEPS
    shapes: bool = False
    stacks: bool = False
    memory: bool = False
    wait_s: float = 30.0  # for a step to end
    confirmed: frozenset[str] = frozenset()


@frozen_dataclass(frozen=True, kw_only=True)
class Traced(ActionResult):
    """The result: `views` are the parsed traces in the order of `files`; `processes` are their processes.

    `risk` names what the user must accept first, and `text` explains it: run again with it in `confirmed`.
    """

    files: tuple[str, ...] = ()
    views: tuple[TraceView, ...] = ()
    processes: tuple[Process, ...] = ()
    notes: tuple[Fact, ...] = ()  # facts reported by the programs, for `Monitor.tell`
    risk: str | None = None


TOGETHER_S = 0.3  # from the first request to the common start
_LOOK_S = 0.1
_SLACK_S = 32.0  # for a pending step to end, and for writing
_NOTES_S = 1.0
_CUDA_GRAPHS = "cuda-graphs"

BUSY = "the program is running its own profiler: retry when it is done"
_WHY = {
    "no-torch": "torch is not imported yet: retry in a moment",
    "still-importing": "torch is still being imported: retry in a moment",
    "profiler-active": BUSY,
    "busy": "it is already being traced",
    "unsupported": "its torch version is not supported: {detail} is missing",
    "cupti": "the driver refused CUPTI: {detail}",
    "output": "the trace could not be written: {detail}",
    "no-step": "{detail}: stuck or evaluating? gputop stack shows where; --wait 5m waits longer",
    "cancelled": "cancelled",
    _CUDA_GRAPHS: "it may use CUDA graphs: with old builds, starting a profiler beside them crashed jobs",
}


class ProcessCapture:
    """One process being traced: `report` is its final message, `problem` why there is no trace."""

    def __init__(self, target: TargetProcess) -> None:
        self.target = target
        self.state = "asked"
        self.report: dict[str, Any] | None = None
        self.problem: str | None = None
        self.risk: str | None = None
        self.notes: tuple[Fact, ...] = ()
        self.how = ""
        self.root = root(target.pid)  # of its files, while it lives

    def fail(self, why: str) -> None:
        """Record that there will be no trace."""
        self.problem, self.state = self.problem or clean(why, 400), "failed"

    def took_ms(self, what: str) -> float:
        """Milliseconds of a part of the capture, from the final report; 0 if absent."""
        return _number((self.report or {}).get(what))


class AgentCapture(ProcessCapture):
    """A process traced by its agent."""

    def __init__(self, target: TargetProcess, order: TraceOrder) -> None:
        super().__init__(target)
        self.how = f"torch.profiler, {labels.amount(order.steps, 'step')}"
        self.step_s = self.cap_s = 0.0
        self.agent: Agent | None = None
        try:
            self.agent = connect(target)
        except NoAgent as why:
            self.fail(str(why) or "it has no agent")

    def request(self, order: TraceOrder, at: float | None) -> None:
        """Request the steps."""
        if self.agent is None:
            return
        fields = {"steps": order.steps, "shapes": order.shapes, "stacks": order.stacks, "memory": order.memory}
        try:
            graphs = _CUDA_GRAPHS in order.confirmed
            self.agent.ask("capture", at=at, wait=order.wait_s, graphs=graphs, id="trace", **fields)
        except AgentLost as why:
            self.fail(str(why))

    def poll(self) -> None:
        """Read the agent's messages."""
        if self.agent is None:
            return
        try:
            for each in self.agent.read():
                self._take(each)
        except AgentLost as why:
            if self.report is None:
                self.fail(str(why))

    def fail(self, why: str) -> None:
        """Record that there will be no trace."""
        super().fail(why)
        self.close()

    def close(self) -> None:
        """Close the connection; unfinished work ends."""
        if self.agent is not None:
            self.agent.close()
            self.agent = None

    def _ask_notes(self) -> None:
        """Request the notes, too: it costs some milliseconds."""
        assert self.agent is not None
        try:
            process = self.target.process.identity
            self.notes = facts_of(process, self.agent.answer("facts", _NOTES_S).get("facts"))
            self.notes += mark_facts(process, self.agent.answer("marks", _NOTES_S).get("marks"))
        except AgentLost:
            pass  # it may have ended with its trace

    def _take(self, said: dict[str, Any]) -> None:
        if "error" in said:
            code, detail = str(said["error"]), clean(str(said.get("detail", "")), 300)
            self.risk = code if code == _CUDA_GRAPHS else None
            self.fail(_WHY.get(code, f"the agent failed: {code} {{detail}}").format(detail=detail))
        elif said.get("state") == "done":
            self.report, self.state = said, "done"
            self._ask_notes()
            self.close()
        elif said.get("state") in ("waiting", "recording"):
            self.state = str(said["state"]) if said.get("for") != "import" else "importing"
            self.step_s, self.cap_s = _number(said.get("step_s")), _number(said.get("cap_s"))


def capture(targets: Sequence[TargetProcess], order: TraceOrder, run: ActionRun) -> list[ProcessCapture]:
    """Trace these at once until each is done or has failed; after a cancel none is left waiting."""
    shots = [AgentCapture(target, order) for target in targets]
    together = sum(shot.agent is not None for shot in shots) > 1
    at = time.time() + TOGETHER_S if together else None
    for shot in shots:
        shot.request(order, at)
    began_s = time.monotonic()
    while waited := {shot.agent: shot for shot in shots if shot.agent is not None}:
        for agent in readable(waited, _LOOK_S):
            waited[agent].poll()
        passed_s = time.monotonic() - began_s
        run.say(_line(shots, order, passed_s))
        for shot in waited.values():
            if shot.agent is not None and run.cancelled:
                shot.fail("cancelled")
            elif shot.agent is not None and passed_s > order.wait_s + shot.cap_s + _SLACK_S:
                shot.fail("its agent no longer responds")
            elif shot.agent is not None and shot.target.ended():
                shot.poll()
                shot.fail("the process exited")
    return list(shots)


def _line(shots: Sequence[AgentCapture], order: TraceOrder, passed_s: float) -> str:
    """`recording 3 steps of 210 ms · 4 of 8 ranks · 1 s`."""
    states = [shot.state for shot in shots]
    steps = labels.amount(order.steps, "step")
    if "recording" in states or "done" in states:
        longest = max(shot.step_s for shot in shots)
        what = f"recording {steps}" + (f" of {longest * 1000:.0f} ms" if longest else "")
        ready = states.count("recording") + states.count("done")
    else:
        what = "waiting for torch" if "importing" in states else "waiting for a step to end"
        ready = states.count("waiting")
    many = f" · {ready} of {len(shots)} ranks" if len(shots) > 1 else ""
    return f"{what}{many} · {passed_s:.0f} s"


def _number(value: Any) -> float:
    good = type(value) in (int, float) and math.isfinite(value) and 0 <= value < 1e6
    return float(value) if good else 0.0
