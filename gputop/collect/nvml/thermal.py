"""Temperature, fans, power and its limits, and how long each limit held a GPU down."""

from __future__ import annotations

from functools import cache

from gputop.collect.nvml.device import Device, Release
from gputop.collect.nvml.field_values import ALL, EACH, FieldSource, field_value, gauge, rate, read, share, total
from gputop.collect.nvml.gate import NoValue, Unanswered
from gputop.collect.nvml.probe import Answers, probe

WATTS = gauge(1e-3, low=0.001, high=10_000)  # mW; some drivers say 65,535 W for "unknown"
_MODULE, _MEMORY = 1, 2  # scopes of power; 0 is the board
CELSIUS = gauge(low=1, high=150)

_COMMON = (
    field_value("power_instant_watts", WATTS, 186),
    field_value("memory_temperature_celsius", CELSIUS, 82),
    field_value("throttled_power_percent", share, 74),
    field_value("throttled_board_percent", share, 77),
    field_value("throttled_sync_percent", share, 76),
    field_value("throttled_reliability_percent", share, 79),
    field_value("throttled_low_use_percent", share, 78),
    field_value("throttled_base_percent", share, 81),
    # KiB over all links; from Blackwell on bytes, link by link
    FieldSource("nvlink_tx_bytes_per_s", rate(1024), ((138, ALL),)),
    FieldSource("nvlink_rx_bytes_per_s", rate(1024), ((139, ALL),)),
    field_value("mma_stall_percent", gauge(high=100), 297),
)


# the first drivers that had them counted under numbers that are those of power smoothing before and after
# (nvidia-ml-py 12.570, 12.575, 13.580.65 and 13.580.82; "Known issues" of the NVML reference)
_SINCE: tuple[tuple[Release, tuple[int, ...]], ...] = (((580, 82), (269, 270, 271)), ((575, 0), (251, 252, 253)))


def slowed_ids(driver: Release | None) -> tuple[int, ...]:
    """Ids of the time slowed by heat in software, by heat in hardware, by the power brake; none before 575."""
    return next((ids for since, ids in _SINCE if driver and driver >= since), ())


@cache
def fields(driver: Release | None) -> tuple[FieldSource, ...]:
    """All of them, as this driver numbers them; the older 75 counts heat of both kinds."""
    soft, hard, brake = ([one] for one in slowed_ids(driver)) if slowed_ids(driver) else ([], [], [])
    return (
        *_COMMON,
        field_value("throttled_heat_percent", share, *soft, 75),
        field_value("throttled_heat_hard_percent", share, *hard),
        field_value("throttled_brake_percent", share, *brake),
    )


_AVERAGE = field_value("power_watts", WATTS, 185)
_SCOPES = (
    field_value("power_module_watts", WATTS, 185, scope=_MODULE),
    field_value("power_module_instant_watts", WATTS, 186, scope=_MODULE),
    field_value("power_memory_watts", WATTS, 185, scope=_MEMORY),
    field_value("power_memory_instant_watts", WATTS, 186, scope=_MEMORY),
)
_BOARD = (_AVERAGE, field_value("power_instant_watts", WATTS, 186))
_SCOPED = (*_SCOPES, *_BOARD)
_ENERGY = (field_value("energy_joules", total(1e-3), 83, 191),)
BY_LINK = (
    FieldSource("nvlink_tx_bytes_per_s", rate(), ((202, EACH),)),
    FieldSource("nvlink_rx_bytes_per_s", rate(), ((204, EACH),)),
)


@probe(every_s=1, fills=tuple(one.name for one in fields(None)))
def stream(card: Device) -> Answers:
    """One nvmlDeviceGetFieldValues with everything that is wanted every second."""
    return read(card, fields(card.driver))


@probe(every_s=1, backs=tuple(one.name for one in BY_LINK))
def stream_by_link(card: Device) -> Answers:
    """NVLink bytes where the driver does not sum the links."""
    return read(card, BY_LINK)


@probe(every_s=1, fills=("power_watts",))
def power(card: Device) -> Answers:
    """Board power: an average of a second from Ampere on, the moment's of GA100 (A100) and before."""
    watts: int = card.call("nvmlDeviceGetPowerUsage")
    return {"power_watts": watts / 1e3 if 0 < watts < 10_000_000 else None}


@probe(every_s=2, backs=("power_watts",))
def power_average(card: Device) -> Answers:
    """The same as a field value, where the call does not say it."""
    return read(card, (_AVERAGE,))


@probe(every_s=10, fills=tuple(one.name for one in _SCOPES))
def power_scopes(card: Device) -> Answers:
    """Power of the memory, and of a superchip with its CPU."""
    if all(card.silent(source) for one in _SCOPES for source in one.sources):
        return read(card, _SCOPES)  # refused lately: the board's power, which is slow to read, need not be asked for
    given = read(card, _SCOPED)
    # a driver that does not know scopes says the board's power for all
    board = [given.pop(one.name) for one in _BOARD]
    return {
        name: NoValue("unsupported") if isinstance(value, float) and value in board else value
        for name, value in given.items()
    }


