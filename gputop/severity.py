"""Limits above which something is urgent: what a loss costs, and how full a resource of the machine is."""

from __future__ import annotations

import math
from typing import Literal

from gputop.frozen_dataclass import frozen_dataclass

Severity = Literal["info", "warn", "crit"]

# shares of the GPU's time, 0-1; [engine] lost_* of thresholds.toml, which a test holds equal
LOST: tuple[tuple[Severity, float], ...] = (("crit", 0.50), ("warn", 0.20), ("info", 0.10))


def by_lost_share(lost: float | None, at_most: Literal["warn", "crit"] = "crit") -> Severity:
    """How urgent it is to lose this share; info where it is little or unknown, and never more than `at_most`."""
    reached: Severity = next((name for name, least in LOST if lost is not None and lost >= least), "info")
    return at_most if reached == "crit" else reached


CPU_PERCENT = 90.0  # of all CPUs, as the guides that gputop was made from have it


@frozen_dataclass(frozen=True, slots=True)
class Levels:
    """From where on a value is amber, and from where on it is red."""

    warn: float
    crit: float = math.inf


CPU = Levels(CPU_PERCENT)  # all CPUs in use is full use: never red by itself
MEMORY = Levels(90.0, 97.0)  # in use of all, percent
WAIT = Levels(30.0, 80.0)  # time that threads wait for a CPU, of waiting and running
IO_WAIT = Levels(20.0, 60.0)  # time blocked on storage
PRESSURE = Levels(50.0)  # PSI: time in which some task was stalled; a busy machine is rarely at 0
PORT = Levels(80.0)  # of the speed of a network port, in the busier direction
STEAL = Levels(5.0, 20.0)  # CPU time taken by other virtual machines
THROTTLED = Levels(10.0, 50.0)  # periods in which a cgroup ran out of its CPU quota


def share_percent(used: float | None, total: float | None) -> float | None:
    """What is used of all, in percent; None where either is not known."""
    return None if used is None or not total else 100 * used / total


def level(value: float | None, levels: Levels) -> Literal["warn", "crit", ""]:
    """Which of them a value has reached."""
    if value is None or value < levels.warn:
        return ""
    return "crit" if value >= levels.crit else "warn"
