"""Host memory that a program takes and keeps: the rule fires, just does not, and abstains."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gputop.model import Cgroup, Frame
from tests.rule_cases import Machine, found, hours, refused, silent

GIB, MIB = 2**30, 2**20


def grows(
    mib_per_s: float, left_gib: float = 200.0, loaders: int = 0, mapped: bool = False, read: float = 0.0
) -> Machine:
    """A trainer, or its loaders, whose host memory grows."""

    def pss(t: float) -> int:
        return int(8 * GIB + mib_per_s * MIB * t / max(1, loaders))

    def left(t: float) -> int:
        return int(left_gib * GIB - (0 if mapped else mib_per_s * MIB * t))

    host = {"memory_total_bytes": 256 * GIB, "memory_available_bytes": left}
    reads = {"pss_bytes": pss, "read_chars_per_s": read * MIB}
    who = {"loader": reads} if loaders else {"trainer": reads}
    return Machine(host=host, loaders=loaders, **who)


@pytest.mark.parametrize(
    ("machine", "severity"),
    [
        (grows(40), "warn"),
        (grows(40, left_gib=60), "crit"),
        (grows(6), "info"),  # more than a hundredth of the machine in ten minutes, and hours left
        (grows(4), None),
        (grows(4, left_gib=60), "warn"),
        (grows(40, left_gib=60, read=40), "warn"),  # it may keep what it reads, which ends
        (grows(40, left_gib=60, read=22), "warn"),
        (grows(40, left_gib=60, read=18), "crit"),
        (grows(40, left_gib=60, read=390), "warn"),
        (grows(40, left_gib=60, read=410), "crit"),  # ten times as much: it keeps other things
        (grows(40, mapped=True), None),  # pages of files count as a process', and can be had back
    ],
)
def test_host_memory_leak(machine: Machine, severity: str | None) -> None:
    finding = found(hours(machine.frame, 18), "host-memory-leak")
    assert (finding and finding.severity) == severity


def test_host_memory_leak_tells_loaders_from_the_program() -> None:
    told = found(hours(grows(40, loaders=4).frame, 18), "host-memory-leak")
    assert told is not None
    assert told.headline == "out of host memory in about 1 h, growing by 141G per hour in its 4 workers"
    assert "NumPy array" in told.steps[0].text
    own = found(hours(grows(40).frame, 18), "host-memory-leak")
    assert own is not None
    assert own.steps[0].command == "losses.append(loss.item())"


@pytest.mark.parametrize("loaders", [0, 4])
def test_host_memory_leak_asks_whether_data_are_kept(loaders: int) -> None:
    told = found(
        hours(grows(40, left_gib=60, loaders=loaders, read=60 / max(1, loaders)).frame, 18), "host-memory-leak"
    )
    assert told is not None
    assert told.severity == "warn"
    assert told.headline.endswith("; may be caching its data")
    assert "it read 52.7G in that time" in [item.text for item in told.evidence]
    assert "the rest fits the 18" in told.steps[0].text
    assert len(told.steps) == 4


def test_host_memory_leak_goes_by_the_limit_of_the_job() -> None:
    machine = grows(4, left_gib=200)
    machine.trainer["cgroup"] = "/job"

    def frame(t: float) -> Frame:
        taken = int(8 * GIB + 4 * MIB * t)
        group = Cgroup(path="/job", memory_limit_bytes=16 * GIB, anonymous_bytes=taken, shared_bytes=0)
        return replace(machine.frame(t), cgroups=(group,))

    told = found(hours(frame, 18), "host-memory-leak")
    assert told is not None
    assert told.severity == "crit"
    assert "of its memory limit left" in told.evidence[1].text


def test_host_memory_leak_abstains_where_memory_may_not_be_read() -> None:
    assert silent(Machine(trainer=refused("pss_bytes")).verdict(5), "host-memory-leak") is not None
