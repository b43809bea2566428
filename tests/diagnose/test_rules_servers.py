"""What answers requests is not told how to train: a GPU that waits may just have nothing to do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gputop.model import GpuShare
from tests.diagnose.test_rules_efficiency import LINK
from tests.diagnose.test_rules_feed import alone, saturated
from tests.diagnose.test_rules_stalls import writing
from tests.rule_cases import Machine, found

SERVER = {"command": ("VLLM::EngineCore",), "name": "VLLM::EngineCor"}
READS_ALONE = Machine(
    gpu={"busy_percent": 60.0}, trainer={"allowed_cpus": 2.0, "cpu_percent": 180.0, "read_chars_per_s": 5e6}
)
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
        ("sync-log-stall", writing({"write_calls_per_s": 60.0, "write_chars_per_s": 6e3}, busy=70.0, loaders=0), 130),
        ("loader-in-main", alone(gpu={"busy_percent": lambda t: 90.0 if int(t) % 8 < 5 else 0.0}), 150),
        ("starved-cpu-saturated", READS_ALONE, 150),
        ("small-job", SMALL, 960),
        ("h2d-transfer-bound", Machine(gpu={"busy_percent": 60.0, **LINK, "pcie_rx_bytes_per_s": 38.5e9}), 150),
    ],
)
def test_training_is_told_and_a_server_is_not(rule: str, machine: Machine, seconds: int) -> None:
    assert found(machine.verdict(seconds), rule) is not None
    server = replace(machine, trainer=machine.trainer | SERVER)
    assert found(server.verdict(seconds), rule) is None


@pytest.mark.parametrize("script", ["train_observer.py", "train_triton.py"])
def test_who_has_loaders_or_the_name_of_a_trainer_is_no_server(script: str) -> None:
    for machine in (saturated(), READS_ALONE):
        one = replace(machine, trainer=machine.trainer | {"command": ("python", script)})
        assert found(one.verdict(150), "starved-cpu-saturated") is not None
    config = ("deepspeed", "pretrain.py", "-c", "zero_reserve.json")
    one = replace(READS_ALONE, trainer=READS_ALONE.trainer | {"command": config})
    assert found(one.verdict(150), "starved-cpu-saturated") is not None
    served = replace(saturated(), trainer=saturated().trainer | {"command": ("python", "conservative.py")})
    assert found(served.verdict(150), "starved-cpu-saturated") is not None, "a server has no loaders"
