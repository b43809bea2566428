"""The step meters of training processes: asked through their agents every tick, in a thread that is not waited for.

What an agent says is as hostile as anything of its process: only numbers that make sense are taken.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from statistics import median
from typing import Any, NamedTuple

from gputop.agent_client import Agent, AgentLost, NoAgent, connect, listening, present
from gputop.collect.lane import Lane
from gputop.model import Identity, Job, Noted, Process, Role, SlowStep
from gputop.safe.deadline import readable
from gputop.safe.identity import read_stat
from gputop.safe.text import clean

_PATIENCE_S = 0.3  # for the answers of all
_FIRST_S = 0.2  # that the first frame waits for them
_AGAIN_S = 15.0  # between two tries to find the agent of a process
_LISTED_S = 5.0  # between two listings of the folders of agents, each of which takes a separate thread
_TRIES_S = 120.0  # of its life; later none comes
_MOST = 64  # processes
_NONE_SINGLY = 1 << 50  # more steps than any job makes: their numbers together are enough
_LONGEST_S, _LATEST_S = 86_400.0, 1e11  # of a step; a time of the wall clock
_MOST_STEPS = 1 << 53
_PHASES = ("data", "optimizer", "rest")
_SLOW_S, _SLOW_KEPT = 900.0, 16  # as long as the history keeps seconds; slow steps of a process
_NOTED, _LONGEST_NAME = 24, 40  # names of one kind that are shown, and cells of each
_LARGEST = 1e15  # as much as a frame may hold
_STALE_S = 60.0  # since its last step; or a multiple of what one takes
_STALE_STEPS = 5.0
KEPT_STEPS, COMPARED_STEPS = 120, 50  # steps of a rank that are kept; the newest common ones that are compared
_LEAST_STEPS = 10  # of them
_LATE = 0.1  # of a step, that a rank waits longer than each other: less is noise
_TOGETHER = 0.5  # of a step, within which the same one ends on all ranks

METER_FILLS = (
    "step_s", "step_p90_s", "step_longest_s", "data_wait_percent", "optimizer_percent", "samples_per_s",
    "evaluated_percent", "step_count", "step_window", "slow_step_count", "late_step_count", "common_step_count",
)  # fmt: skip
Meters = Mapping[Identity, Mapping[str, Any]]


class _Whom:
    """A process that is looked for by pid and start: its agent proves by its socket that it is that process."""

    def __init__(self, process: Process) -> None:
        self.process, self.pid = process, process.pid

    def ended(self) -> bool:
        """Whether it has."""
        stat = read_stat(self.pid)
        return stat is None or stat.started_ticks != self.process.started_ticks


class OneStep(NamedTuple):
    """An optimizer step of a rank."""

    ended_s: float  # Unix seconds
    took_s: float
    waited_s: float  # for data
    other: bool  # it holds an evaluation


Numbered = Mapping[int, OneStep]  # by how many steps there were when it was made


class MeterLane:
    """Asks those that have an agent; `of` gives each process what its meter says. Waits for nothing but at first.

    Asked are trainers, processes with an agent's socket in a folder of ours, and those with PyTorch mapped: a small
    training on the CPU shows neither GPU nor loaders nor much CPU time, and is seen to train by its steps alone.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._agents: dict[Identity, Agent] = {}
        self._tried: dict[Identity, float] = {}
        self._slow: dict[Identity, tuple[SlowStep, ...]] = {}
        self._singly: Mapping[Identity, Numbered] = {}  # swapped whole
        self._wanted: tuple[Process, ...] = ()
        self._lane: Lane[Meters] = Lane("meters", self._read, {})
        self._started = self._stopped = False
        self._listening: frozenset[tuple[int, int]] = frozenset()  # pid and start
        self._listed_s = -math.inf
        self.stepping: frozenset[Identity] = frozenset()  # that have made optimizer steps, and live; swapped whole

    def ask(self, processes: Iterable[Process]) -> bool:
        """Ask for the steps of these again; True where it has waited for the first answers."""
        first, self._started = not self._started, True
        if first:
            self._list()
        wanted = [one for one in processes if one.verified and one.unseen is None and self._may_step(one)]
        self._wanted = tuple(sorted(wanted, key=lambda one: one.role is not Role.TRAINER)[:_MOST])
        if first:
            self._lane.start()
        self._lane.nudge()
        # a command that asks only once sees them, too
        return first and bool(self._wanted) and self._lane.settled(time.monotonic() + _FIRST_S)

    def of(self, processes: Iterable[Process], jobs: Iterable[Job]) -> tuple[Process, ...]:
        """The processes with what was read last, and how often each rank of these jobs was late."""
        said, singly = self._lane.latest, self._singly
        often = {
            identity: fields
            for job in jobs
            if len(job.ranks) > 1 and all(one in said and one in singly for one in job.ranks)
            for identity, fields in zip(job.ranks, late_counts([singly[one] for one in job.ranks]), strict=True)
        }
        return tuple(
            replace(one, **said[one.identity], **often.get(one.identity, {})) if one.identity in said else one
            for one in processes
        )

    def _may_step(self, process: Process) -> bool:
        if process.role is Role.TRAINER or (process.pid, process.started_ticks) in self._listening:
            return True
        return "torch" in process.libraries and process.role is not Role.LOADER

    def stop(self) -> None:
        """Let the thread end, and go of the agents."""
        self._lane.stop()
        self._wanted, self._stopped = (), True
        for agent in [*self._agents.values()]:
            agent.close()

    def _list(self) -> None:
        if self._clock() - self._listed_s >= _LISTED_S:
            self._listed_s, self._listening = self._clock(), listening()

    def _read(self) -> Meters:
        self._list()
        wanted = {one.identity: one for one in self._wanted}
        for gone in self._agents.keys() - wanted.keys():
            self._agents.pop(gone).close()
        self._tried = {identity: when for identity, when in self._tried.items() if identity in wanted}
        self._slow = {identity: slow for identity, slow in self._slow.items() if identity in wanted}
        self._singly = {identity: steps for identity, steps in self._singly.items() if identity in wanted}
        for identity, process in wanted.items():
            if identity not in self._agents and self._is_due(process):
                self._connect(process)
        waiting: dict[Agent, Identity] = {}
        for identity, agent in list(self._agents.items()):
            try:
                # a single rank has none to be compared with
                known = max(self._singly.get(identity, ()), default=0)
                agent.ask("steps", since=known if len(self._agents) > 1 else _NONE_SINGLY)
                waiting[agent] = identity
            except AgentLost:
                self._lose(identity)
        found = self._answers(waiting)
        self.stepping = frozenset(
            one for one in wanted if one in self.stepping or found.get(one, {}).get("step_count")
        )  # one that is late this time has trained nonetheless
        return found

    def _is_due(self, process: Process) -> bool:
        now_s, tried_s = self._clock(), self._tried.get(process.identity)
        if tried_s is None:
            return True
        young = (process.age_s or 0.0) < _TRIES_S or process.identity in self._listening
        return now_s - tried_s >= _AGAIN_S and young

    def _connect(self, process: Process) -> None:
        self._tried[process.identity] = self._clock()
        with suppress(NoAgent, OSError):
            if present(process.pid, process.started_ticks, process.uid):
                agent = self._agents[process.identity] = connect(_Whom(process))
                if self._stopped:  # while it connected
                    agent.close()

    def _answers(self, waiting: dict[Agent, Identity]) -> Meters:
        """What they answer in time; a late one answers nothing this time, and its answer is passed over the next."""
        found: dict[Identity, Mapping[str, Any]] = {}
        until_s = self._clock() + _PATIENCE_S
        while waiting and (left_s := until_s - self._clock()) > 0:
            for agent in readable(waiting, left_s):
                identity = waiting[agent]
                try:
                    for reply in agent.read():
                        if isinstance(reply.get("steps"), dict):
                            found[identity] = self._whole(identity, reply)
                            waiting.pop(agent, None)
                        elif "error" in reply:  # an agent of an older gputop, which has no meter
                            waiting.pop(agent, None)
                except AgentLost:
                    waiting.pop(agent, None)
                    self._lose(identity)
        return found

    def _whole(self, identity: Identity, reply: Mapping[str, Any]) -> dict[str, Any]:
        """All that it says, with the slow steps that it has said before."""
        steps, now_s = reply["steps"], time.time()
        if single := single_steps(steps):
            known = {**self._singly.get(identity, {}), **single}
            self._singly = {**self._singly, identity: {number: known[number] for number in sorted(known)[-KEPT_STEPS:]}}
        slow = {one.wall_s: one for one in (*self._slow.get(identity, ()), *slow_steps(steps.get("slow_steps")))}
        kept = [one for when, one in sorted(slow.items()) if 0 <= now_s - when <= _SLOW_S]
        self._slow[identity] = tuple(kept[-_SLOW_KEPT:])
        return {**step_metrics(steps), **noted_of(reply.get("noted")), "slow_steps": self._slow[identity]}

    def _lose(self, identity: Identity) -> None:
        self._agents.pop(identity).close()


