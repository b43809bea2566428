"""The numbers of the rules: tables of thresholds.toml with a site's overrides."""

from __future__ import annotations

from collections.abc import Mapping

Table = Mapping[str, float]
Limits = Mapping[str, Table]

# defaults in seconds and shares, for what a rule does not declare
DEFAULTS: Table = {"window_s": 30.0, "on_s": 30.0}
_LENIENT, _POINTS = 0.1, 5.0  # how much further a value must go back before a finding clears


class RuleNumbers(dict[str, tuple[float, float]]):
    """The numbers of one rule, each with its hysteresis: computed on first access.

    `starved.duty` is a number of another table. `held` records the limits that values were compared with: 1 where the
    rule wants at least the limit, -1 where it wants at most the limit.
    """

    def __init__(self, rule: str, limits: Limits) -> None:
        super().__init__()
        self._rule, self._table, self._limits = rule, {**DEFAULTS, **limits.get(rule, {})}, limits
        self.held: dict[str, int] = {}

    def __missing__(self, name: str) -> tuple[float, float]:
        other, dot, inner = name.partition(".")
        table, short = (self._limits[other], inner) if dot else (self._table, name)
        found = self[name] = (table[short], leniency(table, short))
        return found

    def clearing(self) -> dict[str, tuple[float, float]]:
        """By table and name: each limit that values were compared with, and the limit for clearing."""
        # a rule refers to its own numbers by name, and to shared ones by table and name
        found = {}
        for name, sign in list(self.held.items()):
            limit, slack = self[name]
            found[name if "." in name else f"{self._rule}.{name}"] = limit, limit - sign * slack
        return found


class Tables(dict[str, RuleNumbers]):
    """The same by rule."""

    def __init__(self, limits: Limits) -> None:
        super().__init__()
        self.limits = limits

    def __missing__(self, rule: str) -> RuleNumbers:
        found = self[rule] = RuleNumbers(rule, self.limits)
        return found


def leniency(table: Table, name: str) -> float:
    """How far behind a limit a finding still holds: up to `NAME_exit` if the table has one, else 10 % or 5 points.

    At most half of the limit, so that a finding with a tiny limit can clear.
    """
    limit = table[name]
    if f"{name}_exit" in table:
        return abs(table[f"{name}_exit"] - limit)
    points = _POINTS if name.endswith("_percent") else _POINTS / 100 if abs(limit) <= 1 else 0.0
    return min(max(_LENIENT * abs(limit), points), 0.5 * abs(limit))
