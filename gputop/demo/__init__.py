"""Simulated servers: a source of frames that needs no GPU."""

from __future__ import annotations

import difflib

from gputop.demo.scenarios import SCENARIOS
from gputop.demo.server import Scenario
from gputop.demo.source import Demo

__all__ = ["SCENARIOS", "Demo", "Scenario", "open_demo"]


def open_demo(name: str, pace: bool = True, interval_s: float = 1.0) -> Demo:
    """The simulated server of that name as a source; ValueError names the nearest ones."""
    if name not in SCENARIOS:
        near = difflib.get_close_matches(name, SCENARIOS, n=3, cutoff=0.6) or ["showcase"]
        raise ValueError(f"no demo is named {name!r}: try {', '.join(near)}; `gputop demo --list` lists all")
    return Demo(SCENARIOS[name], pace=pace, interval_s=interval_s, others=SCENARIOS)
