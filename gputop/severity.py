"""Severity limits: for losses, and for utilization of machine resources."""

from __future__ import annotations

import math
from typing import Literal

from gputop.frozen_dataclass import frozen_dataclass

Severity = Literal["info", "warn", "crit"]

# shares of GPU time, 0-1; [engine] lost_* of thresholds.toml, kept equal by a test
LOST: tuple[tuple[Severity, float], ...] = (("crit", 0.50), ("warn", 0.20), ("info", 0.10))


def by_lost_share(lost: float | None, at_most: Literal["warn", "crit"] = "crit") -> Severity:
    """Severity of losing this share; info if small or unknown, at most `at_most`."""
    reached: Severity = next((name for name, least in LOST if lost is not None and lost >= least), "info")
    return at_most if reached == "crit" else reached


CPU_PERCENT = 90.0  # of all CPUs, as in the guides behind gputop


@frozen_dataclass(frozen=True, slots=True)
class Levels:
    """Values from which a level is amber, and red."""

    warn: float
    crit: float = math.inf


CPU = Levels(CPU_PERCENT)  # all CPUs in use is full use: never red by itself
MEMORY = Levels(90.0, 97.0)  # percent in use
WAIT = Levels(30.0, 80.0)  # run-queue wait, relative to waiting and running
IO_WAIT = Levels(20.0, 60.0)  # time blocked on storage
PRESSURE = Levels(50.0)  # PSI: time in which some task was stalled; rarely 0 on a busy machine
PORT = Levels(80.0)  # of a network port's speed, in the busier direction
STEAL = Levels(5.0, 20.0)  # CPU time taken by other virtual machines
THROTTLED = Levels(10.0, 50.0)  # periods in which a cgroup exhausted its CPU quota


def share_percent(used: float | None, total: float | None) -> float | None:
    """Used share in percent; None if either is unknown."""
    return None if used is None or not total else 100 * used / total


def level(value: float | None, levels: Levels) -> Literal["warn", "crit", ""]:
    """The level that a value has reached."""
    if value is None or value < levels.warn:
        return ""
    return "crit" if value >= levels.crit else "warn"
