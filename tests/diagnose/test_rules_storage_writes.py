"""Checkpoints that stop the GPUs, places that are nearly full: each rule fires, just does not, abstains."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gputop.diagnose import Finding
from gputop.diagnose.engine import Verdict
from gputop.model import Cgroup, Disk, Frame, Mount, Process, Role
from tests.rule_cases import Machine, after, found, judged, refused, sampled, seconds, silent

MIB = 2**20
SCRATCH = Mount(path="/scratch", device="/dev/nvme1n1p1", file_system="xfs", free_bytes=2**42, total_bytes=2**44)


def saving(
    every: int = 40, lasts: int = 4, wrote: float = 5e7, between: float = 900.0, also: int = 0, **dials: Any
) -> Machine:
    """GPUs that stop so often, while so much is written a second; `also`: an evaluation so long in each period."""

    def writes(t: float) -> float:
        return wrote if t % every < lasts else between

    def busy(t: float) -> float:
        return 0.0 if t % every < lasts or every / 2 <= t % every < every / 2 + also else 97.0

    trainer = {"write_chars_per_s": writes} | dials.pop("trainer", {})
    return Machine(gpu={"busy_percent": busy}, trainer=trainer, **dials)


@pytest.mark.parametrize(
    ("dials", "severity"),
    [
        ({}, "warn"),
        ({"lasts": 2}, None),
        ({"wrote": 2.4e7}, None),  # 96 MB
        ({"wrote": 2.6e7}, "warn"),
        ({"between": 3e7}, None),  # it writes all the time
        ({"also": 4}, "warn"),  # half of the pauses are something else, as the figures of an evaluation on the CPU
        ({"trainer": {"read_chars_per_s": 4e7}}, None),  # its processes may have read most of it from each other
        (
            {"trainer": {"read_chars_per_s": 4e7, "write_bytes_per_s": lambda t: 3e7 if t % 40 < 4 else 0.0}},
            "warn",
        ),  # but not what is for storage
    ],
)
def test_checkpoint_stall(dials: dict[str, Any], severity: str | None) -> None:
    finding = found(saving(**dials).verdict(150, 1), "checkpoint-stall")
    assert (finding and finding.severity) == severity


def test_checkpoint_stall_counts_what_it_costs() -> None:
    finding = found(saving().verdict(150, 1), "checkpoint-stall")
    assert finding is not None
    assert finding.headline == "checkpoint stalls, 4.0 s every 40 s"
    assert finding.primary
    assert finding.lost_share == pytest.approx(0.1, abs=0.01)
    assert finding.evidence[0].text == "GPU idle 4.0 s per save, 10.0 % of GPU time lost"
    assert finding.evidence[1].text == "191M written per save, 50 MB/s"
    assert finding.steps[0].text == "Save every 7 min instead of every 40 s: costs 1 % of GPU time"


def frequent(
    every_s: float, lasts_s: float, megabytes: float, between: float = 0.0, each_s: float = 1.0, **dials: Any
) -> Machine:
    """Short saves, seen by samples; so much is written in each, at even rate, and so much a second otherwise."""

    def writes(t: float) -> float:
        saving = seconds(lambda at: float(at % every_s > every_s - lasts_s), t, each_s)
        return megabytes * 1e6 / lasts_s * saving + between

    busy = sampled(lambda t: 0.0 if t % every_s > every_s - lasts_s else 97.0, each_s)
    trainer = {"write_chars_per_s": writes} | dials.pop("trainer", {})
    return Machine(gpu=busy | dials.pop("gpu", {}), trainer=trainer, **dials)


@pytest.mark.parametrize("each_s", [1, 2])
@pytest.mark.parametrize(
    ("every_s", "lasts_s", "lost"), [(14.0, 2.5, 0.179), (14.3, 2.2, 0.154), (8.0, 0.8, 0.1), (39.5, 2.9, 0.073)]
)
def test_short_and_frequent_saves_are_found_within_two_minutes(
    every_s: float, lasts_s: float, lost: float, each_s: int
) -> None:
    finding = found(frequent(every_s, lasts_s, 480, each_s=each_s).verdict(120, each_s), "checkpoint-stall")
    assert finding is not None
    assert (finding.severity, finding.primary) == ("warn", True)
    assert finding.lost_share == pytest.approx(lost, abs=0.02)
    assert finding.evidence[1].value == pytest.approx(480e6, rel=0.1)
    assert f"every {every_s:.0f} s" in finding.headline or f"every {int(every_s)} s" in finding.headline


@pytest.mark.parametrize(
    ("megabytes", "between", "busy"),
    [
        (90, 0.0, None),  # too little for a checkpoint
        (250, 60e6, None),  # it writes as fast all the time
        (480, 0.0, lambda t: 97.0),  # beside the training
        (480, 0.0, lambda t: 0.0 if t % 14 > 13.7 else 97.0),  # it stops for a moment only
    ],
)
def test_what_is_no_short_save(megabytes: float, between: float, busy: Callable[[float], float] | None) -> None:
    machine = frequent(14.0, 2.5, megabytes, between, gpu=sampled(busy) if busy else {})
    assert found(machine.verdict(200, 1), "checkpoint-stall") is None


def test_a_short_save_may_be_written_in_the_background_by_another_process() -> None:
    """The copy stops the GPU for 2 s; a child that has left its parent writes for 6 s from then on."""
    machine = Machine(gpu=sampled(lambda t: 0.0 if t % 20 > 18 else 97.0))

    def frame(t: float, parent: int) -> Frame:
        one = machine.frame(t)
        rate = 80e6 * seconds(lambda at: float(at % 20 < 6), t)
        writer = replace(one.processes[0], pid=400, parent_pid=parent, role=Role.OTHER, gpus=(), write_chars_per_s=rate)
        return replace(one, processes=(*one.processes, writer))

    for parent in (100, 1):
        said = after(lambda t, parent=parent: frame(t, parent), 120, 1)  # type: ignore[misc]
        finding = found(said, "checkpoint-stall")
        assert finding is not None
        assert finding.lost_share == pytest.approx(0.1, abs=0.01)
        assert finding.evidence[1].value == pytest.approx(480e6, rel=0.1)


def test_two_saves_are_enough_and_one_is_none() -> None:
    """Minutes apart: the second is told at once, by what they took of the time that was seen."""
    finding = found(saving(300, 24, 5e8).verdict(345, 1), "checkpoint-stall")
    assert finding is not None
    assert finding.severity == "warn"
    assert finding.confidence < 0.8
    assert "not certain yet" in finding.evidence[2].text
    once = Machine(
        gpu={"busy_percent": lambda t: 0.0 if 100 <= t < 120 else 97.0},
        trainer={"write_chars_per_s": lambda t: 5e8 if 100 <= t < 120 else 900.0},
    )
    assert found(once.verdict(200, 1), "checkpoint-stall") is None


def test_two_saves_in_an_hour_cost_little() -> None:
    late = Machine(
        gpu={"busy_percent": lambda t: 0.0 if t in range(1700, 1706) or t in range(1740, 1746) else 97.0},
        trainer={"write_chars_per_s": lambda t: 5e8 if t in range(1700, 1706) or t in range(1740, 1746) else 900.0},
    )
    finding = found(late.verdict(1770, 2), "checkpoint-stall")
    assert finding is None or finding.severity == "info"


def test_pauses_without_rhythm_are_no_checkpoints() -> None:
    starts = (10, 25, 60, 70, 120)

    def stops(t: float) -> bool:
        return any(start <= t < start + 4 for start in starts)

    uneven = Machine(
        gpu={"busy_percent": lambda t: 0.0 if stops(t) else 97.0},
        trainer={"write_chars_per_s": lambda t: 5e7 if stops(t) else 0.0},
    )
    assert found(uneven.verdict(150, 1), "checkpoint-stall") is None


def test_checkpoint_stall_goes_by_the_disks_or_abstains_where_writes_are_hidden() -> None:
    hidden = refused("write_chars_per_s")
    flushed = {"write_bytes_per_s": lambda t: 5e7 if t % 40 < 4 else 1e5}
    finding = found(saving(trainer=hidden, host=flushed).verdict(150, 1), "checkpoint-stall")
    assert finding is not None
    assert finding.confidence == pytest.approx(0.64)
    assert silent(saving(trainer=hidden).verdict(150, 1), "checkpoint-stall") is not None


def shm(used: float | Callable[[float], float], total: float = 64.0, **dials: Any) -> Finding | None:
    """A container of its own, with so many MiB in use."""
    take = used if callable(used) else lambda _: used
    own = {
        "container": "abc",
        "cgroup": "/c",
        "shm_total_bytes": int(total * MIB),
        "shm_used_bytes": lambda t: int(take(t) * MIB),
    }
    host = {"shm_total_bytes": 2**37, "shm_used_bytes": 0, "memory_total_bytes": 2**38} | dials.pop("host", {})
    machine, groups = Machine(trainer=own, host=host, loaders=4), dials.pop("groups", ())
    return found(after(lambda t: replace(machine.frame(t), cgroups=groups), 130), "shm-nearly-full")


@pytest.mark.parametrize(
    ("used", "total", "severity"),
    [
        (61.0, 64.0, "crit"),
        (58.0, 64.0, "warn"),
        (50.0, 64.0, None),  # 78 %
        (lambda t: 61.0 if t % 10 < 2 else 20.0, 64.0, "crit"),  # batches come and go
        (184e3, 200e3, "info"),  # 92 %, but no next batch fills 16 GB
        (lambda t: 170e3 + 100 * t, 200e3, "crit"),  # unless it goes on
        (lambda t: 24.0 + 0.1 * t, 64.0, "crit"),  # full in a few minutes
        (lambda t: 10.0 + 0.1 * t, 64.0, "crit"),  # less than half full
        (lambda t: 10.0 + 0.06 * t, 64.0, None),
        (lambda t: min(36.0, 3.0 * t), 64.0, None),  # the first batches of a run
    ],
)
def test_shm_nearly_full(used: Any, total: float, severity: str | None) -> None:
    finding = shm(used, total)
    assert (finding and finding.severity) == severity


@pytest.mark.parametrize(
    ("used", "limit"), [(61.0, 92), (55.0, 80), (lambda t: 24.0 + 0.1 * t, 50)], ids=["crit", "warn", "fills"]
)
def test_shm_nearly_full_says_which_limit_decided(used: Any, limit: float) -> None:
    finding = shm(used)
    assert finding is not None
    assert finding.evidence[0].limit == limit


def test_shm_nearly_full_tells_how_large_it_should_be() -> None:
    finding = shm(61.0)
    assert finding is not None
    assert finding.evidence[0].text == "/dev/shm 95 % used: 61.0M of 64.0M (Docker default), 4 workers"
    assert finding.steps[0].command == "docker run --shm-size=16g ..."
    assert finding.subject.kind == "process"


@pytest.mark.parametrize(
    ("total", "host", "limit", "wanted"),
    [
        (64.0, {}, None, "16g"),
        (16 * 1024, {}, None, "32g"),  # it has 16 GiB
        (100 * 1024, {}, None, "128g"),  # half the memory
        (130 * 1024, {}, None, None),
        (64.0, {"memory_total_bytes": 2**33}, None, "4g"),
        (64.0, {}, 2**34, "8g"),  # half of what the container may have
        (8 * 1024, {}, 2**34, None),
        (64.0, {"memory_total_bytes": None}, None, None),
    ],
)
def test_shm_nearly_full_asks_for_more_than_there_is_and_no_more_than_memory_allows(
    total: float, host: dict[str, Any], limit: int | None, wanted: str | None
) -> None:
    finding = shm(0.99 * total, total, host=host, groups=(Cgroup(path="/c", memory_limit_bytes=limit),))
    assert finding is not None
    commands = [step.command for step in finding.steps if "shm-size" in (step.command or "")]
    assert commands == ([] if wanted is None else [f"docker run --shm-size={wanted} ..."])
    shares = any("--ipc=host" in (step.command or "") for step in finding.steps)
    assert shares == (total < 128 * 1024)  # which is what the machine's has


@pytest.mark.parametrize(("total", "larger"), [(2**30, 16), (2**35, 64), (100 * 2**30, 128), (2**37, None)])
def test_the_machines_own_shm_is_made_larger_than_it_is(total: int, larger: int | None) -> None:
    machine = Machine(host={"shm_total_bytes": total, "shm_used_bytes": int(0.99 * total)}, loaders=7)

    def ranks(t: float) -> Frame:
        one = machine.frame(t)
        more = tuple(replace(each, pid=each.pid + 1000, parent_pid=1100, job="k") for each in one.processes[:5])
        return replace(one, processes=(*one.processes, *more))

    finding = found(after(ranks, 42), "shm-nearly-full")
    assert finding is not None
    commands = [step.command for step in finding.steps if step.needs_root]
    assert commands == ([] if larger is None else [f"sudo mount -o remount,size={larger}G /dev/shm"])
    assert "11 workers" in finding.evidence[0].text
    assert finding.steps[-1].text == "Lower num_workers per rank or prefetch_factor"
    assert finding.steps[-1].command == "DataLoader(..., num_workers=3, prefetch_factor=2)"


def test_the_machines_own_shm_is_the_machines() -> None:
    said = Machine(host={"shm_total_bytes": 2**30, "shm_used_bytes": int(0.95 * 2**30)}, loaders=2).verdict(42)
    finding = found(said, "shm-nearly-full")
    assert finding is not None
    assert (finding.subject.kind, finding.severity) == ("host", "crit")
    assert finding.steps[1].needs_root


def test_a_store_of_objects_may_fill_it() -> None:
    full = Machine(host={"shm_total_bytes": 2**30, "shm_used_bytes": int(0.85 * 2**30)}, loaders=2)
    ray = Process(pid=7, started_ticks=1, name="raylet")
    said = after(lambda t: replace(one := full.frame(t), processes=(*one.processes, ray)), 60)
    finding = found(said, "shm-nearly-full")
    assert finding is not None
    assert finding.severity == "info"
    assert finding.evidence[-1].text == "raylet (pid 7) stores objects there by design"


def test_shm_nearly_full_abstains_where_a_container_does_not_show_it() -> None:
    machine = Machine(trainer={"container": "abc", **refused("shm_total_bytes", "shm_used_bytes")})
    assert silent(machine.verdict(5), "shm-nearly-full") is not None


def writing_to(free: float, total: float = 2e12) -> Verdict:
    """Checkpoints of 200 MB to a local disk with so much room."""
    mount = replace(SCRATCH, free_bytes=int(free), total_bytes=int(total))
    disk = Disk(name="nvme1n1", write_bytes_per_s=5e7)

    def disks(t: float) -> tuple[Disk, ...]:
        return (disk if t % 40 < 4 else replace(disk, write_bytes_per_s=0.0),)

    return saving(host={"mounts": (mount,), "disks": disks, "shm_total_bytes": 2**30, "shm_used_bytes": 0}).verdict(
        60, 1
    )


@pytest.mark.parametrize(
    ("free", "total", "severity"),
    [
        (3.9e8, 3e9, "warn"),
        (4.5e8, 3e9, None),
        (1.9e8, 3e9, "crit"),
        (3.9e9, 1e11, "warn"),  # 19 fit, on less than a twentieth
        (4.1e9, 1e11, None),
        (3.9e9, 7e10, None),
        (9.9e10, 2e12, None),  # that is a twentieth too, but hundreds fit
    ],
)
def test_the_next_checkpoint_must_fit(free: float, total: float, severity: str | None) -> None:
    finding = found(writing_to(free, total), "shm-nearly-full")
    assert (finding and finding.severity) == severity
    assert not finding or "/scratch" in finding.headline


def test_a_checkpoint_is_known_though_the_gpus_paused_again_before_anybody_looked() -> None:
    machine = saving(60, 6, host={"mounts": (replace(SCRATCH, free_bytes=10**8, total_bytes=2 * 10**12),)})
    disk = Disk(name="nvme1n1", write_bytes_per_s=5e7)
    machine.host |= {"disks": lambda t: (disk if t % 60 < 6 else replace(disk, write_bytes_per_s=0.0),)}
    machine.gpu["busy_percent"] = lambda t: 0.0 if t % 60 < 6 or 9 <= t % 60 < 11 else 97.0
    for first in range(5):  # whatever second it looks at
        *_, (_, said) = judged((machine.frame(float(t)) for t in range(first, 150)), every_s=5.0)
        finding = found(said, "shm-nearly-full")
        assert (finding and finding.severity) == "crit"


def test_a_checkpoint_that_takes_minutes_is_known_too() -> None:
    machine = saving(700, 200, host={"mounts": (replace(SCRATCH, free_bytes=10**9, total_bytes=2 * 10**12),)})
    disk = Disk(name="nvme1n1", write_bytes_per_s=5e7)
    machine.host |= {"disks": lambda t: (disk if t % 700 < 200 else replace(disk, write_bytes_per_s=0.0),)}
    finding = found(machine.verdict(300, 2), "shm-nearly-full")
    assert (finding and finding.severity) == "crit"
