"""Jobs that stand still in a collective, and healthy ones that look nearly the same from one machine."""

from __future__ import annotations

from typing import Any

import pytest

from gputop.diagnose import Finding
from tests.judged import after, found, refused, scenario
from tests.teams import lines, of, team
from tests.test_rules_ranks_wait import ASLEEP, IDLE, SPINS

STUCK = {"state": "D", "blocked_percent": 100.0, "cpu_percent": 5.0, "write_chars_per_s": 0.0}
CALM = {"write_chars_per_s": 100.0}
LONG_S, VERY_LONG_S = 190, 660


def stands(late: dict[str, Any] | None, seconds: int = LONG_S, **more: Any) -> Finding:
    """What is said where rank 1 does no more than this; None: it waits, too."""
    gpu, trainer = (of({1: IDLE}, SPINS), of({1: late}, CALM)) if late else (of({}, SPINS), of({}, CALM))
    finding = found(after(team(gpu, trainer, **{"ranks": 2} | more), seconds), "collective-wait")
    assert finding is not None
    return finding


@pytest.mark.parametrize(
    ("late", "seconds", "severity"),
    [
        (STUCK, LONG_S, "crit"),
        (STUCK, 130, "warn"),
        (ASLEEP | {"state": "S"}, LONG_S, "warn"),  # for a server that writes texts, perhaps
        (ASLEEP, LONG_S, "warn"),
        (ASLEEP | {"state": "S"}, VERY_LONG_S, "crit"),
        (ASLEEP | {"write_chars_per_s": 30e3}, VERY_LONG_S, "warn"),  # it writes
        (STUCK | {"write_chars_per_s": 30e3}, LONG_S, "warn"),
        (STUCK | {"read_bytes_per_s": 30e6}, LONG_S, "warn"),  # a file that it has mapped
        ({"cpu_percent": 90.0, "write_chars_per_s": 0.0}, VERY_LONG_S, "warn"),  # it computes on the CPU
        (STUCK | refused("write_chars_per_s"), LONG_S, "warn"),  # nobody knows whether it writes
    ],
)
def test_a_hang_is_when_nothing_moves_for_minutes(late: dict[str, Any], seconds: int, severity: str) -> None:
    assert stands(late, seconds).severity == severity


@pytest.mark.parametrize(
    ("host", "severity"),
    [
        ({"write_bytes_per_s": 1.2e9}, "warn"),  # the page cache goes to the disk: fsync, or close over NFS
        ({"send_bytes_per_s": 110e6}, "warn"),
        ({"receive_bytes_per_s": 25e6}, "warn"),
        ({"write_bytes_per_s": 14e6, "send_bytes_per_s": 10e6, "receive_bytes_per_s": 5e6}, "crit"),  # of others
    ],
)
def test_who_waits_for_a_checkpoint_to_be_on_disk_does_not_hang(host: dict[str, Any], severity: str) -> None:
    finding = stands(STUCK, host=host)
    assert finding.severity == severity
    told = "the machine writes 1200 MB/s meanwhile: a checkpoint?" in lines(finding)
    assert told == (host.get("write_bytes_per_s") == 1.2e9)


def test_a_rank_on_another_machine_may_evaluate_or_save() -> None:
    finding = stands(None, VERY_LONG_S, world=4)
    assert finding.severity == "warn"
    assert finding.headline == "keeps 2 ranks waiting in a collective for a rank on another machine"
    assert finding.steps[0].text == "look there: a rank on another machine may evaluate, save, or hang"
    assert lines(finding)[-1].startswith("nobody here has read, written or computed for ")
    assert not any(step.destroys for step in finding.steps)


@pytest.mark.parametrize(
    ("late", "world", "severity"),
    [(STUCK, 4, "warn"), (STUCK, None, "crit"), (None, None, "warn"), (None, 2, "crit")],
)
def test_who_does_not_know_of_ranks_elsewhere_is_not_sure(
    late: dict[str, Any] | None, world: int | None, severity: str
) -> None:
    assert stands(late, world=world).severity == severity


def test_nobody_is_told_to_end_a_job_before_its_stack_was_seen() -> None:
    first, *_, last = stands(STUCK).steps
    assert first.action == "stack"
    assert last.destroys
    assert last.text.startswith("end the job only if its stack does not change for minutes")


def test_a_hang_comes_before_everything_else() -> None:
    _, said = scenario("collective-wait-hang")[-1]
    told = said.findings[0]
    assert (told.rule, told.primary, told.state) == ("collective-wait", True, "hang")
    assert told.headline == "stands still: 3 of 4 ranks wait in a collective for rank 3 (GPU 3)"
    assert "rank 3 (GPU 3) is blocked in the kernel (state D)" in lines(told)
