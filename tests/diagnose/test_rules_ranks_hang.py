"""Jobs that stand still in a collective, and healthy ones that look nearly the same from one machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from gputop.diagnose import Finding
from gputop.model import Frame, GpuShare, Identity, Job, Mount, Process, Role
from tests.diagnose.test_rules_ranks_wait import ASLEEP, IDLE, NO_GPM, SPINS
from tests.rank_teams import lines, of, team
from tests.rule_cases import after, found, judged, refused, scenario

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
        (STUCK, 100, "warn"),
        (ASLEEP | {"state": "S"}, LONG_S, "crit"),
        (ASLEEP | {"cpu_percent": 30.0}, LONG_S, "warn"),  # it may do something still
        (ASLEEP | {"cpu_percent": 30.0}, VERY_LONG_S, "crit"),
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
    told = "host writes 1200 MB/s, possibly a checkpoint" in lines(finding)
    assert told == (host.get("write_bytes_per_s") == 1.2e9)


def test_a_rank_on_another_machine_may_evaluate_or_save() -> None:
    finding = stands(None, VERY_LONG_S, world=4)
    assert finding.severity == "warn"
    assert finding.headline == "collective wait for a rank on another machine, 2 of 2 ranks wait"
    assert finding.steps[0].text == "Check the other machines: a rank there may evaluate, save, or hang"
    assert lines(finding)[-1].startswith("no I/O or compute on any rank here for ")
    assert not any(step.destroys for step in finding.steps)


@pytest.mark.parametrize(
    ("late", "world", "severity"),
    [(STUCK, 4, "warn"), (STUCK, None, "crit"), (None, None, "warn"), (None, 2, "crit")],
)
def test_who_does_not_know_of_ranks_elsewhere_is_not_sure(
    late: dict[str, Any] | None, world: int | None, severity: str
) -> None:
    assert stands(late, world=world).severity == severity


def test_the_gpu_of_the_rank_that_all_wait_for_is_not_unused() -> None:
    """It stands still for what all of them stand still for: one finding, not two."""
    said = after(team(of({1: IDLE}, SPINS), of({1: STUCK}, CALM), ranks=2), 900)
    assert found(said, "collective-wait") is not None
    assert found(said, "gpu-unused-in-job") is None


def test_nobody_is_told_to_end_a_job_before_its_stack_was_seen() -> None:
    first, *_, last = stands(STUCK).steps
    assert first.action == "stack"
    assert last.destroys
    assert last.text.startswith("If the stack does not change for minutes")


def test_a_hang_comes_before_everything_else() -> None:
    _, said = scenario("collective-wait-hang")[-1]
    told = said.findings[0]
    assert (told.rule, told.primary, told.state) == ("collective-wait", True, "hang")
    assert told.headline == "hang, 3 of 4 ranks wait in a collective for rank 3 (GPU 3)"
    assert "rank 3 (GPU 3): blocked in a system call (state D, usually storage)" in lines(told)


WORKED_S = 120
_WORKS = {"nvlink_tx_bytes_per_s": 38e9}
_RESTS = SPINS | {"nvlink_tx_bytes_per_s": 0.0}


def falls(late: dict[str, Any] | None, gpu: dict[str, Any] | None = None, **then: Any) -> Callable[[float], Frame]:
    """Four ranks that train with steps of uneven length and read their data; then rank 1 does no more than this."""
    dials, random = gpu or {}, Random(7)
    before = team(of({}, _WORKS | dials), of({}, {"read_chars_per_s": 3e6}))
    idle, asleep = ({1: IDLE | dials}, {1: late}) if late else ({}, {})
    after = team(of(idle, _RESTS | dials), of(asleep, CALM | then))

    def frame(t: float) -> Frame:
        if t >= WORKED_S:
            return after(t)
        one = before(t)
        cards = (replace(card, busy_percent=random.uniform(85, 100), power_watts=580.0) for card in one.gpus)
        return replace(one, gpus=tuple(cards))

    return frame


def over_time(
    frame: Callable[[float], Frame], seconds: int = 160, each_s: int = 2
) -> list[tuple[float, Finding | None]]:
    """What is said at each look, and how long after rank 1 stopped."""
    frames = (frame(float(t)) for t in range(0, WORKED_S + seconds, each_s))
    return [(one.mono_s - 1000 - WORKED_S, found(said, "collective-wait")) for one, said in judged(frames)]


@pytest.mark.parametrize("late", [ASLEEP, STUCK, None], ids=["asleep", "stuck", "all spin"])
@pytest.mark.parametrize("gpu", [{}, NO_GPM], ids=["counters", "power alone"])
@pytest.mark.parametrize("each_s", [1, 2, 5])
def test_a_hang_is_critical_within_150_s_of_when_movement_stopped(
    late: dict[str, Any] | None, gpu: dict[str, Any], each_s: int
) -> None:
    seen = over_time(falls(late, gpu), each_s=each_s)
    first = next(after_s for after_s, one in seen if one is not None)
    assert 0 < first <= 60
    critical = [after_s for after_s, one in seen if one is not None and one.severity == "crit"]
    assert 100 <= min(critical) <= 130
    for after_s, one in seen:
        assert one is None or one.since_s == pytest.approx(after_s, abs=each_s + 2)


def test_it_is_seen_from_its_first_moment_though_nobody_saw_the_job_at_work() -> None:
    """A small job draws as little; that one rank does nothing at all tells them apart."""
    dials = dict.fromkeys(("tensor_percent", "dram_percent", "sm_active_percent", "fp32_percent"))
    hangs = team(of({1: IDLE | dials}, _RESTS | dials), of({1: ASLEEP}, CALM))
    finding = found(after(hangs, 150), "collective-wait")
    assert finding is not None
    assert finding.severity == "crit"
    assert finding.since_s == pytest.approx(150, abs=20)
    works = team(of({}, _RESTS | dials), of({}, CALM))
    assert found(after(works, 150), "collective-wait") is None


def test_a_heartbeat_is_no_movement_and_does_not_set_the_clock_back() -> None:
    """A logger writes 150 KB every 15 s from a thread of its own."""
    base = falls(ASLEEP)

    def frame(t: float) -> Frame:
        one = base(t)
        if t < WORKED_S or t % 15:
            return one
        first, *others = one.processes
        return replace(one, processes=(replace(first, write_chars_per_s=150e3), *others))

    after_s, last = over_time(frame, each_s=1)[-1]
    assert last is not None
    assert last.severity == "crit"
    assert last.since_s == pytest.approx(after_s, abs=5)


def test_since_counts_anew_from_the_last_movement() -> None:
    """Rank 1 evaluates on its CPU for two minutes, and then falls asleep."""
    busy, stops = falls({"cpu_percent": 100.0}), falls(ASLEEP)
    seen = over_time(lambda t: busy(t) if t < WORKED_S + 120 else stops(t), 280)
    waits = [one for after_s, one in seen if 60 < after_s < 120]
    assert all(one is not None and one.severity == "warn" for one in waits)
    assert waits[-1] is not None
    assert waits[-1].since_s == pytest.approx(118, abs=5)
    critical = [(after_s, one) for after_s, one in seen if one is not None and one.severity == "crit"]
    first_s, first = critical[0]
    assert 220 <= first_s <= 250
    assert first.since_s == pytest.approx(first_s - 120, abs=5)
    assert all(later - earlier == 2 for (earlier, _), (later, _) in pairwise(critical))


@pytest.mark.parametrize(
    "late",
    [
        {"cpu_percent": 100.0},  # it evaluates, or decodes
        ASLEEP | {"write_chars_per_s": 80e6},  # it saves
        ASLEEP | {"read_chars_per_s": 5e6},  # its data come slowly
        ASLEEP | {"read_bytes_per_s": 5e6},  # from files that it has mapped
    ],
)
def test_while_something_of_the_late_rank_moves_nothing_hangs(late: dict[str, Any]) -> None:
    assert all(one is None or one.severity == "warn" for _, one in over_time(falls(late), 240))


def test_who_is_blocked_while_a_server_takes_what_it_writes_does_not_hang() -> None:
    """A close over a slow network: the kernel empties the page cache at 5 MB/s."""
    mount = Mount(path="/ckpt", device="nas:/ckpt", file_system="nfs4", network=True, write_bytes_per_s=5e6)
    gpu, trainer = of({1: IDLE}, SPINS), of({1: STUCK}, CALM)
    assert stands(STUCK, host={"mounts": (replace(mount, write_bytes_per_s=0.0),)}).severity == "crit"
    finding = found(after(team(gpu, trainer, ranks=2, host={"mounts": (mount,)}), LONG_S), "collective-wait")
    assert finding is not None
    assert finding.severity == "warn"


@pytest.mark.parametrize(("busy", "severity"), [(70.0, "warn"), (0.0, "crit")])
def test_a_rank_may_sleep_while_a_server_on_this_machine_writes_texts(busy: float, severity: str) -> None:
    base = team(of({1: IDLE}, SPINS), of({1: ASLEEP}, CALM), ranks=2)

    def frame(t: float) -> Frame:
        one = base(t)
        card = replace(one.gpus[0], uuid="S", index="8", busy_percent=busy)
        server = Process(
            pid=900, started_ticks=1, name="python", command=("python", "-m", "vllm.entrypoints.api_server"),
            role=Role.TRAINER, job="s", age_s=5000.0, gpus=(GpuShare(uuid="S", vram_bytes=2**33),), cpu_percent=50.0,
        )  # fmt: skip
        job = Job(key="s", name="s", ranks=(Identity(900, 1),))
        return replace(one, gpus=(*one.gpus, card), processes=(*one.processes, server), jobs=(*one.jobs, job))

    finding = found(after(frame, LONG_S), "collective-wait")
    assert finding is not None
    assert finding.severity == severity
