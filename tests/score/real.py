"""Real processes: each workload and its healthy twin on a fake driver, as the rules see what `gputop record` wrote."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

from gputop.diagnose.rules import RULES
from gputop.model import Frame, Process, Role
from tests.score import followed
from tests.score.asked import otherwise
from tests.score.disturbed import PLAIN, RECORDED, disturbed
from tests.score.gains import TWIN, Pace
from tests.score.kept import Kept, NotKept
from tests.score.marks import LOOKED_S, Result, Truth, marked
from tests.score.tools import TOOLS, gputop
from tests.score.truths import BESIDE, WELL
from tests.workloads.cases import CASES, Case
from tests.workloads.confine import NotCovered
from tests.workloads.stage import Performance, Play, watched

LONG_S = 600  # calm cases of at least this are not held up by short ones, nor these by them
Key = tuple[str, str, str]  # workload or its twin, variant, tool
Runs = dict[Key, Result]


def names() -> list[str]:
    """The workloads whose rule there is, and one whose advice is followed."""
    return [*(case.name for case in CASES if case.plants in RULES), followed.NAME]


def all_played(
    wanted: Sequence[str], variants: Collection[str], folder: Path | None = None, *, plays: bool = True
) -> Runs:
    """One after the other, as each needs the machine for itself; those that do not, at the same time.

    What was recorded into the folder is judged anew, not played again: that takes hours.
    """
    with tempfile.TemporaryDirectory(prefix="recorded-") as scratch:
        kept = Kept(folder or Path(scratch), plays=plays)
        runs = dict(_all(wanted, [name for name in RECORDED if name in variants], kept))
        if followed.NAME in wanted:
            try:
                runs[followed.NAME, PLAIN.name, "gputop"] = kept.followed()
            except NotKept as why:
                _lacks(followed.NAME, why)
    return runs


def twins(runs: Runs) -> str:
    """How many of the healthy ones were judged."""
    all_of = [name for name in names() if name != followed.NAME]
    judged = {name for name, _, _ in runs}
    return f"Of the {len(all_of)} healthy twins {sum(_title(name, True) in judged for name in all_of)} were judged."


def _all(wanted: Sequence[str], variants: Sequence[str], kept: Kept) -> Iterator[tuple[Key, Result]]:
    cases = [case for case in CASES if case.name in wanted]
    calm = [case for case in cases if case.calm]
    together = [[case for case in calm if (case.seconds >= LONG_S) is long] for long in (False, True)]
    for group in [*([case] for case in cases if not case.calm), *filter(None, together)]:
        both = [Play(case, healthy) for case in group for healthy in (False, True)]
        for plays in [both] if len(group) > 1 else [[play] for play in both]:
            yield from _played(plays, variants, kept)


def _played(plays: Sequence[Play], variants: Sequence[str], kept: Kept) -> Iterator[tuple[Key, Result]]:
    """These at the same time; nothing of what this machine cannot play."""
    try:
        file, casts = kept.recording(plays, max(play.case.seconds for play in plays) + LOOKED_S)
    except (NotCovered, NotKept) as why:
        if len(plays) == 1:
            _lacks(_title(plays[0].case.name, plays[0].healthy), why)
        else:  # one of them cannot be: the others are played without it
            for play in plays:
                yield from _played([play], variants, kept)
        return
    seen = watched(file, casts)
    command = otherwise(file, [update.frame for update in seen[0].updates])
    for play, one in zip(plays, seen, strict=True):
        title, frames = _title(play.case.name, play.healthy), alone(one, seen)
        for (variant, tool), result in _judged(play, frames, variants):
            if variant == PLAIN.name:
                print(f"{title}, {tool}: {result}", flush=True)
            asked = (variant, tool) == (PLAIN.name, "gputop")
            yield (title, variant, tool), replace(result, command=command) if asked else result


def _judged(
    play: Play, frames: Sequence[tuple[float, Frame]], variants: Sequence[str]
) -> Iterator[tuple[tuple[str, str], Result]]:
    """By variant and tool: gputop judges all of them, the others what is as it was."""
    truth = truth_of(play.case, play.healthy)
    for name in variants:
        how = RECORDED[name]
        for tool in TOOLS if how is PLAIN else ("gputop",):
            looks = disturbed(frames, how, Random(f"{_title(play.case.name, play.healthy)} {how.seed or name}"))
            pace = Pace(truth)
            said = gputop(looks, how.limits, pace.take) if tool == "gputop" else TOOLS[tool](looks)
            yield (name, tool), pace.told(marked(list(said), truth))


def truth_of(case: Case, healthy: bool) -> Truth:
    """What is so of a workload, or of its twin."""
    # what must not be said of the fault may be what is so of its twin: that it is well
    never = tuple({*case.must_not, case.plants} - {WELL}) if healthy else case.must_not
    rule = None if healthy else case.plants
    return Truth(rule=rule, well=healthy, beside=rule in BESIDE, due_s=float(case.seconds), never=never)


def _title(name: str, healthy: bool) -> str:
    return f"{name}, {TWIN}" if healthy else name


def _lacks(title: str, why: Exception) -> None:
    print(f"not {'played' if isinstance(why, NotCovered) else 'judged'}: {title}: {why}", flush=True)


def alone(one: Performance, played: Sequence[Performance]) -> list[tuple[float, Frame]]:
    """Its seconds and frames, as if nothing else had been played or trained at the same time."""
    others = {pid for other in played if other is not one for pid in other.roots}
    return [(update.frame.wall_s - one.since_s, _only(one, others, update.frame)) for update in one.updates]


def _only(one: Performance, others: Collection[int], frame: Frame) -> Frame:
    """A machine on which only this plays: whatever else computes on it stays, trainings do not."""
    parents = {process.pid: process.parent_pid for process in frame.processes}

    def below(pid: int | None, roots: Collection[int]) -> bool:
        while pid is not None and pid not in roots:
            pid = parents.get(pid)
        return pid is not None

    def stays(process: Process) -> bool:
        if process.role in (Role.TRAINER, Role.LOADER):
            return below(process.pid, one.roots)
        return not below(process.pid, others)

    stay = tuple(process for process in frame.processes if stays(process))
    known = {process.identity for process in stay}
    return replace(
        frame,
        gpus=tuple(gpu for gpu in frame.gpus if gpu.index in one.gpus),
        processes=stay,
        jobs=tuple(job for job in frame.jobs if known & {*job.ranks, *job.members}),
    )
