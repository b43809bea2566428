"""Weights and optimizer states that live in host memory or on NVMe: nothing a data set or its loaders could change."""

from __future__ import annotations

from typing import Any

import pytest

from gputop.diagnose import Finding
from gputop.model import Disk
from tests.rule_cases import Machine, found

OFFLOADS: dict[str, Any] = {
    "busy_percent": 50.0, "power_watts": 300.0, "sm_active_percent": 22.0, "tensor_percent": 12.0,
    "pcie_rx_bytes_per_s": 6e9, "pcie_tx_bytes_per_s": 2.4e9,
}  # fmt: skip
ADAM: dict[str, Any] = {"cpu_percent": 700.0, "busy_threads": 16}  # on the CPU
STREAMS = OFFLOADS | {"busy_percent": 40.0, "pcie_rx_bytes_per_s": 45e9, "pcie_tx_bytes_per_s": 0.5e9}


def steps(finding: Finding) -> str:
    return " | ".join(f"{step.text} {step.command or ''}" for step in finding.steps)


@pytest.mark.parametrize(("sent", "rule"), [(2.4e9, None), (1.1e9, "h2d-transfer-bound")])
def test_an_optimizer_on_the_cpu_is_told_neither_of_copies_nor_of_launches(sent: float, rule: str | None) -> None:
    said = Machine(gpu={**OFFLOADS, "pcie_tx_bytes_per_s": sent}, trainer=ADAM).verdict()
    told = {one.rule for one in said.findings} & {"h2d-transfer-bound", "overhead-bound"}
    assert told == ({rule} if rule else set())


def test_one_core_that_launches_kernels_is_told_of_launches_whatever_ranks_exchange() -> None:
    assert found(Machine(gpu=OFFLOADS).verdict(), "overhead-bound") is not None


def test_who_streams_its_weights_is_told_to_offload_less() -> None:
    finding = found(Machine(gpu=STREAMS).verdict(), "h2d-transfer-bound")
    assert finding is not None
    assert finding.steps[0].text.startswith("If weights or optimizer states are offloaded, offload less")
    assert "DataLoader" not in steps(finding)
    assert "uint8" not in steps(finding)


@pytest.mark.parametrize(
    "dials",
    [
        {"loaders": 2},
        {"trainer": {"read_chars_per_s": 2e6}},
        {"trainer": {"thread_names": (("pt_data_pin", 1),)}},
        {"trainer": {"read_bytes_per_s": None, "read_chars_per_s": None}},  # nobody knows
    ],
)
def test_who_has_data_to_send_is_told_to_pin_them(dials: dict[str, Any]) -> None:
    finding = found(Machine(gpu=STREAMS, **dials).verdict(), "h2d-transfer-bound")
    assert finding is not None
    assert "uint8" in steps(finding)
    assert "offload" not in steps(finding)


def swapping(reads: float, writes: float, loaders: int = 0, **loader: float) -> Machine:
    """States on a drive, read and written in turn by the training process itself."""
    disk = Disk(
        name="nvme0n1", read_bytes_per_s=3.2e9, write_bytes_per_s=2.6e9, reads_per_s=12e3, busy_percent=99.0,
        await_s=0.004,
    )  # fmt: skip
    own = {"read_bytes_per_s": reads, "write_bytes_per_s": writes, "blocked_percent": 20.0, "read_calls_per_s": 3e3}
    trainer = {**own, "read_chars_per_s": reads, "write_chars_per_s": writes, "cpu_percent": 300.0}
    return Machine(
        gpu={"busy_percent": 35.0, "power_watts": 250.0, "sm_active_percent": 20.0},
        trainer={**trainer, "main_thread_percent": 90.0},
        loader={"blocked_percent": 20.0, **loader},
        host={"disks": (disk,), "read_bytes_per_s": 3.2e9, "write_bytes_per_s": 2.6e9},
        loaders=loaders,
    )


@pytest.mark.parametrize(
    ("machine", "states"),
    [
        (swapping(3.2e9, 2.6e9), True),
        (swapping(3.2e9, 1.61e9), True),
        (swapping(3.2e9, 1.59e9), False),
        (swapping(3.2e9, 0.1e9), False),
        (swapping(3.2e9, 2.6e9, loaders=2), True),
        (swapping(0.1e9, 2.6e9, loaders=2, read_bytes_per_s=1.55e9), False),  # a checkpoint beside a data set
    ],
)
def test_states_that_are_swapped_to_a_drive_are_no_data_set(machine: Machine, states: bool) -> None:
    finding = found(machine.verdict(60), "io-bound")
    assert finding is not None
    assert finding.steps[0].text.startswith("Offload what fits to CPU memory instead of NVMe") == states
    assert ("WebDataset" in steps(finding)) != states
    assert any("typical of NVMe offload" in item.text for item in finding.evidence) == states
