"""The numbers of the rules: tables of thresholds.toml, with what a site sets instead."""

from __future__ import annotations

from collections.abc import Mapping

Table = Mapping[str, float]
Limits = Mapping[str, Table]

# what a rule need not say of itself, in seconds and shares
DEFAULTS: Table = {"window_s": 30.0, "on_s": 30.0}
_LENIENT, _POINTS = 0.1, 5.0  # how much further a value must go back before a finding leaves


class Numbers(dict[str, tuple[float, float]]):
    """The numbers of one rule, each with how lenient it is: worked out when it is asked for, once.

    `starved.duty` is a number of another table. `held` are those that values were held against: 1 where the rule wants
    the limit or more, -1 where it wants the limit or less.
    """

    def __init__(self, rule: str, limits: Limits) -> None:
        super().__init__()
        self._rule, self._table, self._limits = rule, {**DEFAULTS, **limits.get(rule, {})}, limits
        self.held: dict[str, int] = {}

    def __missing__(self, name: str) -> tuple[float, float]:
        other, dot, inner = name.partition(".")
        table, short = (self._limits[other], inner) if dot else (self._table, name)
        found = self[name] = (table[short], lenient(table, short))
        return found

    def leaving(self) -> dict[str, tuple[float, float]]:
        """By table and name each limit that values were held against, and where it is for leaving."""
        # a rule asks for a number of its own by its name, what serves several rules by that of its table, too
        found = {}
        for name, sign in list(self.held.items()):
            limit, slack = self[name]
            found[name if "." in name else f"{self._rule}.{name}"] = limit, limit - sign * slack
        return found


class Tables(dict[str, Numbers]):
    """The same by rule."""

    def __init__(self, limits: Limits) -> None:
        super().__init__()
        self.limits = limits

    def __missing__(self, rule: str) -> Numbers:
        found = self[rule] = Numbers(rule, self.limits)
        return found


def lenient(table: Table, name: str) -> float:
    """How far behind a limit a finding still holds: to `NAME_exit` where the table has one, else 10 % or 5 points.

    Never more than half of the limit: what is nearly nothing must be able to leave.
    """
    limit = table[name]
    if f"{name}_exit" in table:
        return abs(table[f"{name}_exit"] - limit)
    points = _POINTS if name.endswith("_percent") else _POINTS / 100 if abs(limit) <= 1 else 0.0
    return min(max(_LENIENT * abs(limit), points), 0.5 * abs(limit))
