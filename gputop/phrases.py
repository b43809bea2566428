"""Phrases that live findings, traces and measurements share: shares, reference values, the possible gain."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Literal

from gputop import units

Sense = Literal["healthy_from", "healthy_to", "flagged_above", "flagged_from", "flagged_below"]
_SENSES: dict[Sense | None, str] = {
    "healthy_from": "healthy ≥",
    "healthy_to": "healthy ≤",
    "flagged_above": "flagged above",
    "flagged_from": "flagged ≥",
    "flagged_below": "flagged below",
    None: "threshold",
}

_UNITS: Mapping[str, tuple[str, Callable[[float], str]]] = {  # by the end of a threshold's name: that of evidence, text
    "_percent": ("%", lambda value: f"{value:.3g} %"),
    "_celsius": ("C", lambda value: f"{value:.3g} °C"),
    "bytes_per_s": ("B/s", lambda value: f"{units.decimal(value)}/s"),
    "bytes": ("B", units.decimal),
    "_per_s": ("1/s", lambda value: f"{value:.4g}/s"),
    "_s": ("s", lambda value: f"{1000 * value:.3g} ms" if value < 1 else f"{value:.4g} s"),
}


def held_against(limit: str, sense: Sense | None) -> str:
    """The reference value of a measurement, and which side of it is meant: `healthy ≥ 80 %`."""
    return f"{_SENSES[sense]} {limit}"


def threshold_value(name: str, value: float) -> str:
    """A threshold's value with the unit that its name ends in: `85 %`, `20 MB/s`, `4 °C`; shares and counts bare."""
    text = next((text for suffix, (_, text) in _UNITS.items() if name.endswith(suffix)), None)
    return text(value) if text else f"{value:.3g}"


def threshold_unit(name: str) -> str | None:
    """The unit that a threshold's name ends in, as evidence has it; None for shares and counts."""
    return next((unit for suffix, (unit, _) in _UNITS.items() if name.endswith(suffix)), None)


def percent(share: float, digits: int = 0) -> str:
    """A share (0-1) in a sentence: `55 %`; with one digit `0.4 %`."""
    return f"{100 * share:.{digits}f} %"


def at_most(lost_share: float, most: float = math.inf) -> str:
    """The gain possible for a lost share below 1: an upper bound, no promise. `most`: another bound, as a factor."""
    times = min(1 / (1 - lost_share), most)
    return f"up to {times:.{0 if times >= 10 else 1}f}× faster"
