"""Memory that grows, is full or short: each rule fires, just does not, and abstains."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gputop.model import Cgroup, Frame, GpuShare, Missing, Pressure
from tests.rule_cases import Machine, after, found, hours, judged, refused, silent

GIB, MIB = 2**30, 2**20
Curve = Callable[[float], float]


def held(curve: Curve, busy: float = 97.0, **trainer: Any) -> Machine:
    """A trainer whose device memory is this function of time, in MiB above 20 GiB."""

    def shares(t: float) -> tuple[GpuShare, ...]:
        return (GpuShare(uuid="G", busy_percent=busy, vram_bytes=int(20 * GIB + curve(t) * MIB)),)

    def used(t: float) -> int:
        return int(20 * GIB + curve(t) * MIB)

    return Machine(gpu={"vram_used_bytes": used}, trainer={"gpus": shares} | trainer)


@pytest.mark.parametrize(
    ("machine", "minutes", "leaks"),
    [
        (held(lambda t: 6 * t), 18, True),
        (held(lambda t: 6 * t), 9, False),  # for so short a time only what ends within the hour counts
        (held(lambda t: 40 * t), 9, True),
        (held(lambda t: 40 * t, age_s=lambda t: t), 9, False),  # every program grows at its start
        (held(lambda t: 0.3 * t), 18, False),  # 270 MiB in a quarter of an hour, of 80 GiB
        (held(lambda t: 0.3 * t), 75, True),
        (held(lambda t: 6 * min(t, 800)), 18, False),  # over for four minutes
        (held(lambda t: 6 * max(0.0, t - 500)), 18, False),  # nobody knows yet where it ends
        (held(lambda t: 3000 * math.log(1 + t / 60)), 18, False),  # the longest batch so far
        (held(lambda t: 2000 * (t // 300)), 18, False),  # a staircase: three steps in all
        (held(lambda t: 400 * (t // 60)), 18, True),
        (held(lambda t: 6 * t if t % 60 < 30 else 0), 18, False),  # up and down
    ],
)
def test_gmem_leak(machine: Machine, minutes: float, leaks: bool) -> None:
    finding = found(hours(machine.frame, minutes), "gmem-leak")
    assert (finding is not None) == leaks
    assert finding is None or finding.severity == "warn"


def test_gmem_leak_says_how_fast_and_until_when() -> None:
    told = found(hours(held(lambda t: 6 * t).frame, 18), "gmem-leak")
    assert told is not None
    assert told.primary
    assert told.headline == "GPU memory growing by 21.1G per hour, full in about 2 h 30 min"
    assert [item.text for item in told.evidence] == [
        "+5.2G in 15 min, +1.7G, +1.8G, +1.8G per 5 min",
        "53.8G of GPU 0 left",
    ]
    assert told.steps[0].command == "total += loss.detach()"


def test_gmem_leak_abstains_where_the_driver_does_not_say_who_holds_what() -> None:
    machine = Machine(trainer={"gpus": (GpuShare(uuid="G", busy_percent=97.0),)})
    assert silent(machine.verdict(5), "gmem-leak") is not None


def filled(share: float, mib_per_s: float = 0.0, **gpu: Any) -> Machine:
    return Machine(gpu={"vram_used_bytes": lambda t: int(80 * GIB * share + mib_per_s * MIB * t)} | gpu)


@pytest.mark.parametrize(
    ("machine", "severity"),
    [
        (filled(0.93), "info"),
        (filled(0.91), None),
        (filled(0.98), "info"),  # full and calm
        (filled(0.975, 1.0), "warn"),
        (filled(0.975, 0.3), "info"),
        (filled(0.955, 1.0), "info"),
        (filled(0.93, 20.0), "warn"),  # not much is left for what it has just grown by
        (filled(0.915, vram_reserved_bytes=GIB), "info"),  # the driver keeps one for itself
    ],
)
def test_gmem_nearly_full(machine: Machine, severity: str | None) -> None:
    finding = found(machine.verdict(), "gmem-nearly-full")
    assert (finding and finding.severity) == severity


def jump(t: float) -> float:
    """As vLLM and TensorFlow take it: nearly all, at once."""
    return 0.05 if t < 100 else 0.975


def wakes(t: float) -> float:
    """A server that sleeps while others train on its GPU, and takes some seconds to come back."""
    return 0.25 + 0.725 * min(1.0, max(0.0, (t % 180 - 60) / 12))


@pytest.mark.parametrize("share", [jump, wakes])
def test_memory_that_is_taken_at_once_does_not_grow(share: Curve) -> None:
    machine = Machine(gpu={"vram_used_bytes": lambda t: int(80 * GIB * share(t))})
    said = [found(verdict, "gmem-nearly-full") for _, verdict in judged(machine.frame(float(t)) for t in range(900))]
    assert {one.severity for one in said if one} == {"info"}


def test_gmem_nearly_full_does_not_hide_that_all_is_well() -> None:
    said = filled(0.98).verdict()
    assert [finding.rule for finding in said.findings if finding.primary] == ["gpu-bound-healthy"]


def test_gmem_nearly_full_abstains_and_leaves_shared_memory_alone() -> None:
    assert silent(Machine(gpu=refused("vram_used_bytes")).verdict(5), "gmem-nearly-full") is not None
    chip = {"name": "NVIDIA GB10", "compute_capability": (12, 1), "unified_memory": True}
    together = Machine(gpu=chip | refused("vram_used_bytes"))
    assert silent(together.verdict(5), "gmem-nearly-full") is None


def short(loaders: int = 0, trainer: dict[str, Any] | None = None, **host: Any) -> Machine:
    plain = {"memory_total_bytes": 256 * GIB, "memory_available_bytes": 20 * GIB, "swap_in_per_s": 0.0}
    return Machine(host=plain | {"swap_out_per_s": 0.0} | host, loaders=loaders, trainer=trainer or {})


WAITS = Pressure(some_percent=12.0, full_percent=1.0)
STALLS = Pressure(some_percent=40.0, full_percent=6.0)
REFAULTS = {"refaults_per_s": 6000.0, "memory_available_bytes": 200 * GIB}


@pytest.mark.parametrize(
    ("machine", "severity"),
    [
        (short(swap_in_per_s=600.0, swap_out_per_s=500.0), "warn"),
        (short(swap_in_per_s=600.0, swap_out_per_s=300.0), None),
        (short(memory_pressure=WAITS), "warn"),
        (short(memory_pressure=Pressure(some_percent=9.0, full_percent=1.0)), None),
        (short(memory_pressure=STALLS), "crit"),
        (short(memory_pressure=STALLS, memory_available_bytes=60 * GIB), None),  # somebody else's limit
        (short(**REFAULTS), None),  # nobody waits for it
    ],
)
def test_memory_pressure(machine: Machine, severity: str | None) -> None:
    finding = found(machine.verdict(90), "memory-pressure")
    assert (finding and finding.severity) == severity


@pytest.mark.parametrize(("cpu", "waits", "fires"), [(40.0, 55.0, True), (96.0, 2.0, False)])
def test_memory_pressure_where_the_page_cache_is_too_small_for_the_data(cpu: float, waits: float, fires: bool) -> None:
    """Who computes has lost nothing by reading again, however much that is."""
    loader = {"cpu_percent": cpu, "blocked_percent": waits, "read_bytes_per_s": 20e6, "read_chars_per_s": 22e6}
    host = {"memory_total_bytes": 256 * GIB, "memory_cached_bytes": 60 * GIB, "cpu_percent": 97.0}
    machine = Machine(
        host=host | REFAULTS | {"swap_in_per_s": 0.0, "swap_out_per_s": 0.0, "read_bytes_per_s": 320e6},
        gpu={"busy_percent": 45.0, "power_watts": 300.0, "sm_active_percent": 35.0},
        trainer={"main_thread_percent": 30.0, "cpu_percent": 40.0},
        loader=loader,
        loaders=16,
    )
    told = [one for one in machine.verdict(200).findings if "memory-pressure" in (one.rule, *one.causes)]
    assert bool(told) == fires
    if told:
        assert "dataset larger than the cache (60.0G)" in told[0].headline


def test_memory_pressure_says_what_is_left_and_who_takes_it() -> None:
    told = found(short(loaders=8, memory_pressure=WAITS).verdict(90), "memory-pressure")
    assert told is not None
    assert told.headline == "host memory low, 20.0G of 256G left"
    assert told.steps[0].text == "Use fewer workers, or prefetch less: 8 workers hold 64.0G"
    assert told.steps[0].command == "DataLoader(..., num_workers=4, prefetch_factor=2)"


def limited(own: float, hits: float = 2.0, kills: Callable[[float], int] = lambda t: 0, **group: Any) -> Any:
    """A job in a group of 16 GiB that is full; `own` GiB of it are its programs'."""
    machine = Machine(trainer={"cgroup": "/job", "slurm_job": "7"})

    def frame(t: float) -> Frame:
        plain = {"memory_used_bytes": int(15.9 * GIB), "anonymous_bytes": int(own * GIB), "shared_bytes": 0}
        limits = {"memory_limit_bytes": 16 * GIB, "limit_hits_per_s": hits, "oom_kills": kills(t)}
        return replace(machine.frame(t), cgroups=(Cgroup(path="/job", **plain | limits | group),))

    return frame


