"""Simulated servers: a source of frames that needs no GPU."""

from __future__ import annotations

from gputop.demo.scenarios import SCENARIOS
from gputop.demo.server import Scenario
from gputop.demo.source import Demo
from gputop.suggest import unknown

__all__ = ["SCENARIOS", "Demo", "Scenario", "open_demo"]


def open_demo(name: str, pace: bool = True, interval_s: float = 1.0) -> Demo:
    """The simulated server of that name as a source; ValueError names the nearest one."""
    if name not in SCENARIOS:
        raise ValueError(unknown("demo", name, SCENARIOS, "`gputop demo --list` lists them"))
    return Demo(SCENARIOS[name], pace=pace, interval_s=interval_s, others=SCENARIOS)
