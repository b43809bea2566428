"""Jobs that wait for their loaders."""

from __future__ import annotations

from collections.abc import Iterator

from gputop.demo.scenarios.parts import fault
from gputop.demo.server import Scenario


def scenarios() -> Iterator[Scenario]:
    """Each plants the rule it is named after."""
    hungry = {"watts": 300, "sm": 60, "tensor": 30, "dram": 25, "main_cpu": 30}
    yield fault(
        "starved-cpu-saturated", "sixteen loaders use every CPU and are still too slow",
        loaders=16, period_s=1.3, duty=0.4, jitter=0.1, loader_cpu=96, cpu_pressure=30, **hungry,
    )  # fmt: skip
    yield fault(
        "starved-cpu-idle", "two loaders for a fast model: most CPUs are idle",
        loaders=2, period_s=0.8, duty=0.55, jitter=0.1, loader_cpu=97, **hungry,
    )  # fmt: skip
    yield fault(
        "starved-cpu-idle-flat", "the same with steps too short to see",
        loaders=3, period_s=0.15, duty=0.45, jitter=0.1, loader_cpu=98, **hungry,
    )  # fmt: skip
    yield fault(
        "loader-in-main", "the training process loads its own data, between its steps",
        loaders=0, period_s=1.0, duty=0.35, jitter=0.1, main_chars=40e6, **{**hungry, "main_cpu": 100},
    )  # fmt: skip
