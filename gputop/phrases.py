"""Phrases that live findings, traces and measurements share: a share, its reference value, the possible gain."""

from __future__ import annotations

import math
from typing import Literal

Sense = Literal["healthy_from", "healthy_to", "flagged_above", "flagged_from", "flagged_below"]
_SENSES: dict[Sense | None, str] = {
    "healthy_from": "healthy ≥",
    "healthy_to": "healthy ≤",
    "flagged_above": "flagged above",
    "flagged_from": "flagged ≥",
    "flagged_below": "flagged below",
    None: "threshold",
}


def held_against(limit: str, sense: Sense | None) -> str:
    """The reference value of a measurement, and which side of it is meant: `healthy ≥ 80 %`."""
    return f"{_SENSES[sense]} {limit}"


def percent(share: float) -> str:
    """A share (0-1) in a sentence: `55 %`."""
    return f"{100 * share:.0f} %"


def at_most(lost_share: float, most: float = math.inf) -> str:
    """The gain possible for a lost share below 1: an upper bound, no promise. `most`: another bound, as a factor."""
    times = min(1 / (1 - lost_share), most)
    return f"up to {times:.{0 if times >= 10 else 1}f}× faster"
