"""The parameters that fault scenarios are made of: each is one change to a healthy job or card."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gputop.demo import Demo, Scenario
from gputop.demo.scenarios.parts import BEFORE_S, HEALTHY, ONSET_S, STORES, each, llama, workstation
from gputop.demo.server import GIB, DemoServer, Dip, PoorCooling, Work
from gputop.model import Frame, Role


def demo(server: DemoServer, at_s: float = 600) -> Demo:
    return Demo(Scenario(name="test", title="", server=server), pace=False, at_s=at_s, anchor_s=0)


def fault(loaders: int = 2, **changes: Any) -> Demo:
    work = replace(HEALTHY, vram_bytes=30 * GIB, nvlink=0, **changes)
    return demo(workstation(llama(each(0), (BEFORE_S, HEALTHY), (ONSET_S, work), loaders=loaders)))


def busy(frames: list[Frame]) -> float:
    return sum(frame.gpus[0].busy_percent or 0 for frame in frames) / len(frames)


def test_a_phase_changes_the_duty_at_its_onset() -> None:
    frames = list(fault(period_s=1.0, duty=0.35, jitter=0.1, watts=300).past())
    assert busy(frames[: int(ONSET_S) - 2]) == pytest.approx(98, abs=1)
    assert busy(frames[int(ONSET_S) + 2 :]) == pytest.approx(35, abs=1)
    mean = sum(frame.gpus[0].power_watts or 0 for frame in frames[-400:]) / 400
    assert mean == pytest.approx(71 + 0.35 * (300 - 71), rel=0.02)


def test_a_checkpoint_stops_the_gpu_and_writes() -> None:
    frames = list(fault(dip=Dip(every_s=150, for_s=24, write_bytes=13e9)).past())[int(ONSET_S) + 2 :]
    dips = [frame for frame in frames if (frame.gpus[0].busy_percent or 0) < 5]
    assert len(dips) == pytest.approx(3 * 24, abs=6)
    written = sum(process.write_bytes_per_s or 0 for frame in frames for process in frame.processes)
    assert written == pytest.approx(3 * 13e9, rel=0.05)
    in_dips = [max(process.write_bytes_per_s or 0 for process in frame.processes) for frame in dips]
    assert min(in_dips[1:-1]) > 0.3e9


def test_loaders_are_replaced_at_each_dip() -> None:
    frames = list(fault(loaders=8, dip=Dip(every_s=41, for_s=3.2, respawn=True)).past())[int(ONSET_S) :]
    crews = []
    for frame in frames:
        crew = {process.identity for process in frame.processes if process.role is Role.LOADER}
        assert len(crew) == 8
        assert crew <= {identity for job in frame.jobs for identity in job.members}
        if not crews or crew != crews[-1]:
            assert not crews or not crew & crews[-1]
            crews.append(crew)
    assert len(crews) == pytest.approx((600 - ONSET_S) / 41, abs=1.1)
    ages = [process.age_s or 0 for process in frames[-1].processes if process.role is Role.LOADER]
    assert all(0 <= age < 41 for age in ages)


@pytest.mark.parametrize(
    ("changes", "at_s", "grown"),
    [
        ({"vram_per_s": 6 * 2**20}, 400, 280 * 6 * 2**20),
        ({"vram_per_s": 2**27, "vram_step_bytes": 2**31, "vram_grows_for_s": 96.0}, 400, 12 * 2**30),
        ({"vram_per_s": 2**27, "vram_step_bytes": 2**31, "vram_grows_for_s": 96.0}, 120 + 17, 2**31),
    ],
)
def test_device_memory_grows_steadily_or_in_steps(changes: dict[str, Any], at_s: float, grown: int) -> None:
    frames = [fault(**changes).frame(t) for t in (ONSET_S, at_s)]
    before, after = (frame.gpus[0].vram_used_bytes or 0 for frame in frames)
    assert after - before == grown


def test_a_power_limit_lowers_the_clock_from_its_onset() -> None:
    server = workstation(llama(each(0), (BEFORE_S, HEALTHY)))
    card = replace(server.cards[0], limit_watts=300, limit_from_s=ONSET_S)
    run = demo(replace(server, cards=(card,)))
    before, after = run.frame(ONSET_S - 5).gpus[0], run.frame(ONSET_S + 60).gpus[0]
    assert (before.power_limit_watts, before.throttle_reasons) == (700, frozenset())
    assert (after.power_limit_watts, after.power_default_limit_watts) == (300, 700)
    assert after.throttle_reasons == {"power cap"}
    assert after.power_watts == pytest.approx(295, abs=5)
    assert 700 < (after.sm_clock_mhz or 0) < 1000
    assert (after.throttled_power_percent or 0) > 90


def test_a_hot_card_warms_then_slows() -> None:
    server = workstation(llama(each(0), (BEFORE_S, HEALTHY)))
    heat = PoorCooling(celsius=90, clock_mhz=1410, soft_percent=45, from_s=ONSET_S)
    run = demo(replace(server, cards=(replace(server.cards[0], heat=heat),)))
    degrees = [run.frame(t).gpus[0].temperature_celsius or 0 for t in (110, 150, 200, 400)]
    assert degrees == sorted(degrees)
    assert degrees[-1] == pytest.approx(90, abs=1)
    assert run.frame(ONSET_S + 5).gpus[0].throttle_reasons == frozenset()
    late = run.frame(400).gpus[0]
    assert late.throttle_reasons == {"thermal"}
    assert late.throttled_heat_percent == pytest.approx(45, abs=6)
    assert late.sm_clock_mhz == pytest.approx(1410, abs=30)


def test_one_process_can_hold_several_gpus_unevenly() -> None:
    work = replace(HEALTHY, duty=0.37, period_s=1.0, vram_bytes=15 * GIB)
    first = replace(work, duty=0.71, vram_bytes=22 * GIB)
    job = replace(llama(((0, 1, 2),), (BEFORE_S, work)), card_work=((0, first),), launcher_command=())
    server = workstation(job)
    cards = tuple(replace(server.cards[0], index=index) for index in range(3))
    frames = list(demo(replace(server, cards=cards), at_s=200).past())
    means = [sum(frame.gpus[card].busy_percent or 0 for frame in frames) / len(frames) for card in range(3)]
    assert means == pytest.approx([71, 37, 37], abs=1)
    trainer = next(process for process in frames[-1].processes if process.role is Role.TRAINER)
    assert [round((part.vram_bytes or 0) / GIB) for part in trainer.gpus] == [22, 15, 15]
    assert trainer.rank is None


def test_a_job_without_a_gpu_and_a_pool_of_threads() -> None:
    work = replace(HEALTHY, main_cpu=100, pool_threads=7, pool_cpu=99, run_wait=70)
    frame = demo(workstation(llama(((),), (BEFORE_S, work), loaders=0))).frame(300)
    trainer = next(process for process in frame.processes if process.role is Role.TRAINER)
    assert trainer.gpus == ()
    assert trainer.cpu_percent == pytest.approx(793, abs=50)
    assert trainer.busy_threads == 8
    assert trainer.run_wait_percent == pytest.approx(70, abs=15)
    assert frame.gpus[0].busy_percent == 0


def test_reads_fill_the_page_cache_and_the_disk() -> None:
    slow = Work(loader_read=0.125e9, loader_cached=0, loader_blocked=70, loader_cpu=15, duty=0.3, period_s=1.0)
    job = replace(llama(each(0), (BEFORE_S, HEALTHY), (ONSET_S, slow)), data="/")
    stores = tuple(replace(store, bytes_per_s=1.02e9) if store.path == "/" else store for store in STORES)
    run = demo(replace(workstation(job), stores=stores))
    early, late = run.frame(ONSET_S + 10).host, run.frame(ONSET_S + 110).host
    assert (late.memory_cached_bytes or 0) - (early.memory_cached_bytes or 0) == pytest.approx(100e9, rel=0.01)
    disk = next(disk for disk in late.disks if disk.name == "nvme0n1")
    assert disk.read_bytes_per_s == pytest.approx(1e9, rel=0.1)
    assert (disk.busy_percent or 0) > 90
    assert (disk.await_s or 0) > 3 * 0.0001
    states = [
        process.state for t in range(200, 260) for process in run.frame(t).processes if process.role is Role.LOADER
    ]
    assert states.count("D") / len(states) == pytest.approx(0.7, abs=0.1)
