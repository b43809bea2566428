"""Heat, clocks and what holds them down, fans, power limits."""

from __future__ import annotations

from gputop.collect.nvml.card import Card
from gputop.collect.nvml.fields import field, gauge, read
from gputop.collect.nvml.gate import Unanswered
from gputop.collect.nvml.probe import Answers, probe
from gputop.collect.nvml.stream import WATTS
from gputop.model import Throttle

_SM, _MEMORY = 1, 2  # clock domains
_SHUTDOWN, _SLOWDOWN = 0, 1  # temperature thresholds
_REASONS: tuple[tuple[int, Throttle], ...] = (
    (0x1, "idle"),
    (0x2, "settings"),
    (0x4, "power cap"),
    (0x8, "hardware"),
    (0x10, "sync boost"),
    (0x20, "heat"),
    (0x40, "hard heat"),
    (0x80, "power brake"),
    (0x100, "display"),
)


def mhz(value: int) -> float | None:
    """A clock; none runs at 10 GHz."""
    return float(value) if 0 <= value < 10_000 else None


def celsius(value: float) -> float | None:
    """A temperature inside a running machine."""
    return float(value) if 1 <= value <= 150 else None


@probe(every_s=1, fills=("sm_clock_mhz",))
def sm_clock(card: Card) -> Answers:
    """Clock of the multiprocessors."""
    return {"sm_clock_mhz": mhz(card.call("nvmlDeviceGetClockInfo", _SM))}


@probe(every_s=10, fills=("memory_clock_mhz",))
def memory_clock(card: Card) -> Answers:
    """Memory clock."""
    return {"memory_clock_mhz": mhz(card.call("nvmlDeviceGetClockInfo", _MEMORY))}


@probe(every_s=0, fills=("sm_clock_max_mhz",))
def sm_clock_max(card: Card) -> Answers:
    """Highest clock of the multiprocessors."""
    return {"sm_clock_max_mhz": mhz(card.call("nvmlDeviceGetMaxClockInfo", _SM))}


@probe(every_s=0, fills=("memory_clock_max_mhz",))
def memory_clock_max(card: Card) -> Answers:
    """Highest memory clock."""
    return {"memory_clock_max_mhz": mhz(card.call("nvmlDeviceGetMaxClockInfo", _MEMORY))}


@probe(every_s=10, fills=("performance_state",))
def performance_state(card: Card) -> Answers:
    """P-state; 32 is the driver's "unknown"."""
    state: int = card.call("nvmlDeviceGetPerformanceState")
    return {"performance_state": state if 0 <= state <= 15 else None}


@probe(every_s=2, fills=("throttle_reasons",))
def throttle_reasons(card: Card) -> Answers:
    """What holds the clocks down at this moment."""
    mask: int = card.first(("nvmlDeviceGetCurrentClocksEventReasons",), ("nvmlDeviceGetCurrentClocksThrottleReasons",))
    return {"throttle_reasons": frozenset(word for bit, word in _REASONS if mask & bit)}


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


_LIMITS = (
    field("shutdown_celsius", gauge(low=-100, high=100), 193),
    field("slowdown_celsius", gauge(low=-100, high=100), 194),
)


@probe(every_s=0, fills=("shutdown_celsius", "slowdown_celsius"))
def thresholds(card: Card) -> Answers:
    """Temperatures at which the driver slows the GPU and switches it off.

    From Ada on they are given as distance below the margin's zero, so zero is found from temperature and margin.
    """
    given = {}
    for name, threshold in (("shutdown_celsius", _SHUTDOWN), ("slowdown_celsius", _SLOWDOWN)):
        try:
            given[name] = celsius(card.call("nvmlDeviceGetTemperatureThreshold", threshold))
        except Unanswered:
            return _relative(card)
    return given


def _relative(card: Card) -> Answers:
    below = read(card, _LIMITS)
    zero = card.first(("nvmlDeviceGetTemperatureV", 0), ("nvmlDeviceGetTemperature", 0)) + card.call(
        "nvmlDeviceGetMarginTemperature"
    )
    return {name: celsius(zero - value) if isinstance(value, (int, float)) else value for name, value in below.items()}


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


_POWER = (field("power_default_limit_watts", WATTS, 189), field("power_max_limit_watts", WATTS, 188))


@probe(every_s=0, fills=tuple(one.name for one in _POWER))
def power_limits(card: Card) -> Answers:
    """The limit as delivered and the highest one: they do not change."""
    return read(card, _POWER)