@pytest.mark.parametrize(
    ("frame", "severity"),
    [
        (limited(15), "warn"),
        (limited(13), None),  # page cache fills the rest, as it should
        (limited(15, hits=0.01), None),
        (limited(13, memory_pressure=WAITS), "warn"),
        (limited(13, memory_pressure=STALLS), "crit"),
        (limited(13, kills=lambda t: 1 + (t > 40)), "crit"),
        (limited(13, kills=lambda t: 4), None),  # before we looked
    ],
)
def test_memory_pressure_of_a_limit(frame: Callable[[float], Frame], severity: str | None) -> None:
    finding = found(after(frame, 90), "memory-pressure")
    assert (finding and finding.severity) == severity
    assert finding is None or "#SBATCH --mem=24G" in [step.command for step in finding.steps]


def once(t: float) -> int:
    """A counter that grows once, from what it was before we looked."""
    return 3 + (t > 40)


@pytest.mark.parametrize(
    ("ooms", "hits", "at_its_limit"),
    [
        (once, 0.0, True),
        (lambda t: 3, 2.0, False),  # the machine was short of memory, or a group above
        (lambda t: 3 + (t > 4), 2.0, False),  # that was before
        (lambda t: None, 2.0, True),  # version 1 of control groups
        (lambda t: None, 0.0, False),
    ],
)
def test_a_process_that_was_killed_was_at_its_limit_only_where_that_was_hit(
    ooms: Callable[[float], int | None], hits: float, at_its_limit: bool
) -> None:
    def frame(t: float) -> Frame:
        return limited(2, hits, once, oom_count=ooms(t), memory_used_bytes=3 * GIB)(t)  # type: ignore[no-any-return]

    told = found(after(frame, 90), "memory-pressure")
    assert told is not None
    assert told.severity == "crit"
    why = "its memory limit reached" if at_its_limit else "host or parent cgroup out of memory"
    assert told.headline == f"1 process OOM-killed, {why}"
    assert "1 of its processes was OOM-killed" in [item.text for item in told.evidence]
    assert any("--mem" in (step.command or "") for step in told.steps) == at_its_limit
    assert any("dmesg" in (step.command or "") for step in told.steps) != at_its_limit


def test_memory_pressure_abstains_without_figures() -> None:
    missing = (Missing(metric="swap_in_per_s", reason="unsupported"),)
    said = short(swap_in_per_s=None, swap_out_per_s=None, missing=missing).verdict(5)
    assert silent(said, "memory-pressure") is not None
