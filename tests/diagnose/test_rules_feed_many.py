"""More loaders than CPUs: parts of a CPU, and as many ranks or jobs as leave nobody a loader less."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gputop.diagnose import Step
from gputop.model import Frame, Pressure
from tests.diagnose.test_rules_cpu_neighbour import ranks
from tests.diagnose.test_rules_feed import few
from tests.diagnose.test_rules_feed_full import sweep
from tests.rule_cases import Machine, after, found


@pytest.mark.parametrize(
    ("allowed", "loaders", "headline"),
    [
        (0.5, 1, None),
        (0.5, 2, "too many workers, 2 on 0.5 CPUs"),
        (1.0, 2, "too many workers, 2 on 1 CPU"),
        (1.5, 2, None),
        (3.5, 4, None),
        (3.5, 5, "too many workers, 5 on 3.5 CPUs"),
    ],
)
def test_what_a_quota_leaves_of_a_cpu_is_room_for_a_loader(allowed: float, loaders: int, headline: str | None) -> None:
    trainer = {"allowed_cpus": allowed, "affinity": "0-15"}
    machine = Machine(trainer=trainer, loader={"cpu_percent": 40.0}, loaders=loaders)
    told = found(machine.verdict(90), "workers-oversized")
    assert (told and told.headline) == headline
    if told:
        few = "1 allowed CPU" if allowed == 1 else f"{allowed} allowed CPUs"
        assert told.evidence[0].text == f"{loaders} workers on {few}"
        assert told.evidence[-1].text == f"PyTorch detects 16 CPUs and does not warn: the quota allows {allowed:g}"


@pytest.mark.parametrize(
    ("loaders", "first", "command"),
    [
        (1, "Use more CPUs or fewer ranks: with 1 worker each there are more workers than CPUs", None),
        (2, "Lower num_workers to 1: no more workers than CPUs", "DataLoader(..., num_workers=1)"),
    ],
)
def test_loaders_that_cannot_be_fewer_are_of_too_many_ranks(loaders: int, first: str, command: str | None) -> None:
    trainer = {"allowed_cpus": 6.0, "affinity": "0-15", "cgroup": "/c"}
    machine = Machine(gpu={"busy_percent": 50.0}, trainer=trainer, loader={"cpu_percent": 40.0}, loaders=loaders)
    told = found(after(ranks(machine.frame, 8), 90), "workers-oversized")
    assert told is not None
    assert told.headline == f"too many workers, {8 * loaders} on 6 CPUs"
    assert told.steps[0] == Step(text=first, command=command)
    assert len(told.steps) == (2 if command else 1)
    whose = "its worker" if loaders == 1 else "each of its 2 workers"
    each = "1 worker" if loaders == 1 else "2 workers"
    assert [item.text for item in told.evidence[:2]] == [
        f"8 ranks with {each} each, {8 * loaders} workers on 6 allowed CPUs",
        f"{whose} uses 40 % of a core",
    ]


@pytest.mark.parametrize(("percent", "told"), [(0.2, False), (40.0, True)])
def test_workers_kept_for_the_next_validation_are_not_too_many(percent: float, told: bool) -> None:
    """As persistent_workers=True keeps them: eight that work on eight CPUs, and four that wait for their turn."""
    machine = Machine(
        gpu={"busy_percent": 50.0}, trainer={"allowed_cpus": 8.0}, loader={"cpu_percent": 60.0}, loaders=8
    )

    def frame(t: float) -> Frame:
        one = machine.frame(t)
        kept = [replace(each, pid=each.pid + 100, cpu_percent=percent) for each in one.processes[1:5]]
        return replace(one, processes=(*one.processes, *kept))

    assert (found(after(frame, 90), "workers-oversized") is not None) == told


@pytest.mark.parametrize(
    ("jobs", "loaders", "command"), [(2, 9, "DataLoader(..., num_workers=7)"), (18, 1, None), (16, 1, "nothing")]
)
def test_all_jobs_share_the_cpus_unless_that_leaves_them_what_they_have(
    jobs: int, loaders: int, command: str | None
) -> None:
    told = found(after(sweep(jobs, loaders, cpu_percent=60.0), 90), "workers-oversized")
    assert (told.steps[0].command if told else "nothing") == command


@pytest.mark.parametrize(
    ("loader", "host", "fires"),
    [
        ({"cpu_percent": 70.0, "blocked_percent": 25.0}, {}, True),  # decodes what it has just read
        ({"cpu_percent": 50.0, "blocked_percent": 45.0}, {}, True),
        ({"cpu_percent": 70.0, "blocked_percent": 12.0}, {}, False),  # a fifth of its time it has nothing to do
        ({"cpu_percent": 30.0, "blocked_percent": 65.0}, {}, False),  # storage, more than anything
        ({"cpu_percent": 60.0, "blocked_percent": 35.0}, {"io_pressure": Pressure(some_percent=50.0)}, False),
    ],
)
def test_loaders_that_compute_and_wait_by_turns_are_too_few(
    loader: dict[str, Any], host: dict[str, Any], fires: bool
) -> None:
    """Each alone is below what a rule looks for; added up, they never rest."""
    finding = found(few(loader=loader, host=host).verdict(), "starved-cpu-idle")
    assert (finding is not None) == fires
    if finding:
        assert "= 95 % of its time" in finding.evidence[1].text
        assert "num_workers=" in (finding.steps[0].command or "")
