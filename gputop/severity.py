"""One scale for what is lost: a cause is as urgent in a trace or a profile as in the rule that names it."""

from __future__ import annotations

from typing import Literal

Severity = Literal["info", "warn", "crit"]

# shares of the GPU's time, 0-1; [engine] lost_* of thresholds.toml, which a test holds equal
LOST: tuple[tuple[Severity, float], ...] = (("crit", 0.50), ("warn", 0.20), ("info", 0.10))


def by_lost_share(lost: float | None, at_most: Literal["warn", "crit"] = "crit") -> Severity:
    """How urgent it is to lose this share; info where it is little or unknown, and never more than `at_most`."""
    reached: Severity = next((name for name, least in LOST if lost is not None and lost >= least), "info")
    return at_most if reached == "crit" else reached
