"""The word a GPU's row ends in, where no rule has a better one: what it is doing or what is wrong with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, Protocol

from gputop.frozen_dataclass import frozen_dataclass
from gputop.model import Gpu, Identity
from gputop.optional_sums import mean
from gputop.ui.theme import Token
from gputop.units import ago

IDLE_BELOW = 1.0  # percent busy
IDLE_AFTER_S = 60.0
POWER_CAP_SHARE = 80.0  # percent of the last HELD_S
HEAT_SHARE = 2.0  # percent of the last HELD_S
HELD_S = 10.0
_FINE_S, _LONG_S, _LONG_STEP_S = 900.0, 14400.0, 15.0  # how far back, and in steps of what


class GpuHistory(Protocol):
    """What a pane reads of the history."""

    def values(self, key: str | Identity, metric: str, seconds: float, step_s: float = 1.0) -> Sequence[float | None]:
        """The last `seconds` of a metric of a GPU's uuid, a process or "host", oldest first, None for a gap."""
        ...


@frozen_dataclass(frozen=True, slots=True)
class State:
    """A word, its short form for a cell, its colour, and the sign that carries its weight without colour."""

    word: str
    short: str
    token: Token = "text"
    sign: Literal["crit", "warn", ""] = ""
    stale: bool = False  # the values beside it are not of now
    hot: bool = False  # temperature and clock are what it rests on

    @property
    def shade(self) -> Token:
        """The colour of its utilisation: calm, so that amber and red stand out from afar."""
        if self.stale:
            return "dim"
        by_sign: dict[str, Token] = {"crit": "crit area", "warn": "warn area"}
        return by_sign.get(self.sign, "good area" if self.token == "good" else "busy area")


def state(gpu: Gpu, past: GpuHistory) -> State:
    """Lost, hung, starting, asleep, stale, thermal, power cap, idle, busy: the first that holds."""
    if gpu.condition != "ok":
        return _unwell(gpu)
    if gpu.age_s > 0:
        return State(f"{ago(gpu.age_s)} old", f"{_rough(gpu.age_s)} OLD", "dim", stale=True)
    if heat := _heat(gpu, past):
        return heat
    if _power_capped(gpu, past):
        return State("power cap", "PWR", "busy")
    if gpu.busy_percent is None:
        return State("mig", "MIG", "dim") if gpu.mig_mode else State("", "", "dim")
    if gpu.busy_percent < IDLE_BELOW and (idle_s := idle_for(gpu.uuid, past)) is not None:
        if idle_s < IDLE_AFTER_S:
            return State("idle", "IDLE", "dim")
        return State(f"idle {ago(idle_s)}", f"IDLE {_rough(idle_s)}", "dim")
    return State("busy", "BUSY")


def judged(seen: State, verdict: State | None) -> State:
    """What is said where the rules have a word: theirs, unless the GPU is not to be read, or is worse off just now.

    How long it has been idle says more than a verdict that asks for no action.
    """
    if verdict is None or seen.stale or (not verdict.sign and (seen.sign or seen.token == "dim")):
        return seen
    if verdict.token == "dim" and seen.word != "busy":  # that there is no verdict yet says less than a power cap
        return seen
    return replace(verdict, hot=verdict.hot or seen.hot)


def _unwell(gpu: Gpu) -> State:
    age = f" {ago(gpu.condition_s)}" if gpu.condition_s >= 1 else ""
    if gpu.condition == "asleep":
        return State("asleep", "SLEEP", "dim", stale=True)
    if gpu.condition == "starting":
        return State(f"starting{age}", "START", "dim", stale=True)
    return State(f"{gpu.condition}{age}", gpu.condition.upper(), "crit", "crit", stale=True)


def _heat(gpu: Gpu, past: GpuHistory) -> State | None:
    hard = _share(past, gpu.uuid, "throttled_heat_hard_percent")
    soft = _share(past, gpu.uuid, "throttled_heat_percent")
    reasons = gpu.throttle_reasons or frozenset()
    if hard > 0 or (hard < 0 and "hw thermal" in reasons):
        return State("thermal", "HEAT", "crit", "crit", hot=True)
    if soft >= HEAT_SHARE or (soft < 0 and "thermal" in reasons):
        return State("thermal", "HEAT", "warn", "warn", hot=True)
    return None


def _power_capped(gpu: Gpu, past: GpuHistory) -> bool:
    share = _share(past, gpu.uuid, "throttled_power_percent")
    return share >= POWER_CAP_SHARE or (share < 0 and "power cap" in (gpu.throttle_reasons or ()))


def _share(past: GpuHistory, uuid: str, metric: str) -> float:
    """Mean percent of the last seconds; -1 where the driver has no such counter."""
    known = mean(past.values(uuid, metric, HELD_S))
    return -1.0 if known is None else known


def idle_for(uuid: str, past: GpuHistory) -> float | None:
    """Seconds since it last did something, as far back as the history goes; None if less than a minute ago."""
    minute_s, ended = _quiet(past.values(uuid, "busy_percent", IDLE_AFTER_S), 1.0)
    if ended:
        return None
    if minute_s < IDLE_AFTER_S - 1:
        return minute_s
    # most idle GPUs are so for long: look at the long past first, in its coarse steps
    long_s, _ = _quiet(past.values(uuid, "busy_percent", _LONG_S, _LONG_STEP_S), _LONG_STEP_S)
    if long_s > _FINE_S:
        return long_s
    return max(minute_s, _quiet(past.values(uuid, "busy_percent", _FINE_S), 1.0)[0])


def _quiet(values: Sequence[float | None], step_s: float) -> tuple[float, bool]:
    """How far back the quiet reaches, and whether work ended it rather than the end of what is known."""
    reach = 0.0
    for steps, value in enumerate(reversed(values), 1):
        if value is None:
            continue
        if value >= IDLE_BELOW:
            return reach, True
        reach = steps * step_s
    return reach, False


def _rough(seconds: float) -> str:
    """An age in at most three cells: 47s, 12m, 2h, 3d."""
    return ago(seconds).split()[0]
