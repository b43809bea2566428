"""What PyTorch calls its settings by release, and the wheels that fit a driver."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version
from importlib.util import find_spec

import pytest

from gputop import pytorch


@pytest.mark.parametrize(
    ("version", "name"),
    [
        (None, "PYTORCH_CUDA_ALLOC_CONF"),
        ("2.4.1+cu121", "PYTORCH_CUDA_ALLOC_CONF"),
        ("2.9.1+cu128", "PYTORCH_CUDA_ALLOC_CONF"),  # it ignores the new name: pytorch#183387
        ("2.11.0", "PYTORCH_ALLOC_CONF"),
        ("2.13.0+cpu", "PYTORCH_ALLOC_CONF"),
    ],
)
def test_the_allocator_is_set_under_the_name_that_the_release_obeys(version: str | None, name: str) -> None:
    assert pytorch.allocator("expandable_segments:True", version) == f"export {name}=expandable_segments:True"


def test_and_the_pytorch_of_these_tests_obeys_it() -> None:
    name, _, value = pytorch.allocator("expandable_segments:True", version("torch")).split()[1].partition("=")
    asks = "import torch; print(torch._C._accelerator_getAllocatorSettings())"
    said = subprocess.run([sys.executable, "-c", asks], env={**os.environ, name: value}, capture_output=True, text=True)
    assert said.stdout.strip() == "expandable_segments:True", said.stderr
    assert "deprecated" not in said.stderr


@pytest.mark.parametrize(
    ("version", "size", "file"),
    [
        (None, "TORCH_NCCL_TRACE_BUFFER_SIZE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"),
        ("2.8.0", "TORCH_NCCL_TRACE_BUFFER_SIZE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"),
        ("2.9.0+cu128", "TORCH_FR_BUFFER_SIZE", "TORCH_FR_DUMP_TEMP_FILE"),
        ("2.13.0", "TORCH_FR_BUFFER_SIZE", "TORCH_FR_DUMP_TEMP_FILE"),
    ],
)
def test_the_flight_recorder_has_the_names_of_the_release(version: str | None, size: str, file: str) -> None:
    line = pytorch.flight_recorder(version)
    assert f" {size}=2000 " in line
    assert f" {file}=" in line
    assert "TORCH_NCCL_DUMP_ON_TIMEOUT=1" in line


def test_and_the_pytorch_of_these_tests_knows_them() -> None:
    torch = find_spec("torch")
    assert torch is not None
    assert torch.origin is not None
    library = os.path.join(os.path.dirname(torch.origin), "lib", "libtorch_cpu.so")
    with open(library, "rb") as file:
        text = file.read()
    for word in pytorch.flight_recorder(version("torch")).split()[2:]:
        assert word.partition("=")[0].encode() in text


@pytest.mark.parametrize(
    ("driver", "capabilities", "built_for"),
    [
        ("11.4", [(8, 0)], "cu118"),
        ("12.2", [(8, 0)], "cu126"),
        ("12.8", [(12, 0)], "cu128"),
        ("12.8", [(7, 0)], "cu126"),
        ("13.0", [(9, 0)], "cu130"),
        ("13.0", [(7, 0), (9, 0)], "cu126"),
        ("13.1", [], "cu130"),
    ],
)
def test_wheels_run_on_the_driver_and_have_kernels_for_all_gpus(
    driver: str, capabilities: list[tuple[int, int]], built_for: str
) -> None:
    assert pytorch.wheels(driver, capabilities) == f"{pytorch.INDEX}/{built_for}"


def test_nothing_is_advised_for_a_driver_that_nobody_knows() -> None:
    assert pytorch.wheels(None, [(9, 0)]) is None
    assert pytorch.reinstall("?") is None
