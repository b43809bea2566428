"""Real processes: each workload and its healthy twin on a fake driver, as the rules see what `gputop record` wrote."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from gputop.diagnose.rules import RULES
from gputop.model import Frame
from tests.score import followed
from tests.score.marks import LOOKED_S, Result, Truth, marked
from tests.score.tools import TOOLS
from tests.score.truths import WELL
from tests.workloads.cases import CASES, Case
from tests.workloads.confine import NotCovered
from tests.workloads.stage import Cast, Performance, Play, perform, staged, watched

PLAIN, TWIN = "as it is", "healthy twin"
LONG_S = 600  # calm cases of at least this are not held up by short ones, nor these by them
Runs = dict[tuple[str, str, str], Result]  # by workload, variant, tool


def names() -> list[str]:
    """The workloads whose rule there is, and one whose advice is followed."""
    return [*(case.name for case in CASES if case.plants in RULES), followed.NAME]


def all_played(wanted: Sequence[str], kept: Path | None = None) -> Runs:
    """One after the other, as each needs the machine for itself; those that do not, at the same time.

    What was recorded into the folder `kept` is judged anew, not played again: that takes hours.
    """
    cases = [case for case in CASES if case.name in wanted]
    calm = [case for case in cases if case.calm]
    together = [[case for case in calm if (case.seconds >= LONG_S) is long] for long in (False, True)]
    groups = [[case] for case in cases if not case.calm] + together
    runs = {key: result for group in groups if group for key, result in _played(group, kept)}
    if followed.NAME in wanted:
        found = _read(kept, followed.NAME) or {(followed.NAME, PLAIN, "gputop"): followed.played()}
        _write(kept, followed.NAME, found)
        runs |= found
    return runs


def _played(cases: Sequence[Case], kept: Path | None) -> Iterator[tuple[tuple[str, str, str], Result]]:
    """Faulty ones and their twins, by tool; nothing of what this machine cannot play."""
    both = [Play(case, healthy) for case in cases for healthy in (False, True)]
    for plays in [both] if len(cases) > 1 else [[play] for play in both]:
        seconds = max(play.case.seconds for play in plays) + LOOKED_S
        try:
            seen = _seen(plays, seconds, kept)
        except NotCovered as why:
            if len(cases) == 1:
                print(f"not covered: {plays[0].case.name}: {why}", flush=True)
            else:  # one of them is not: the others are played without it
                for case in cases:
                    yield from _played([case], kept)
            return
        for play, one in zip(plays, seen, strict=True):
            for tool, result in _judged(play, alone(one, seen)).items():
                print(f"{play.case.name}, {TWIN if play.healthy else PLAIN}, {tool}: {result}", flush=True)
                yield (play.case.name, TWIN if play.healthy else PLAIN, tool), result


def _seen(plays: Sequence[Play], seconds: float, kept: Path | None) -> list[Performance]:
    """What is seen of these plays, or was when they were recorded."""
    if kept is None:
        return perform(*plays, seconds=seconds)
    kept.mkdir(parents=True, exist_ok=True)
    variants = dict.fromkeys(TWIN if play.healthy else PLAIN for play in plays)
    name = ", ".join((*dict.fromkeys(play.case.name.replace("/", "-") for play in plays), *variants))
    file, casts = kept / f"{name}.jsonl.gz", kept / f"{name}.json"
    if not casts.exists():
        file.unlink(missing_ok=True)
        casts.write_text(json.dumps(staged(*plays, seconds=seconds, file=file)))
    return watched(file, [Cast(*cast) for cast in json.loads(casts.read_text())])


def _judged(play: Play, frames: Sequence[tuple[float, Frame]]) -> dict[str, Result]:
    case = play.case
    # what must not be said of the fault may be what is so of its twin: that it is well
    never = tuple({*case.must_not, case.plants} - {WELL}) if play.healthy else case.must_not
    rule = None if play.healthy else case.plants
    truth = Truth(rule=rule, well=play.healthy, due_s=float(case.seconds), never=never)
    return {tool: marked(list(judge(iter(frames))), truth) for tool, judge in TOOLS.items()}


def alone(one: Performance, played: Sequence[Performance]) -> list[tuple[float, Frame]]:
    """Its seconds and frames, as if nothing else had been played at the same time."""
    others = {pid for other in played if other is not one for pid in other.roots}
    return [(update.frame.wall_s - one.since_s, _without(others, update.frame, one.gpus)) for update in one.updates]


def _without(others: set[int], frame: Frame, gpus: Collection[str]) -> Frame:
    """A machine on which only one of them plays."""
    parents = {process.pid: process.parent_pid for process in frame.processes}

    def theirs(pid: int | None) -> bool:
        while pid is not None and pid not in others:
            pid = parents.get(pid)
        return pid is not None

    stay = tuple(process for process in frame.processes if not theirs(process.pid))
    known = {process.identity for process in stay}
    return replace(
        frame,
        gpus=tuple(gpu for gpu in frame.gpus if gpu.index in gpus),
        processes=stay,
        jobs=tuple(job for job in frame.jobs if known & {*job.ranks, *job.members}),
    )


def _file(kept: Path, name: str) -> Path:
    return kept / f"{name.replace('/', '-')}.json"


def _read(kept: Path | None, name: str) -> Runs:
    if kept is None or not _file(kept, name).exists():
        return {}
    return {
        (name, variant, tool): Result(**{**result, "misled": tuple(result["misled"])})
        for variant, tool, result in json.loads(_file(kept, name).read_text())
    }


def _write(kept: Path | None, name: str, runs: Runs) -> None:
    if kept and runs:
        kept.mkdir(parents=True, exist_ok=True)
        rows = [(variant, tool, asdict(result)) for (_, variant, tool), result in runs.items()]
        _file(kept, name).write_text(json.dumps(rows))
