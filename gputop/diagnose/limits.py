"""The numbers of the rules: tables of thresholds.toml, with what a site sets instead."""

from __future__ import annotations

from collections.abc import Mapping

Table = Mapping[str, float]
Limits = Mapping[str, Table]

# what a rule need not say of itself, in seconds and shares
DEFAULTS: Table = {"window_s": 30.0, "on_s": 30.0}
_LENIENT, _POINTS = 0.1, 5.0  # how much further a value must go back before a finding leaves


def lenient(table: Table, name: str) -> float:
    """How far behind a limit a finding still holds: to `NAME_exit` where the table has one, else 10 % or 5 points.

    Never more than half of the limit: what is nearly nothing must be able to leave.
    """
    limit = table[name]
    if f"{name}_exit" in table:
        return abs(table[f"{name}_exit"] - limit)
    points = _POINTS if name.endswith("_percent") else _POINTS / 100 if abs(limit) <= 1 else 0.0
    return min(max(_LENIENT * abs(limit), points), 0.5 * abs(limit))