def step_metrics(said: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a process from its meter; only that there is one where it has made no step lately."""
    step_s, ago_s = (_number(said.get(name), _LONGEST_S) for name in ("step_s", "ago_s"))
    found: dict[str, Any] = {"metered": said.get("on") is True}
    found |= _counts(said, step_count="count")
    if not step_s or ago_s is None or ago_s > max(_STALE_S, _STALE_STEPS * step_s):
        return found
    found |= {"step_s": step_s, "samples_per_s": _number(said.get("samples_per_s"), 1e12)}
    found |= _counts(said, step_window="window", slow_step_count="slow")
    found |= {f"step_{name}": _number(said.get(name), _LONGEST_S) for name in ("p90_s", "longest_s")}
    shares = {"data_wait_percent": said.get("wait_s"), "optimizer_percent": said.get("optimizer_s")}
    found |= {name: _share(_number(value, _LONGEST_S), step_s) for name, value in shares.items()}
    evaluated_s, window = (_number(said.get(name), 1e9) for name in ("evaluated_s", "window"))
    if evaluated_s is not None and window:
        found["evaluated_percent"] = _share(evaluated_s, evaluated_s + window * step_s)
    return found


def single_steps(said: Mapping[str, Any]) -> dict[int, OneStep]:
    """The newest steps one by one, with their numbers; none where one of them makes no sense."""
    count, rows = said.get("count"), said.get("steps")
    if type(count) is not int or not 0 <= count < _MOST_STEPS or not isinstance(rows, list) or len(rows) > count:
        return {}
    found = {}
    for number, row in enumerate(rows[-KEPT_STEPS:], count - len(rows[-KEPT_STEPS:]) + 1):
        if not _is_row(row, 7):
            return {}
        ended_s = _number(row[0], _LATEST_S)
        took_s, waited_s = (_number(value, _LONGEST_S) for value in row[1:3])
        if ended_s is None or took_s is None or waited_s is None:
            return {}
        found[number] = OneStep(ended_s, took_s, waited_s, bool(row[6]))
    return found


def slow_steps(said: object) -> tuple[SlowStep, ...]:
    """The slow steps of the last half minute that a meter reports."""
    found = []
    for one in said[-_SLOW_KEPT:] if isinstance(said, list) else ():
        if isinstance(one, list) and len(one) == 3 and one[2] in _PHASES:
            when, took_s = _number(one[0], _LATEST_S), _number(one[1], _LONGEST_S)
            if when is not None and took_s is not None:
                found.append(SlowStep(wall_s=when, took_s=took_s, phase=one[2]))
    return tuple(found)


def noted_of(said: object) -> dict[str, Any]:
    """The fields of a process that hold what its program noted."""
    if not isinstance(said, dict):
        return {}
    notes, marks = (value[-_NOTED:] if isinstance(value := said.get(name), list) else [] for name in ("notes", "marks"))
    moments = [[name, when, None, value] for name, when, value in (one for one in marks if _is_row(one, 3))]
    found = [*((one, False) for one in notes), *((one, True) for one in moments)]
    noted = [note for one, moment in found if (note := _noted(one, moment=moment)) is not None]
    noted.sort(key=lambda one: one.wall_s)
    return {"noted": tuple(noted), "non_finite": _noted(said.get("lost"), moment=False)}


def _is_row(said: object, length: int) -> bool:
    return isinstance(said, list) and len(said) == length


def _noted(said: object, *, moment: bool) -> Noted | None:
    if not isinstance(said, list) or len(said) != 4:
        return None
    name, when, step, value = said
    wall_s = _number(when, _LATEST_S)
    if not isinstance(name, str) or wall_s is None or type(value) not in (int, float):
        return None
    finite = isinstance(value, int) or math.isfinite(value)
    return Noted(
        name=clean(name, _LONGEST_NAME),
        wall_s=wall_s,
        value=float(value) if finite and abs(value) <= _LARGEST else None,
        finite=finite,
        step=step if type(step) is int and 0 <= step < _MOST_STEPS else None,
        moment=moment,
    )


def _counts(said: Mapping[str, Any], **names: str) -> dict[str, Any]:
    found = ((field, said.get(name)) for field, name in names.items())
    return {field: count for field, count in found if type(count) is int and 0 <= count < _MOST_STEPS}


def _share(seconds: float | None, of_s: float) -> float | None:
    return None if seconds is None else min(100.0, 100 * seconds / of_s)


def _number(value: object, most: float) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if 0 <= value <= most else None  # NaN is not; an integer may be too large for any float


def late_counts(ranks: Sequence[Numbered]) -> list[dict[str, Any]]:
    """For each rank the fields of its process: how often it was late, of how many steps, or why that is unknown.

    Ranks sum their gradients in each step, so the n-th step of one is the n-th of all, as long as their meters began
    with the same one. Whether they did, the times at which steps end show; where they disagree, nothing is counted.
    """
    common = sorted(set.intersection(*(set(one) for one in ranks)))
    made = [[rank[number] for rank in ranks] for number in common]
    rows = [row for row in made if not any(one.other for one in row)][-COMPARED_STEPS:]
    if len(rows) < _LEAST_STEPS:
        return [{"steps_apart": "too few steps known from all ranks"} for _ in ranks]
    step_s = median(one.took_s for row in rows for one in row)
    ends = [[one.ended_s for one in row] for row in rows]
    if median(max(each) - min(each) for each in ends) > _TOGETHER * step_s:
        return [{"steps_apart": "ranks do not end their steps together"} for _ in ranks]
    late = [_late(row) for row in rows]
    return [{"late_step_count": late.count(place), "common_step_count": len(rows)} for place in range(len(ranks))]


def _late(row: Sequence[OneStep]) -> int | None:
    """The place of the rank for whose data the others waited in this step; None where none was late alone."""
    *_, (second_s, _), (most_s, place) = sorted((one.waited_s, place) for place, one in enumerate(row))
    return place if most_s - second_s >= _LATE * median(one.took_s for one in row) else None
