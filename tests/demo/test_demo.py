"""Simulated servers: what their frames say, and that they say the same at any time."""

from __future__ import annotations

import itertools
import os
import time
from threading import Event

import pytest

from gputop.collect.proc.gpu_processes import denied_io
from gputop.demo import SCENARIOS, Demo, open_demo
from gputop.demo.generator import WINDOW_S, Gated, PhaseSchedule, Pulse, noise, share, shares
from gputop.model import Frame, Gpu, Role

ANCHOR_S = 1_795_185_127.0  # 2026-11-20 14:32:07 UTC
NAMES = sorted(SCENARIOS)


def opened(name: str, at_s: float | None = None) -> Demo:
    return Demo(SCENARIOS[name], pace=False, anchor_s=ANCHOR_S, at_s=at_s)


def samples(frames: list[Frame], card: int = 0) -> list[float]:
    return [value for frame in frames for ago, value in frame.gpus[card].busy_samples if ago < 0.999]


def spread(values: list[float]) -> float:
    ordered = sorted(values)
    return ordered[int(0.95 * len(ordered))] - ordered[int(0.05 * len(ordered))]


def box_filtered(period_s: float, seconds: float = 600) -> list[float]:
    pulse = Pulse(period_s, 0.5, jitter=0.1, seed=3)
    edges = [number * WINDOW_S for number in range(int(seconds / WINDOW_S))]
    return [100 * part for part in shares(pulse, edges)]


# spread of p95 - p5 of a half-on process by its period in windows, as measured: points of 100
@pytest.mark.parametrize(
    ("windows", "points", "slack"),
    [(0.1, 3.5, 3), (0.25, 6, 3), (0.5, 11, 4), (0.6, 24, 4), (1, 16, 5), (1.5, 61, 5), (2, 92, 6), (3, 100, 2)],
)
def test_window_attenuates_as_measured(windows: float, points: float, slack: float) -> None:
    assert spread(box_filtered(windows * WINDOW_S)) == pytest.approx(points, abs=slack)


@pytest.mark.parametrize("period_s", [0.05, 0.15, 0.4, 1.0, 9.0])
@pytest.mark.parametrize("duty", [0.02, 0.3, 0.5, 0.98])
@pytest.mark.parametrize("jitter", [0.0, 0.1, 0.3])
def test_duty_is_exact_over_whole_cycles(period_s: float, duty: float, jitter: float) -> None:
    pulse = Pulse(period_s, duty, jitter, seed=8)
    assert pulse.busy_s(1024 * period_s) == pytest.approx(1024 * period_s * duty)
    assert share(pulse, 600, 600) == pytest.approx(duty, abs=0.03)


def test_pulse_is_on_first_and_never_runs_backwards() -> None:
    pulse = Pulse(2.0, 0.25)
    assert [pulse.busy_s(t) for t in (0, 0.25, 0.5, 1.9, 2.0, 2.5)] == [0, 0.25, 0.5, 0.5, 0.5, 1.0]
    assert [pulse.count(t) for t in (0.0, 0.4, 0.6, 2.4, 2.6)] == [0, 0, 1, 1, 2]
    jittered = Pulse(0.7, 0.6, 0.4, seed=2)
    busy = [jittered.busy_s(number / 50) for number in range(40_000)]
    assert all(0 <= after - before <= 0.0201 for before, after in itertools.pairwise(busy))


def test_gated_and_phased_activities_add_up() -> None:
    gated = Gated(Pulse(10, 0.8), Pulse(1, 0.5), Pulse(1, 0.0))
    assert gated.busy_s(10) == pytest.approx(4)
    assert share(gated, 10, 2) == 0
    phased = PhaseSchedule(((-100.0, Pulse(1, 0.5)), (50.0, Pulse(1, 0.25)), (100.0, Pulse(1, 0))))
    assert phased.busy_s(-100) == phased.busy_s(-500) == 0
    assert phased.busy_s(70) - phased.busy_s(50) == pytest.approx(5)
    assert phased.busy_s(900) == phased.busy_s(100)


def test_noise_stays_in_its_range_and_is_a_function() -> None:
    values = [noise(17, number / 7) for number in range(20_000)]
    assert max(values) <= 1
    assert min(values) >= -1
    assert values == [noise(17, number / 7) for number in range(20_000)]
    assert len({noise(seed, 5) for seed in range(50)}) > 40


@pytest.mark.parametrize("name", NAMES)
def test_frames_are_a_function_of_the_scenario_and_time(name: str) -> None:
    first, second = opened(name), opened(name)
    late = second.frame(417)
    assert [first.frame(t) for t in (300, 301, 417)] == [second.frame(300), second.frame(301), late]
    assert first.frame(300) != first.frame(301)


