"""Rules while a part of the host, or all that is known of processes, does not answer: silence, no other cause."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest

from gputop.collect.host.reader import COMPUTED, READERS, unknown
from gputop.collect.proc.lane import silenced
from gputop.demo.scenarios import SCENARIOS
from gputop.demo.source import Demo
from gputop.model import Frame
from tests.rule_cases import EACH_S, judged

HANGS_S, UNTIL_S = 90.0, 150.0
PARTS = {
    reader.__name__: fields for reader in READERS if (fields := [name for name in reader.fills if "." not in name])
}
Change = Callable[[Frame], Frame]


def part(name: str) -> Change:
    """The frame once this reader of the host does not answer."""

    def without(frame: Frame) -> Frame:
        host = replace(frame.host, **{field: unknown(getattr(frame.host, field)) for field in PARTS[name]})
        return replace(frame, host=replace(host, **dict.fromkeys(COMPUTED)) if name in ("Disks", "Mounts") else host)

    return without


def processes(frame: Frame) -> Frame:
    """The frame once the processes do not answer."""
    return replace(frame, processes=tuple(map(silenced, frame.processes)), cgroups=())


@cache
def frames(scenario: str) -> tuple[tuple[float, Frame], ...]:
    """A scenario, by the time since it began."""
    demo = Demo(SCENARIOS[scenario], pace=False, anchor_s=1_795_185_127.0, at_s=0.0)
    return tuple((float(t), demo.frame(float(t))) for t in range(0, int(UNTIL_S), EACH_S))


def told(scenario: str, change: Change) -> set[str]:
    """The rules that warn of something while it hangs."""
    played = frames(scenario)
    said = judged(change(frame) if t >= HANGS_S else frame for t, frame in played)
    return {
        one.rule
        for (t, _), (_, verdict) in zip(played, said, strict=True)
        for one in verdict.findings
        if t >= HANGS_S and one.severity != "info"
    }


@pytest.mark.parametrize("name", PARTS)
def test_a_healthy_run_stays_silent_while_a_part_of_the_host_does_not_answer(name: str) -> None:
    assert told("healthy", part(name)) == set()


def test_a_healthy_run_stays_silent_while_the_processes_do_not_answer() -> None:
    assert told("healthy", processes) == set()
