"""Experiments in the same trouble are told together, with the advice once; what differs stays apart."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gputop import finding_text
from gputop.diagnose import Finding
from gputop.export.diagnosis import subject
from gputop.model import Frame, Identity
from tests.diagnose.test_rules_cpu import HUNGRY
from tests.rule_cases import Machine, after

LOADING: dict[str, Any] = {"read_chars_per_s": 40e6, "cpu_percent": 100.0}


def sweep(t: float, *, users: tuple[str, ...] = ("ada",) * 3, loaders: tuple[int, ...] = (2, 2, 2)) -> Frame:
    """Experiments on a GPU each, with so many loaders that are too few."""
    frames = []
    for place, (user, count) in enumerate(zip(users, loaders, strict=True)):
        busy = {"busy_percent": 40.0 + 5 * place}
        trainer = {"main_thread_percent": 10.0, "cpu_percent": 110.0, "user": user}
        loader = {"cpu_percent": 98.0, "main_thread_percent": 98.0, "user": user}
        one = Machine(gpu=HUNGRY | busy, trainer=trainer, loader=loader, loaders=count).frame(t)
        moved = {process.pid: process.pid + 1000 * place for process in one.processes}
        processes = tuple(
            replace(
                process,
                pid=moved[process.pid],
                parent_pid=moved.get(process.parent_pid, 1),
                job=f"j{place}",
                gpus=tuple(replace(share, uuid=f"G{place}") for share in process.gpus),
            )
            for process in one.processes
        )
        gpus = tuple(replace(gpu, uuid=f"G{place}", index=str(place)) for gpu in one.gpus)
        rank = Identity(moved[100], 1)
        jobs = tuple(replace(job, key=f"j{place}", name=f"lr{place}", user=user, ranks=(rank,)) for job in one.jobs)
        frames.append(replace(one, processes=processes, gpus=gpus, jobs=jobs))
    return replace(
        frames[0],
        gpus=sum((one.gpus for one in frames), ()),
        processes=sum((one.processes for one in frames), ()),
        jobs=sum((one.jobs for one in frames), ()),
    )


def starving(**how: Any) -> list[Finding]:
    said = after(lambda t: sweep(t, **how), 200)
    return [one for one in said.findings if one.rule == "starved-cpu-idle"]


def test_the_same_in_several_experiments_is_one_finding() -> None:
    (one,) = starving()
    assert one.primary
    assert one.subject.jobs == ("j0", "j1", "j2")
    assert [identity.pid for identity in one.subject.processes] == [100, 1100, 2100]
    assert one.subject.gpus == ("G0", "G1", "G2")
    assert one.evidence[-1].text == "found in 3 jobs: lr0, lr1, lr2"
    assert one.lost_share == pytest.approx(0.55)
    frame = sweep(0.0)
    assert finding_text.subject_name(one.subject, frame) == "each of 3 jobs"
    assert subject(one.subject, frame)["jobs"] == ["j0", "j1", "j2"]


@pytest.mark.parametrize("how", [{"users": ("ada", "ben", "eve")}, {"loaders": (1, 2, 3)}])
def test_what_is_anothers_or_needs_another_number_stays_apart(how: dict[str, Any]) -> None:
    assert len(starving(**how)) == 3
