"""Every rule on each class of devices: a healthy job on a busy card is not blamed for what its driver cannot say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest

from gputop.diagnose import Finding
from gputop.diagnose.engine import Verdict
from gputop.model import Frame, Host, Identity, Job, Process
from tests import device_profiles
from tests.device_profiles import each, later
from tests.fakenvml.profiles import PROFILES
from tests.rule_cases import HOST, TRAINER, judged

SECONDS = 150
# the others tell neither how hard the units work nor how much of its power limit a card draws, or draw far less of it
FULLY_JUDGED = {"rtx4090-550", "rtx5090-610", "h100-550", "h100-580", "h200-580", "cc-h200"}
OF_THE_JOB = {"cpu-slow", "blind-spots", "no-cuda-context"}  # for want of what is not a GPU's
State = Callable[[str, float], Frame]


def busy(name: str, t: float) -> Frame:
    """A healthy job of a rank on each card; where the driver lists no process nobody knows that it is on one."""
    cards = tuple(later(gpu, t) for gpu in device_profiles.gpus(name))
    shares, count = device_profiles.shares(name), PROFILES[name].gpus
    ranks = tuple(
        Process(**{"pid": 100 + rank, "started_ticks": 1, **TRAINER, "gpus": shares.get(rank, ())})
        for rank in range(count)
    )
    job = Job(key="j", name="j", ranks=tuple(Identity(one.pid, 1) for one in ranks))
    host = Host(**{**HOST, "cpus_total": 16 * count, "cpus_allowed": 16.0 * count})
    now = device_profiles.frame(cards, t)
    return replace(now, host=host, processes=ranks, jobs=(job,))


def idle(name: str, t: float) -> Frame:
    """The same machine while nothing runs."""
    cards = tuple(later(gpu, t) for gpu in device_profiles.gpus(name, idle=True))
    return replace(device_profiles.frame(cards, t), host=Host(**HOST))


@cache
def verdicts(name: str, state: State) -> tuple[tuple[Frame, Verdict], ...]:
    """What is said of a machine of this class at each look."""
    return tuple(judged(state(name, float(t)) for t in range(0, SECONDS, 2)))


@pytest.mark.parametrize("state", [busy, idle])
@each
def test_no_rule_blames_a_healthy_machine(name: str, state: State) -> None:
    alarms: dict[str, Finding] = {}
    for _, said in verdicts(name, state):
        alarms |= {one.rule: one for one in said.findings if one.severity in ("warn", "crit")}
    assert not alarms, {rule: (one.headline, [e.text for e in one.evidence]) for rule, one in alarms.items()}


@each
def test_who_is_busy_is_said_to_be_where_there_is_enough_to_go_by(name: str) -> None:
    last, said = verdicts(name, busy)[-1]
    assert ("gpu-bound-healthy" in {one.rule for one in said.findings}) == (name in FULLY_JUDGED)
    unknown = {one.metric for gpu in last.gpus for one in gpu.missing}
    for one in said.abstained:
        assert {missing.metric for missing in one.missing} & unknown or one.rule in OF_THE_JOB, one