@probe(every_s=10, fills=("energy_joules",))
def energy(card: Device) -> Answers:
    """Energy since the driver was loaded."""
    return read(card, _ENERGY)


_SHUTDOWN, _SLOWDOWN, _MEMORY_MAX, _GPU_MAX = 0, 1, 2, 3  # temperature thresholds


def celsius(value: float) -> float | None:
    """A temperature inside a running machine."""
    return float(value) if 1 <= value <= 150 else None


@probe(every_s=2, fills=("temperature_celsius",))
def temperature(card: Device) -> Answers:
    """GPU core temperature."""
    return {
        "temperature_celsius": celsius(card.first(("nvmlDeviceGetTemperatureV", 0), ("nvmlDeviceGetTemperature", 0)))
    }


@probe(every_s=10, fills=("temperature_margin_celsius",))
def margin(card: Device) -> Answers:
    """Distance to the nearest slow-down, where the driver knows it (Ada and newer)."""
    degrees: int = card.call("nvmlDeviceGetMarginTemperature")
    return {"temperature_margin_celsius": float(degrees) if -100 <= degrees <= 150 else None}


@probe(every_s=2, backs=("temperature_margin_celsius",))
def margin_from_limit(card: Device) -> Answers:
    """The same from the limit, where the limit is a temperature (before Ada); no call."""
    now = card.answers.get("temperature", {}).get("temperature_celsius")
    limit = card.answers.get("thresholds", {}).get("slowdown_celsius")
    if not isinstance(now, float) or not isinstance(limit, float):
        return {"temperature_margin_celsius": None}
    return {"temperature_margin_celsius": limit - now}


_BELOW = gauge(low=-100, high=100)
_LIMITS = (field_value("shutdown_celsius", _BELOW, 193), field_value("slowdown_celsius", _BELOW, 194))
_HIGHEST = (field_value("gpu_max_celsius", _BELOW, 196),)


@probe(every_s=0, fills=tuple(one.name for one in _LIMITS))
def thresholds(card: Device) -> Answers:
    """Temperatures at which the driver slows the GPU and switches it off."""
    given = {}
    for name, threshold in (("shutdown_celsius", _SHUTDOWN), ("slowdown_celsius", _SLOWDOWN)):
        try:
            given[name] = celsius(card.call("nvmlDeviceGetTemperatureThreshold", threshold))
        except Unanswered:
            return _relative(card, _LIMITS)
    return given


@probe(every_s=0, fills=tuple(one.name for one in _HIGHEST))
def gpu_max(card: Device) -> Answers:
    """Temperature above which the GPU may go below its base clock."""
    try:
        return {"gpu_max_celsius": celsius(card.call("nvmlDeviceGetTemperatureThreshold", _GPU_MAX))}
    except Unanswered:
        return _relative(card, _HIGHEST)


def _relative(card: Device, limits: tuple[FieldSource, ...]) -> Answers:
    """From Ada on they are given as distance below the margin's zero: it is found from temperature and margin."""
    below = read(card, limits)
    zero = card.first(("nvmlDeviceGetTemperatureV", 0), ("nvmlDeviceGetTemperature", 0)) + card.call(
        "nvmlDeviceGetMarginTemperature"
    )
    return {name: celsius(zero - value) if isinstance(value, (int, float)) else value for name, value in below.items()}


@probe(every_s=0, fills=("memory_max_celsius",))
def memory_max(card: Device) -> Answers:
    """Temperature at which hot memory slows the GPU. From Ada on the driver gives no number of degrees for it."""
    return {"memory_max_celsius": celsius(card.call("nvmlDeviceGetTemperatureThreshold", _MEMORY_MAX))}


@probe(every_s=10, fills=("fan_percent",))
def fan(card: Device) -> Answers:
    """Fan speed the card wants; above 100 % exists, and is not one we can draw."""
    speed: int = card.call("nvmlDeviceGetFanSpeed")
    return {"fan_percent": float(min(speed, 100)) if 0 <= speed <= 200 else None}


@probe(every_s=30, fills=("power_limit_watts",))
def power_limit(card: Device) -> Answers:
    """The limit in force: it may be below the one that was set."""
    milliwatts: int = card.call("nvmlDeviceGetEnforcedPowerLimit")
    return {"power_limit_watts": milliwatts / 1e3 if 0 < milliwatts < 10_000_000 else None}


_POWER = (
    field_value("power_min_limit_watts", WATTS, 187),
    field_value("power_max_limit_watts", WATTS, 188),
    field_value("power_default_limit_watts", WATTS, 189),
    field_value("power_requested_limit_watts", WATTS, 192),
)
_IN_FORCE = field_value("power_limit_watts", WATTS, 190)
_ALL_LIMITS = (*_POWER, _IN_FORCE)


@probe(every_s=30, fills=tuple(one.name for one in _POWER), backs=(_IN_FORCE.name,))
def power_limits(card: Device) -> Answers:
    """What can be set, what was set and what came of it, in one call."""
    return read(card, _ALL_LIMITS)
