"""What a GPU gets done while it is busy: each rule fires, just does not, abstains."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import pytest

from gputop.model import Fact, GpuShare, Identity
from tests.rule_cases import Machine, after, found, refused, silent

UNITS = ("sm_active_percent", "tensor_percent", "dram_percent", "fp32_percent")
NO_UNITS = refused(*UNITS)


@pytest.mark.parametrize(
    ("gpu", "kind"),
    [
        ({}, "compute-bound"),
        ({"tensor_percent": 40.0}, "mix of compute and memory"),
        ({"tensor_percent": 30.0, "dram_percent": 50.0}, "memory-bound"),
        ({"tensor_percent": 10.0, "sm_active_percent": 50.0}, None),
        ({"busy_percent": 89.0}, None),
        ({"busy_percent": lambda t: 100.0 if t % 5 else 70.0}, None),
        ({"fp32_percent": 44.0, "tensor_percent": 0.0}, None),
        ({"dram_percent": 62.0, "tensor_percent": 5.0}, None),
    ],
)
def test_gpu_bound_healthy(gpu: dict[str, Any], kind: str | None) -> None:
    finding = found(Machine(gpu=gpu).verdict(), "gpu-bound-healthy")
    assert (finding and finding.headline) == (kind and f"healthy, {kind}")
    assert finding is None or (finding.healthy and finding.primary and finding.severity == "info")


@pytest.mark.parametrize(
    ("watts", "clock", "fires"), [(600.0, 1980.0, True), (440.0, 1980.0, False), (600.0, 1650.0, False)]
)
def test_without_unit_counters_power_and_clock_decide(watts: float, clock: float, fires: bool) -> None:
    unknown = dict.fromkeys(("sm_active_percent", "tensor_percent", "dram_percent", "fp32_percent"))
    finding = found(
        Machine(gpu={**unknown, "power_watts": watts, "sm_clock_mhz": clock}).verdict(), "gpu-bound-healthy"
    )
    assert (finding is not None) == fires
    assert finding is None or finding.confidence == 0.6


def said_of(machine: Machine, rule: str, seconds: int = 90) -> tuple[str, float] | None:
    """Severity and confidence."""
    finding = found(machine.verdict(seconds), rule)
    return finding and (finding.severity, finding.confidence)


@pytest.mark.parametrize(
    ("gpu", "said"),
    [
        ({"sm_active_percent": 29.0}, ("warn", 0.75)),
        ({"sm_active_percent": 31.0}, None),
        ({"sm_active_percent": 49.0, "tensor_percent": 4.0, "dram_percent": 20.0}, ("info", 0.75)),
        ({"sm_active_percent": 51.0, "tensor_percent": 4.0, "dram_percent": 20.0}, None),
        ({"sm_active_percent": 49.0, "tensor_percent": 4.0, "dram_percent": 25.0}, None),
        ({"sm_active_percent": 10.0, "busy_percent": 84.0}, None),
        ({**NO_UNITS, "power_watts": 280.0, "memory_busy_percent": 14.0}, ("info", 0.5)),
        ({**NO_UNITS, "power_watts": 300.0, "memory_busy_percent": 14.0}, None),
        ({**NO_UNITS, "power_watts": 280.0, "memory_busy_percent": 16.0}, None),
        ({**NO_UNITS, "power_watts": 280.0, "memory_busy_percent": 14.0, "sm_clock_mhz": 1650.0}, None),
        ({**NO_UNITS, "power_watts": 280.0, "memory_busy_percent": 14.0, "mig_mode": True}, None),
    ],
)
def test_busy_not_effective(gpu: dict[str, Any], said: tuple[str, float] | None) -> None:
    assert said_of(Machine(gpu=gpu), "busy-not-effective") == said


def test_busy_not_effective_abstains_without_units_and_power() -> None:
    gpu = refused("sm_active_percent", "tensor_percent", "dram_percent", "fp32_percent", "power_watts")
    assert silent(Machine(gpu=gpu).verdict(60), "busy-not-effective")


@pytest.mark.parametrize(
    ("gpu", "severity"),
    [
        ({}, "warn"),
        ({"tensor_percent": 1.9}, "warn"),
        ({"tensor_percent": 3.0}, "info"),
        ({"tensor_percent": 5.1}, None),
        ({"fp32_percent": 24.0}, None),
        ({"fp64_percent": 21.0}, None),
        ({"compute_capability": (6, 1)}, None),
        ({"busy_percent": 69.0}, None),
    ],
)
def test_tensor_cores_idle(gpu: dict[str, Any], severity: str | None) -> None:
    finding = found(Machine(gpu={"fp32_percent": 44.0, "tensor_percent": 0.0, **gpu}).verdict(90), "tensor-cores-idle")
    assert (finding and finding.severity) == severity


def test_tensor_cores_idle_abstains_where_no_unit_tells() -> None:
    said = Machine(gpu=NO_UNITS).verdict(60)
    assert (one := silent(said, "tensor-cores-idle")) is not None
    assert {missing.metric for missing in one.missing} == {"fp32_percent", "tensor_percent"}
    assert "trace" in (one.unlock or "")


@pytest.mark.parametrize(
    ("gpu", "said"),
    [
        ({"dram_percent": 49.0, "tensor_percent": 5.0}, ("info", 0.8)),
        ({"dram_percent": 47.0, "tensor_percent": 5.0}, None),
        ({"dram_percent": 49.0, "tensor_percent": 24.0}, None),
        ({"dram_percent": 49.0, "tensor_percent": 5.0, "busy_percent": 69.0}, None),
        ({**NO_UNITS, "memory_busy_percent": 61.0, "power_watts": 450.0}, ("info", 0.5)),
        ({**NO_UNITS, "memory_busy_percent": 59.0, "power_watts": 450.0}, None),
        ({**NO_UNITS, "memory_busy_percent": 61.0, "power_watts": 310.0}, None),
        ({**NO_UNITS, "memory_busy_percent": 61.0, "power_watts": 650.0}, None),
        ({"dram_percent": 49.0, "busy_percent": 29.0}, ("info", 0.4)),
        ({**NO_UNITS, "memory_busy_percent": 71.0, "busy_percent": 29.0}, ("info", 0.4)),
    ],
)
def test_mem_bw_bound(gpu: dict[str, Any], said: tuple[str, float] | None) -> None:
    assert said_of(Machine(gpu=gpu), "mem-bw-bound") == said


def test_mem_bw_bound_abstains_without_units_and_power() -> None:
    gpu = refused("sm_active_percent", "tensor_percent", "dram_percent", "fp32_percent", "power_watts")
    assert silent(Machine(gpu=gpu).verdict(60), "mem-bw-bound")


def launching(loaders: int = 0, trainer: dict[str, Any] | None = None, **gpu: Any) -> Machine:
    """A GPU that is busy half of the time, evenly, with a main thread that never rests."""
    gpu = {"busy_percent": 46.0, "sm_active_percent": 14.0, **gpu}
    return Machine(gpu=gpu, trainer=trainer or {}, loader={"cpu_percent": 5.0}, loaders=loaders)


@pytest.mark.parametrize(
    ("machine", "said"),
    [
        (launching(), ("warn", 0.5)),  # or it loads its data, or simulates a world
        (launching(2), ("crit", 0.6)),
        (launching(busy_percent=79.0), ("warn", 0.5)),
        (launching(2, {"main_thread_percent": 55.0, "backward_percent": 40.0}), ("crit", 0.6)),  # they take turns
        (launching(2, {"main_thread_percent": 55.0, "backward_percent": 20.0}), None),
        (launching(busy_percent=14.0), ("warn", 0.5)),  # as eager kernels of a small model keep an H200
        (launching(busy_percent=7.0), None),
        (launching(busy_percent=86.0), None),
        (launching(sm_active_percent=36.0), None),
        (launching(trainer={"main_thread_percent": 79.0}), None),
        (launching(trainer={"world_size": 2}), None),  # its main thread may spin until the other rank is done
        (launching(2, {"world_size": 2}), ("crit", 0.6)),
        (launching(trainer={"read_chars_per_s": 1.1e6}), None),  # it loads its data
        (launching(trainer={"run_wait_percent": 31.0}), None),
        (launching(trainer={"write_chars_per_s": 101e3}), None),  # it writes
        (launching(busy_percent=lambda t: 46.0 + 18 * (-1) ** int(t / 2)), None),  # gaps that can be seen
        (launching(pcie_rx_bytes_per_s=1.1e9), None),  # it copies
        (launching(2, **{**NO_UNITS, "power_watts": 350.0}), ("crit", 0.6)),
        (launching(2, **{**NO_UNITS, "power_watts": 360.0}), None),
    ],
)
def test_overhead_bound(machine: Machine, said: tuple[str, float] | None) -> None:
    assert said_of(machine, "overhead-bound") == said


def test_without_loaders_loading_and_launching_look_the_same() -> None:
    finding = found(launching().verdict(90), "overhead-bound")
    assert finding is not None
    assert finding.headline.startswith("main-thread-bound, data loading or kernel launches")
    assert finding.steps[0].action == "stack"
    assert "torch.compile" not in (finding.steps[1].command or "")
    finding = found(launching(2).verdict(90), "overhead-bound")
    assert finding is not None
    assert finding.headline == "launch-bound, CPU overhead in the main thread"
    assert (finding.steps[0].command or "").startswith("model = torch.compile(")


@pytest.mark.parametrize("witness", ["trace", "notes"])
def test_who_was_seen_to_launch_small_kernels_is_told_so(witness: Literal["trace", "notes"]) -> None:
    seen = Fact(process=Identity(100, 1), witness=witness, name="launch-bound", text="it launches small kernels")
    finding = found(after(lambda t: replace(launching().frame(t), facts=(seen,)), 90), "overhead-bound")
    assert finding is not None
    assert finding.severity == "crit"
    assert finding.headline.startswith("launch-bound")


@pytest.mark.parametrize(
    ("libraries", "advised"),
    [
        ((), 'torch.compile(model, mode="reduce-overhead")'),
        (("torch", "jax", "cuda"), 'torch.compile(model, mode="reduce-overhead")'),
        (("jax", "cuda"), "jax.jit(step)"),
        (("tensorflow", "cuda"), "@tf.function(jit_compile=True)"),
        (("cuda",), "with CUDA graphs"),
    ],
)
@pytest.mark.parametrize("loaders", [0, 2])
def test_what_launches_fewer_kernels_depends_on_the_framework(
    loaders: int, libraries: tuple[str, ...], advised: str
) -> None:
    finding = found(launching(loaders, {"libraries": libraries}).verdict(90), "overhead-bound")
    assert finding is not None
    steps = " | ".join(f"{step.text} {step.command or ''}" for step in finding.steps)
    assert advised in steps
    assert ("torch" in steps, ".item()" in steps) == (("torch.compile" in advised),) * 2


@pytest.mark.parametrize(
    "machine",
    [
        launching(**refused(*UNITS, "power_watts", "memory_busy_percent")),
        launching(trainer=refused("read_chars_per_s")),
    ],
)
def test_overhead_bound_abstains(machine: Machine) -> None:
    said = machine.verdict(60)
    assert silent(said, "overhead-bound")
    assert found(said, "overhead-bound") is None


@pytest.mark.parametrize(
    ("gpu", "held_gib", "loaders", "fires"),
    [
        ({}, 19, 0, True),
        ({"busy_percent": 51.0}, 19, 0, False),
        ({}, 21, 0, False),
        ({"power_watts": 300.0}, 3, 0, False),
        ({}, 3, 2, False),  # it waits for its loaders
    ],
)
def test_small_job(gpu: dict[str, Any], held_gib: int, loaders: int, fires: bool) -> None:
    share = GpuShare(uuid="G", busy_percent=30.0, vram_bytes=held_gib * 2**30)
    trainer = {"gpus": (share,), "cpu_percent": 40.0, "main_thread_percent": 40.0}
    machine = Machine(gpu={"busy_percent": 30.0, "power_watts": 200.0, **gpu}, trainer=trainer, loaders=loaders)
    finding = found(machine.verdict(960), "small-job")
    assert (finding is not None) == fires
    if finding is not None:
        assert finding.severity == "info"
        assert "run about 3 such jobs" in finding.steps[1].text
        assert finding.evidence[-1].text == "for at least 15 min 58 s", "it may be older than anybody looked"


LINK = {"pcie_lane_bytes_per_s": 3.94e9, "pcie_width": 16}


@pytest.mark.parametrize(
    ("gpu", "said"),
    [
        ({**LINK, "pcie_rx_bytes_per_s": 38.5e9}, ("warn", 0.6)),
        ({**LINK, "pcie_rx_bytes_per_s": 37e9}, None),
        ({**LINK, "pcie_rx_bytes_per_s": 38.5e9, "pcie_tx_bytes_per_s": 8e9}, None),  # offloading
        ({**LINK, "pcie_rx_bytes_per_s": 38.5e9, "pcie_tx_bytes_per_s": 7e9}, ("warn", 0.6)),
        ({**LINK, "pcie_rx_bytes_per_s": 38.5e9, "busy_percent": 91.0}, None),
        ({**LINK, "pcie_rx_bytes_per_s": 1.1e9, "sm_active_percent": 29.0}, ("warn", 0.5)),
        ({**LINK, "pcie_rx_bytes_per_s": 1.1e9, "sm_active_percent": 31.0}, None),
        ({**LINK, "pcie_rx_bytes_per_s": 0.9e9, "sm_active_percent": 29.0}, None),
    ],
)
def test_h2d_transfer_bound(gpu: dict[str, Any], said: tuple[str, float] | None) -> None:
    assert said_of(Machine(gpu={"busy_percent": 60.0, **gpu}), "h2d-transfer-bound") == said


def test_h2d_transfer_bound_asks_for_pinned_memory_where_it_is_not_seen() -> None:
    for names, pin in (((), "DataLoader(..., pin_memory=True); "), ((("pt_data_pin", 1),), "")):
        gpu = {"busy_percent": 60.0, **LINK, "pcie_rx_bytes_per_s": 38.5e9}
        told = found(Machine(gpu=gpu, trainer={"thread_names": names}, loaders=2).verdict(), "h2d-transfer-bound")
        assert told is not None
        assert told.steps[0].command == f"{pin}x = x.to('cuda', non_blocking=True)"


def test_h2d_transfer_bound_abstains_where_who_copies_looks_like_who_computes() -> None:
    machine = Machine(gpu={"busy_percent": 60.0, "pcie_rx_bytes_per_s": 5e9, **refused("sm_active_percent")})
    assert silent(machine.verdict(90), "h2d-transfer-bound")


def test_h2d_transfer_bound_abstains_without_a_count_of_bytes() -> None:
    assert silent(Machine(gpu=refused("pcie_rx_bytes_per_s")).verdict(60), "h2d-transfer-bound")


@pytest.mark.parametrize(
    ("rule", "machine", "advised"),
    [
        ("gpu-bound-healthy", Machine(), ("mixed precision", "torch.compile", "more GPUs with DDP")),
        ("tensor-cores-idle", Machine(gpu={"fp32_percent": 44.0, "tensor_percent": 0.0}),
         ("set_float32_matmul_precision", "torch.bfloat16", "multiples of 8", "below 20 % gain")),
        ("busy-not-effective", Machine(gpu={"sm_active_percent": 1.0, "tensor_percent": 0.0, "dram_percent": 0.0}),
         ("larger batch", "torch.compile(model)", "CUDA graphs")),
        ("mem-bw-bound", Machine(gpu={"dram_percent": 62.0, "tensor_percent": 5.0}),
         ("torch.compile(model)", "fused=True", "scaled_dot_product_attention")),
        ("overhead-bound", launching(),
         ('mode="reduce-overhead"', "Double the batch", "up to 2.2× faster", ".item()")),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_each_regime_has_its_own_advice(rule: str, machine: Machine, advised: tuple[str, ...]) -> None:
    finding = found(machine.verdict(130), rule)
    assert finding is not None
    steps = " | ".join(f"{step.text} {step.command or ''}" for step in finding.steps)
    assert [words for words in advised if words not in steps] == [], steps
