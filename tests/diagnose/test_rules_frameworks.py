"""Commands are those of the framework that a program uses: of PyTorch for PyTorch, or where nobody can tell."""

from __future__ import annotations

from typing import Any

import pytest

from tests.diagnose.test_rules_cpu_quota import confined
from tests.rule_cases import Machine, after, found

SLOW: dict[str, Any] = {"busy_percent": 40.0, "power_watts": 180.0}
GAPS: dict[str, Any] = {**SLOW, "busy_percent": lambda t: 100.0 * (t % 8 < 4)}
FP32: dict[str, Any] = {"fp32_percent": 44.0, "tensor_percent": 0.0}
MEMORY: dict[str, Any] = {"dram_percent": 62.0, "tensor_percent": 5.0}
MDRUN: dict[str, Any] = {"name": "gmx", "command": ("gmx", "mdrun"), "libraries": ("cuda", "gomp")}


def told(machine: Machine, rule: str) -> tuple[str, str]:
    """The headline, and all that is advised."""
    finding = found(machine.verdict(130), rule)
    assert finding is not None
    return finding.headline, " | ".join(f"{step.text} {step.command or ''}" for step in finding.steps)


@pytest.mark.parametrize(
    ("libraries", "advised"),
    [
        ((), "DataLoader(..., num_workers=8"),
        (("torch", "jax", "cuda"), "DataLoader(..., num_workers=8"),
        (("jax", "cuda"), "grain.DataLoader(..., worker_count=8)"),
        (("tensorflow", "jax", "cuda"), "num_parallel_calls=tf.data.AUTOTUNE"),
        (("cuda",), "Load data in worker processes"),
    ],
)
def test_who_loads_itself_is_told_of_the_loaders_of_its_framework(libraries: tuple[str, ...], advised: str) -> None:
    trainer = {"read_chars_per_s": 40e6, "libraries": libraries}
    headline, steps = told(Machine(gpu=SLOW, trainer=trainer), "loader-in-main")
    assert advised in steps
    torch = not libraries or "torch" in libraries
    assert (headline.endswith("(num_workers=0)"), "num_workers" in steps) == (torch, torch)


def test_a_simulation_is_not_told_of_loaders_of_pytorch_nor_to_look_at_a_stack_of_python() -> None:
    machine = Machine(gpu=GAPS, trainer=MDRUN)
    headline, steps = told(machine, "loader-in-main")
    assert headline.endswith("data loading or other CPU work")
    assert "DataLoader" not in steps
    finding = found(machine.verdict(130), "loader-in-main")
    assert finding is not None
    assert not [step for step in finding.steps if step.action == "stack"]


@pytest.mark.parametrize("libraries", [("tensorflow", "cuda"), ("jax", "cuda"), ("cuda",)])
@pytest.mark.parametrize(("gpu", "rule"), [(FP32, "tensor-cores-idle"), (MEMORY, "mem-bw-bound")])
def test_no_command_of_pytorch_for_who_has_none(gpu: dict[str, Any], rule: str, libraries: tuple[str, ...]) -> None:
    _, steps = told(Machine(gpu=gpu, trainer={"libraries": libraries}), rule)
    assert "torch" not in steps
    assert ("tf." in steps) == ("tensorflow" in libraries)
    assert ("jax" in steps) == ("jax" in libraries)


@pytest.mark.parametrize(
    ("libraries", "commands"),
    [
        (("torch",), ["DataLoader(..., num_workers=3)", "torch.set_num_threads(4)"]),
        (("jax",), [None, "export OMP_NUM_THREADS=4"]),
    ],
)
def test_within_a_quota_each_framework_has_its_own_words(libraries: tuple[str, ...], commands: list[str]) -> None:
    made = confined(2.4, loaders=4, throttled_percent=63.0, container="abc", libraries=libraries)
    finding = found(after(made), "cpu-quota")
    assert finding is not None
    assert [step.command for step in finding.steps][1:] == commands
