"""Ranks that work for a part of each step and spin in a collective for the rest: means do not show that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gputop.diagnose.ranks.team import Team
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.view import View
from gputop.history import Window

_OVER_S = 45.0  # some steps, of whatever length
_LEAST = 20  # values
_LOW, _HIGH = 0.10, 0.95  # percentiles between which a signal moves
_WORKS = 2.0  # points of 100: a signal that never gets so far shows no work


class Spins(NamedTuple):
    """How a signal of work moves in the steps of one rank; `share` is of the time, in which it does less than most."""

    signal: str
    share: float  # 0-1
    low: float
    high: float


def spins(view: View, team: Team) -> list[list[Spins]]:
    """Of all ranks by each signal that all of them have: the same step of the same work, so the rest is waiting.

    A rank that works through the whole step has as much of it on the average as those that work more and then wait.
    """
    found = [[_by(name, values) for values in rows] for name, rows in _signals(view, team)]
    return [[one for one in ranks if one is not None] for ranks in found if None not in ranks]


def _signals(view: View, team: Team) -> list[tuple[str, list[Sequence[float]]]]:
    """Tensor cores and power by the second, and power as finely as the driver samples it."""
    tensor = [_joined(view, one, "tensor_percent") for one in team.ranks]
    power = [_above_idle(one, _joined(view, one, "power_watts")) for one in team.ranks]
    fine = [_above_idle(one, _powers(one)) for one in team.ranks]
    return [("tensor cores", tensor), ("power above idle", power), ("power above idle", fine)]


def _joined(view: View, one: Trainer, metric: str) -> Sequence[float]:
    """Of the first GPU that it works on: its others are in step with that."""
    return view.window(one.works_on[0], metric, _OVER_S).values if one.works_on else ()


def _powers(one: Trainer) -> Sequence[float]:
    """What the same GPU drew, as finely as the driver samples it; nothing where it does not."""
    card = one.cards.get(one.works_on[0].uuid) if one.works_on else None
    return list(card.powers) if card else ()


def _above_idle(one: Trainer, watts: Sequence[float]) -> Sequence[float]:
    """Percent of what lies between idle and the limit."""
    if not one.works_on or not watts:
        return ()
    gpu = one.works_on[0]
    card, limit = one.cards.get(gpu.uuid), gpu.power_limit_watts
    idle = card.idle_watts(gpu) if card else None
    if idle is None or limit is None or limit <= idle:
        return ()
    return [100 * max(0.0, value - idle) / (limit - idle) for value in watts]


def _by(signal: str, values: Sequence[float]) -> Spins | None:
    window = Window(values)
    low, high, mean = window.percentile(_LOW), window.percentile(_HIGH), window.mean()
    if len(values) < _LEAST or low is None or high is None or mean is None or high < _WORKS:
        return None
    return Spins(signal, max(0.0, 1 - mean / high), low, high)
