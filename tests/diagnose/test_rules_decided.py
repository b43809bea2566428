"""The figures that decided are told with the limits that they were held against."""

from __future__ import annotations

from typing import Any

import pytest

from tests.rule_cases import Machine, found


@pytest.mark.parametrize(
    ("rule", "gpu", "limits"),
    [
        ("busy-not-effective", {"sm_active_percent": 29.0}, {"SM activity": 30, "tensor activity": None}),
        ("busy-not-effective", {"sm_active_percent": 49.0, "tensor_percent": 4.0, "dram_percent": 20.0},
         {"SM activity": 50, "tensor activity": 5, "memory bandwidth": 24}),
        ("h2d-transfer-bound", {"busy_percent": 60.0, "pcie_rx_bytes_per_s": 1.1e9, "sm_active_percent": 29.0},
         {"SM activity": 30, "main thread": 70, "tensor activity": None}),
    ],
)  # fmt: skip
def test_the_numbers_that_decide_have_limits(rule: str, gpu: dict[str, Any], limits: dict[str, float]) -> None:
    finding = found(Machine(gpu=gpu).verdict(90), rule)
    assert finding is not None
    for name, limit in limits.items():
        (item,) = (item for item in finding.evidence if item.text.startswith(name))
        assert item.limit == (limit and pytest.approx(limit)), name