@pytest.mark.parametrize("name", ["showcase", "healthy", "64gpu"])  # by how much past they have
def test_past_and_frames_join_without_a_gap(name: str) -> None:
    demo = opened(name)
    past = list(demo.past())
    live = list(itertools.islice(demo.frames(Event()), 3))
    times = [frame.mono_s for frame in (*past, *live)]
    near_s = min(demo.scenario.past_s, int(demo.at_s))
    seldom, often = times[: len(past) - near_s + 1], times[len(past) - near_s :]
    assert seldom[-1] - seldom[0] == max(0, demo.scenario.watched_s - near_s)
    assert {round(after - before, 6) for before, after in itertools.pairwise(seldom)} <= {5.0}
    assert {round(after - before, 6) for before, after in itertools.pairwise(often)} == {1.0}
    assert live[0].wall_s == ANCHOR_S


def test_the_notebook_of_the_showcase_has_been_idle_for_two_hours() -> None:
    demo = opened("showcase")
    far, near = list(demo.long_past()), list(demo.past())
    past = [*far, *near]
    assert {round(after.mono_s - before.mono_s) for before, after in itertools.pairwise(far)} == {15}
    assert past == sorted(past, key=lambda frame: frame.mono_s)
    worked = max(frame.mono_s for frame in past if (frame.gpus[7].busy_percent or 0) >= 1)
    assert past[-1].mono_s - worked == pytest.approx(7860, abs=20)
    before = [frame.gpus[0] for frame in far if frame.wall_s < ANCHOR_S - 380]
    assert all((gpu.busy_percent or 0) > 90 and (gpu.power_watts or 0) > 500 for gpu in before)


def test_unpaced_frames_end_with_the_scenario_and_paced_ones_wait() -> None:
    assert len(list(opened("healthy", at_s=590).frames(Event()))) == 11
    stop, began = Event(), time.monotonic()
    frames = []
    for frame in Demo(SCENARIOS["healthy"], interval_s=0.05, at_s=599.9).frames(stop):
        frames.append(frame)
        if len(frames) == 7:
            stop.set()
    assert frames[-1].mono_s - SCENARIOS["healthy"].server.uptime_s == pytest.approx(600.2)
    assert time.monotonic() - began >= 0.3


def test_an_unknown_demo_names_the_nearest() -> None:
    with pytest.raises(ValueError, match="unknown demo 'showcse': did you mean showcase"):
        open_demo("showcse")
    with pytest.raises(ValueError, match="'nonsense': `gputop demo --list` lists them"):
        open_demo("nonsense")
    assert open_demo("healthy").label == "demo healthy"


@pytest.mark.parametrize("name", NAMES)
def test_sums_hold_on_every_frame(name: str) -> None:
    demo = opened(name)
    for t in (60, 300, 555):
        frame = demo.frame(t)
        held = {gpu.uuid: 0 for gpu in frame.gpus}
        for gpu_share in (part for process in frame.processes for part in process.gpus):
            held[gpu_share.uuid] += gpu_share.vram_bytes or 0
        for gpu in frame.gpus:
            check_gpu(gpu, held[gpu.uuid])
        host = frame.host
        cpu = sum(process.cpu_percent or 0 for process in frame.processes)
        assert (host.cpu_percent or 0) * host.cpus_total == pytest.approx(cpu)
        cores = [core or 0 for core in host.cpu_cores_percent]
        assert sum(cores) == pytest.approx(cpu)
        assert all(0 <= core <= 100 for core in cores)
        assert (host.memory_used_bytes or 0) + (host.memory_available_bytes or 0) == host.memory_total_bytes
        if demo.scenario.server.viewer is None:
            read = sum(process.read_bytes_per_s or 0 for process in frame.processes)
            assert host.read_bytes_per_s == pytest.approx(read)


def check_gpu(gpu: Gpu, held: int) -> None:
    assert 0 <= (gpu.vram_used_bytes or 0) - held < 16 * 1024**2
    assert held < (gpu.vram_total_bytes or 0)
    assert 70 <= (gpu.power_watts or 0) <= (gpu.power_limit_watts or 0)
    assert 28 <= (gpu.temperature_celsius or 0) <= 95
    if gpu.mig_mode:
        return  # nobody says more of it, nor of its instances
    last = [value for ago, value in gpu.busy_samples if ago < 0.999]
    assert gpu.busy_percent == pytest.approx(sum(last) / 6)
    assert len(gpu.busy_samples) == 96
    assert all(0 <= ago <= 16 and 0 <= value <= 100 and value == int(value) for ago, value in gpu.busy_samples)
    assert list(gpu.busy_samples) == sorted(gpu.busy_samples, reverse=True)


