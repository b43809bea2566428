"""A GPU without utilization is judged by what stands in for it, and the finding says so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gputop.diagnose.engine import Verdict
from gputop.model import Frame, Gpu, GpuShare, Missing
from tests.rank_teams import Dials, nothing, of, team
from tests.rule_cases import GPU, Machine, after, found, silent

UNSEEN = (
    "busy_percent", "memory_busy_percent", "power_watts", "power_limit_watts", "power_default_limit_watts",
    "sm_clock_mhz", "sm_clock_max_mhz", "temperature_celsius", "nvlink_rx_bytes_per_s", "nvlink_tx_bytes_per_s",
)  # fmt: skip
WHY = tuple(Missing(metric=name, reason="unsupported") for name in UNSEEN)
MIG: dict[str, Any] = {
    **dict.fromkeys(UNSEEN),
    "missing": WHY,
    "parent_uuid": "CARD",
    "mig_mode": True,
    "name": "NVIDIA H100 80GB HBM3 MIG 3g.40gb",
    "graphics_active_percent": 97.0,
}


def units(share: float) -> dict[str, Any]:
    """What the units of an instance do that is busy for this share of the time."""
    return {
        "graphics_active_percent": 100.0 * share,
        "sm_active_percent": 88.0 * share,
        "tensor_percent": 50.0 * share,
        "dram_percent": 38.0 * share,
    }


STARVED: dict[str, Any] = {
    "trainer": {"cpu_percent": 20.0, "main_thread_percent": 15.0},
    "loader": {"cpu_percent": 97.0, "main_thread_percent": 97.0, "busy_threads": 1},
    "loaders": 2,
}
"""Two loaders that never rest, on CPUs that have room for more."""


def by_process(machine: Machine, percent: float | None) -> Callable[[float], Frame]:
    """The same, with what the driver says of its process."""

    def frame(t: float) -> Frame:
        seen = machine.frame(t)
        trainer, *loaders = seen.processes
        shares = tuple(replace(share, busy_percent=percent) for share in trainer.gpus)
        return replace(seen, processes=(replace(trainer, gpus=shares), *loaders))

    return frame


def evidence(said: Verdict, rule: str) -> str:
    told = found(said, rule)
    assert told, [one.rule for one in said.findings]
    return "\n".join(one.text for one in told.evidence)


def test_a_mig_instance_starves_by_its_graphics_engine() -> None:
    said = Machine(gpu={**MIG, **units(0.45)}, **STARVED).verdict()
    text = "graphics engine active 45 % (GPM; no utilization on MIG)"
    assert text in evidence(said, "starved-cpu-idle")
    assert not silent(said, "starved-cpu-idle")


def test_a_mig_instance_that_is_busy_is_healthy() -> None:
    said = Machine(gpu={**MIG, **units(0.97)}).verdict(200)
    assert "graphics engine active 97 % (GPM; no utilization on MIG)" in evidence(said, "gpu-bound-healthy")
    assert {one.severity for one in said.findings} == {"info"}


def test_a_mig_instance_that_rests_while_its_program_works() -> None:
    at_work = lambda value: lambda t: value if t < 100 else 0.0  # noqa: E731
    gpu = {name: at_work(value) for name, value in units(0.97).items()}
    busy = {"cpu_percent": 160.0, "main_thread_percent": 98.0}
    said = Machine(gpu={**MIG, **gpu}, trainer=busy).verdict(400)
    assert "graphics engine active 0 % (GPM; no utilization on MIG)" in evidence(said, "gpu-idle-cpu-busy")


def test_no_rule_abstains_for_its_utilization() -> None:
    said = Machine(gpu={**MIG, **units(0.9)}).verdict()
    assert not [one for one in said.abstained if "busy_percent" in {missing.metric for missing in one.missing}]


@pytest.mark.parametrize("virtual", ["vgpu", "none"])
def test_why_there_is_none_is_said(virtual: str) -> None:
    gpu = {**MIG, **units(0.45), "parent_uuid": None, "mig_mode": False, "virtualization": virtual}
    said = Machine(gpu=gpu, **STARVED).verdict()
    why = "no utilization on vGPU" if virtual == "vgpu" else "utilization not reported"
    assert f"graphics engine active 45 % (GPM; {why})" in evidence(said, "starved-cpu-idle")


def test_sm_activity_is_a_lower_bound_and_says_so() -> None:
    gpu = {**MIG, **units(0.45), "graphics_active_percent": None}
    said = Machine(gpu=gpu, **STARVED).verdict()
    told = found(said, "starved-cpu-idle")
    assert "SM activity 40 % (GPM, a lower bound; no utilization on MIG)" in evidence(said, "starved-cpu-idle")
    whole = found(Machine(gpu={**MIG, **units(0.45)}, **STARVED).verdict(), "starved-cpu-idle")
    assert told
    assert whole
    assert told.severity != "crit"
    assert told.confidence < whole.confidence


def test_without_a_cause_a_lower_bound_tells_nothing() -> None:
    gpu = {**MIG, **units(0.45), "graphics_active_percent": None}
    said = Machine(gpu=gpu, trainer={"cpu_percent": 20.0, "main_thread_percent": 15.0}).verdict()
    assert not found(said, "starved-cause-unknown")
    assert silent(said, "starved-cause-unknown")


def test_high_sm_activity_alone_is_healthy() -> None:
    gpu = {**MIG, **units(0.98), "graphics_active_percent": None}
    assert "SM activity 86 %" in evidence(Machine(gpu=gpu).verdict(200), "gpu-bound-healthy")


def test_the_sum_of_its_processes_stands_in_last() -> None:
    gpu = {**MIG, **dict.fromkeys(units(1)), "parent_uuid": None, "mig_mode": False}
    said = after(by_process(Machine(gpu=gpu, **STARVED), 41.0))
    text = "kernels resident 41 % (sum of its processes; utilization not reported)"
    assert text in evidence(said, "starved-cpu-idle")


def test_nothing_stands_in_for_a_gap() -> None:
    """A GPU that reports its utilization and is silent for a few frames is not judged by something else."""
    gap = lambda t: None if 60 <= t < 66 else 97.0  # noqa: E731
    said = Machine(gpu={"busy_percent": gap, "graphics_active_percent": 97.0}).verdict(200)
    assert "GPU busy 97 %" in evidence(said, "gpu-bound-healthy")


def test_where_nothing_stands_in_rules_abstain_as_before() -> None:
    said = after(by_process(Machine(gpu={**MIG, **dict.fromkeys(units(1))}, **STARVED), None))
    assert silent(said, "starved-cpu-idle")
    assert not found(said, "starved-cpu-idle")


def test_a_card_in_mig_mode_is_as_busy_as_its_busiest_instance() -> None:
    def frame(t: float) -> Frame:
        seen = Machine(gpu={**MIG, **units(0.9)}).frame(t)
        card = Gpu(**{**GPU, "uuid": "CARD", "index": "0", "name": "H100", "mig_mode": True, "busy_percent": None,
                      "graphics_active_percent": None, "sm_active_percent": None, "missing": WHY[:1],
                      "sm_clock_mhz": 1200.0})  # fmt: skip
        return replace(seen, gpus=(card, *seen.gpus))

    said = after(frame)
    assert "busiest MIG instance" in evidence(said, "clocks-low")


NO_LINKS = dict.fromkeys(
    ("nvlink_max_bytes_per_s", "nvlink_rx_bytes_per_s", "nvlink_tx_bytes_per_s", "pcie_rx_bytes_per_s",
     "pcie_tx_bytes_per_s"),
)  # fmt: skip
SPINS = {"graphics_active_percent": 100.0, "sm_active_percent": 12.0, "tensor_percent": 0.0, "dram_percent": 0.4,
         "fp32_percent": 0.0}  # fmt: skip
RESTS = {**SPINS, "graphics_active_percent": 0.0, "sm_active_percent": 0.0}


def ranks(gpu: Dials, trainer: Dials = nothing, *, before_s: float = 0.0, ranks: int = 2) -> Any:
    """Ranks on an instance each, which work until then."""
    base = team(lambda _: {**MIG, **units(0.99), **NO_LINKS}, ranks=ranks)
    later = team(lambda n: {**MIG, **units(0.99), **NO_LINKS, **gpu(n)}, trainer, ranks=ranks)
    return lambda t: (base if t < before_s else later)(t)


def test_ranks_on_instances_hang() -> None:
    stuck = {"state": "D", "blocked_percent": 100.0, "cpu_percent": 5.0, "write_chars_per_s": 0.0}
    frame = ranks(of({1: RESTS}, SPINS), of({1: stuck}, {"write_chars_per_s": 100.0}), before_s=90)
    told = found(after(frame, 300), "collective-wait")
    assert told is not None
    assert told.severity == "crit"
    assert any("graphics engine active" in one.text for one in told.evidence)


def test_a_rank_on_an_instance_is_late() -> None:
    late = {**units(0.7), "tensor_percent": 50.0}
    told = found(after(ranks(of({2: late}, {"tensor_percent": 50.0}), ranks=4), 150), "straggler")
    assert told is not None
    assert "rank 2" in told.headline
    assert any("graphics engine active" in one.text for one in told.evidence)


def test_ranks_without_tensor_counters_or_power_are_measured_by_memory_traffic() -> None:
    """A vGPU: utilization and nothing of units or power."""
    bare = dict.fromkeys((*SPINS, "power_watts", "power_limit_watts", "sm_clock_mhz", *NO_LINKS))
    late = {**bare, "busy_percent": 70.0}
    told = found(after(team(of({2: late}, {**bare, "busy_percent": 99.0}), ranks=4), 150), "straggler")
    assert told is not None
    assert "rank 2" in told.headline


NO_UNITS = dict.fromkeys((*SPINS, "sm_occupancy_percent"))
VGPU: dict[str, Any] = {
    **NO_UNITS,
    **dict.fromkeys(("power_watts", "power_limit_watts", "sm_clock_mhz", "temperature_celsius", "throttle_reasons")),
    "virtualization": "vgpu",
    "missing": tuple(Missing(metric=name, reason="unsupported") for name in (*NO_UNITS, "power_watts", "sm_clock_mhz")),
}


@pytest.mark.parametrize(("memory", "healthy"), [(45.0, True), (12.0, False)])
def test_a_vgpu_without_power_is_healthy_by_its_memory_traffic(memory: float, healthy: bool) -> None:
    said = Machine(gpu={**VGPU, "memory_busy_percent": memory}).verdict(200)
    assert bool(found(said, "gpu-bound-healthy")) == healthy
    if healthy:
        assert "memory busy 45 % of the time (SM activity and power unavailable)" in evidence(said, "gpu-bound-healthy")
    assert not silent(said, "gpu-bound-healthy")


def test_a_vgpu_without_power_waits_for_launches() -> None:
    gpu = {**VGPU, "busy_percent": 45.0, "memory_busy_percent": 9.0}
    said = Machine(gpu=gpu, loaders=2, loader={"cpu_percent": 3.0}).verdict()
    assert found(said, "overhead-bound"), [one.rule for one in said.findings]


def test_a_vgpu_without_power_runs_a_small_job() -> None:
    gpu = {**VGPU, "busy_percent": 12.0, "memory_busy_percent": 3.0}
    small = {"gpus": (GpuShare(uuid="G", busy_percent=12.0, vram_bytes=2 * 2**30),)}
    said = Machine(gpu=gpu, trainer=small).verdict(1100)
    assert found(said, "small-job"), [one.rule for one in said.findings]


def test_a_clock_of_an_instance_is_that_of_its_card() -> None:
    gpu = {**MIG, **units(0.97), "sm_active_percent": None, "power_watts": 600.0, "power_limit_watts": 700.0}

    def frame(t: float) -> Frame:
        seen = Machine(gpu=gpu).frame(t)
        card = Gpu(**{**GPU, "uuid": "CARD", "index": "0", "name": "H100", "mig_mode": True, "busy_percent": None})
        return replace(seen, gpus=(card, *seen.gpus))

    assert found(after(frame, 200), "gpu-bound-healthy")


def test_without_the_samples_of_the_driver_a_rhythm_is_seen_by_the_second() -> None:
    """Shape and rhythm come of the values of each look where the driver keeps no samples."""
    wave = lambda t: 96.0 if t % 6 < 3 else 2.0  # noqa: E731
    gpu = {**MIG, **units(0.5), "graphics_active_percent": wave}
    said = after(Machine(gpu=gpu, **STARVED).frame, each_s=1)
    assert "rising and falling every 6.0 s" in evidence(said, "starved-cpu-idle")
