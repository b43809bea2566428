"""What answers requests is not told how to train: a GPU that waits may just have nothing to do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gputop.model import GpuShare
from tests.judged import Machine, found
from tests.test_rules_efficiency import LINK, writing
from tests.test_rules_feed import alone, saturated

SERVER = {"command": ("VLLM::EngineCore",), "name": "VLLM::EngineCor"}
SMALL = Machine(
    gpu={"busy_percent": 30.0, "power_watts": 200.0},
    trainer={
        "gpus": (GpuShare(uuid="G", busy_percent=30.0, vram_bytes=19 * 2**30),),
        "cpu_percent": 40.0,
        "main_thread_percent": 40.0,
    },
)


@pytest.mark.parametrize(
    ("rule", "machine", "seconds"),
    [
        ("sync-log-stall", writing({"write_calls_per_s": 60.0}, busy=70.0, loaders=0), 130),
        ("loader-in-main", alone(gpu={"busy_percent": lambda t: 90.0 if int(t) % 8 < 5 else 0.0}), 150),
        ("starved-cpu-saturated", saturated(), 150),
        ("small-job", SMALL, 490),
        ("h2d-transfer-bound", Machine(gpu={"busy_percent": 60.0, **LINK, "pcie_rx_bytes_per_s": 38.5e9}), 150),
    ],
)
def test_training_is_told_and_a_server_is_not(rule: str, machine: Machine, seconds: int) -> None:
    assert found(machine.verdict(seconds), rule) is not None
    server = replace(machine, trainer=machine.trainer | SERVER)
    assert found(server.verdict(seconds), rule) is None
