"""Heat, fans, power limits."""

from __future__ import annotations

from gputop.collect.nvml.card import Card
from gputop.collect.nvml.fields import Field, field, gauge, read
from gputop.collect.nvml.gate import Unanswered
from gputop.collect.nvml.probe import Answers, probe
from gputop.collect.nvml.stream import WATTS

_SHUTDOWN, _SLOWDOWN, _MEMORY_MAX, _GPU_MAX = 0, 1, 2, 3  # temperature thresholds


def celsius(value: float) -> float | None:
    """A temperature inside a running machine."""
    return float(value) if 1 <= value <= 150 else None


@probe(every_s=2, fills=("temperature_celsius",))
def temperature(card: Card) -> Answers:
    """GPU core temperature."""
    return {
        "temperature_celsius": celsius(card.first(("nvmlDeviceGetTemperatureV", 0), ("nvmlDeviceGetTemperature", 0)))
    }


@probe(every_s=10, fills=("temperature_margin_celsius",))
def margin(card: Card) -> Answers:
    """Distance to the nearest slow-down, where the driver knows it (Ada and newer)."""
    degrees: int = card.call("nvmlDeviceGetMarginTemperature")
    return {"temperature_margin_celsius": float(degrees) if -100 <= degrees <= 150 else None}


@probe(every_s=2, backs=("temperature_margin_celsius",))
def margin_from_limit(card: Card) -> Answers:
    """The same from the limit, where the limit is a temperature (before Ada); no call."""
    now = card.answers.get("temperature", {}).get("temperature_celsius")
    limit = card.answers.get("thresholds", {}).get("slowdown_celsius")
    if not isinstance(now, float) or not isinstance(limit, float):
        return {"temperature_margin_celsius": None}
    return {"temperature_margin_celsius": limit - now}


_BELOW = gauge(low=-100, high=100)
_LIMITS = (field("shutdown_celsius", _BELOW, 193), field("slowdown_celsius", _BELOW, 194))
_HIGHEST = (field("gpu_max_celsius", _BELOW, 196),)


@probe(every_s=0, fills=tuple(one.name for one in _LIMITS))
def thresholds(card: Card) -> Answers:
    """Temperatures at which the driver slows the GPU and switches it off."""
    given = {}
    for name, threshold in (("shutdown_celsius", _SHUTDOWN), ("slowdown_celsius", _SLOWDOWN)):
        try:
            given[name] = celsius(card.call("nvmlDeviceGetTemperatureThreshold", threshold))
        except Unanswered:
            return _relative(card, _LIMITS)
    return given


@probe(every_s=0, fills=tuple(one.name for one in _HIGHEST))
def gpu_max(card: Card) -> Answers:
    """Temperature above which the GPU may go below its base clock."""
    try:
        return {"gpu_max_celsius": celsius(card.call("nvmlDeviceGetTemperatureThreshold", _GPU_MAX))}
    except Unanswered:
        return _relative(card, _HIGHEST)


def _relative(card: Card, limits: tuple[Field, ...]) -> Answers:
    """From Ada on they are given as distance below the margin's zero: it is found from temperature and margin."""
    below = read(card, limits)
    zero = card.first(("nvmlDeviceGetTemperatureV", 0), ("nvmlDeviceGetTemperature", 0)) + card.call(
        "nvmlDeviceGetMarginTemperature"
    )
    return {name: celsius(zero - value) if isinstance(value, (int, float)) else value for name, value in below.items()}


@probe(every_s=0, fills=("memory_max_celsius",))
def memory_max(card: Card) -> Answers:
    """Temperature at which hot memory slows the GPU. From Ada on the driver gives no number of degrees for it."""
    return {"memory_max_celsius": celsius(card.call("nvmlDeviceGetTemperatureThreshold", _MEMORY_MAX))}


@probe(every_s=10, fills=("fan_percent",))
def fan(card: Card) -> Answers:
    """Fan speed the card wants; above 100 % exists, and is not one we can draw."""
    speed: int = card.call("nvmlDeviceGetFanSpeed")
    return {"fan_percent": float(min(speed, 100)) if 0 <= speed <= 200 else None}


@probe(every_s=30, fills=("power_limit_watts",))
def power_limit(card: Card) -> Answers:
    """The limit in force: it may be below the one that was set."""
    milliwatts: int = card.call("nvmlDeviceGetEnforcedPowerLimit")
    return {"power_limit_watts": milliwatts / 1e3 if 0 < milliwatts < 10_000_000 else None}


_POWER = (
    field("power_min_limit_watts", WATTS, 187),
    field("power_max_limit_watts", WATTS, 188),
    field("power_default_limit_watts", WATTS, 189),
    field("power_requested_limit_watts", WATTS, 192),
)
_IN_FORCE = field("power_limit_watts", WATTS, 190)
_ALL_LIMITS = (*_POWER, _IN_FORCE)


@probe(every_s=30, fills=tuple(one.name for one in _POWER), backs=(_IN_FORCE.name,))
def power_limits(card: Card) -> Answers:
    """What can be set, what was set and what came of it, in one call."""
    return read(card, _ALL_LIMITS)