@pytest.mark.parametrize("name", NAMES)
def test_processes_form_whole_jobs(name: str) -> None:
    frame = opened(name).frame(300)
    pids = {process.pid for process in frame.processes}
    assert len(pids) == len(frame.processes)
    for job in frame.jobs:
        members = [frame.by_identity[identity] for identity in job.members]
        assert all(process.job == job.key and process.user == job.user for process in members)
        assert {process.parent_pid for process in members[1:]} <= {process.pid for process in members}
        assert set(job.ranks) <= set(job.members)
        assert len(members) == sum(process.job == job.key for process in frame.processes)
        for rank, identity in enumerate(job.ranks):
            trainer = frame.by_identity[identity]
            assert trainer.role is Role.TRAINER
            assert trainer.rank in (rank, None)


@pytest.mark.parametrize("name", NAMES)
def test_the_load_average_counts_what_runs_and_what_waits_for_a_cpu(name: str) -> None:
    """More runnable threads than CPUs are a load above the CPUs."""
    frame = opened(name).frame(300.0)
    load, waits = frame.host.load[0], [process.run_wait_percent or 0.0 for process in frame.processes]
    assert load >= 0.75 * frame.host.cpus_total * (frame.host.cpu_percent or 0.0) / 100
    if name == "threads-host":
        assert max(waits) > 50
        assert load > 2.5 * frame.host.cpus_total


def test_healthy_is_busy_all_the_time() -> None:
    frames = list(opened("healthy").past())
    values = samples(frames)
    assert sum(values) / len(values) == pytest.approx(98, abs=0.5)
    assert min(gpu.power_watts or 0 for frame in frames[2:] for gpu in frame.gpus) > 580
    assert all(not gpu.throttle_reasons for frame in frames for gpu in frame.gpus)


def test_showcase_has_its_four_troubles() -> None:
    frames = list(opened("showcase").past())[-180:]
    for card in range(4):
        values = samples(frames, card)
        assert sum(values) / len(values) == pytest.approx(58, abs=3)
        assert sum(value < 5 for value in values) / len(values) > 0.1
    last = frames[-1]
    loaders = [process for process in last.processes if process.role is Role.LOADER]
    assert len(loaders) == 32
    assert 35 < sum(process.blocked_percent or 0 for process in loaders) / 32 < 50
    assert 1.8 * 2**30 < (last.host.read_bytes_per_s or 0) < 2.0 * 2**30
    for card in (4, 5):
        assert last.gpus[card].throttle_reasons == {"power cap"}
        assert 1700 < (last.gpus[card].sm_clock_mhz or 0) < 1800
    assert last.gpus[6].throttle_reasons == {"hw thermal"}
    assert last.gpus[6].temperature_celsius == pytest.approx(88, abs=1)
    assert 1380 < (last.gpus[6].sm_clock_mhz or 0) < 1440
    assert last.gpus[7].busy_percent == 0
    assert [len(job.ranks) for job in last.jobs] == [4, 3, 1]


def test_energy_is_the_integral_of_power() -> None:
    frames = list(opened("showcase").past())[-120:]
    for card in (0, 4, 6, 7):
        power = [frame.gpus[card].power_watts or 0 for frame in frames[1:]]
        used = (frames[-1].gpus[card].energy_joules or 0) - (frames[0].gpus[card].energy_joules or 0)
        assert used == pytest.approx(sum(power), rel=0.03)


def test_idle_begins_with_a_job_and_ends_at_rest() -> None:
    past = list(opened("idle").past())
    assert len(past[60].jobs) == 1
    assert all(gpu.busy_percent or 0 > 80 for gpu in past[60].gpus)
    at_rest = past[-1]
    assert at_rest.jobs == ()
    assert not any(process.gpus for process in at_rest.processes)
    assert sum(gpu.power_watts or 0 for gpu in at_rest.gpus) == pytest.approx(560, abs=20)
    assert {gpu.throttle_reasons for gpu in at_rest.gpus} == {frozenset({"idle"})}


def test_sixteen_gpus_hide_the_io_of_the_other_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1001)  # the viewer is not root
    frame = opened("16gpu").frame(300)
    roles = [process.role for process in frame.processes]
    assert (roles.count(Role.TRAINER), roles.count(Role.LOADER)) == (16, 64)
    bob = [process for process in frame.processes if process.user == "bob"]
    assert bob
    assert all(process.read_bytes_per_s is process.write_bytes_per_s is None for process in bob)
    assert {missing.reason for process in bob for missing in process.missing} == {"denied"}
    assert all(process.read_bytes_per_s is not None for process in frame.processes if process.user == "alice")
    assert frame.note("denied-io") == denied_io(sum(process.user != "alice" for process in frame.processes))
