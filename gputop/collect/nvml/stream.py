"""What is read every second, time held down and bytes over NVLink in one driver call; power by what it costs to ask.

Most field values are there at once; power averaged by the driver and energy take it 2 to 3 ms each, and a call with one
of them as long: these are asked for every ten seconds. `nvmlDeviceGetPowerUsage` says the same power in a microsecond.
"""

from __future__ import annotations

from functools import cache

from gputop.collect.nvml.card import Card, Release
from gputop.collect.nvml.fields import ALL, EACH, Field, field, gauge, rate, read, share, total
from gputop.collect.nvml.gate import No
from gputop.collect.nvml.probe import Answers, probe

WATTS = gauge(1e-3, low=0.001, high=10_000)  # mW; some drivers say 65,535 W for "unknown"
_MODULE, _MEMORY = 1, 2  # scopes of power; 0 is the board
CELSIUS = gauge(low=1, high=150)

_COMMON = (
    field("power_instant_watts", WATTS, 186),
    field("memory_temperature_celsius", CELSIUS, 82),
    field("throttled_power_percent", share, 74),
    field("throttled_board_percent", share, 77),
    field("throttled_sync_percent", share, 76),
    field("throttled_reliability_percent", share, 79),
    field("throttled_low_use_percent", share, 78),
    field("throttled_base_percent", share, 81),
    # KiB over all links; from Blackwell on bytes, link by link
    Field("nvlink_tx_bytes_per_s", rate(1024), ((138, ALL),)),
    Field("nvlink_rx_bytes_per_s", rate(1024), ((139, ALL),)),
    field("mma_stall_percent", gauge(high=100), 297),
)


# the first drivers that had them counted under numbers that are those of power smoothing before and after
# (nvidia-ml-py 12.570, 12.575, 13.580.65 and 13.580.82; "Known issues" of the NVML reference)
_SINCE: tuple[tuple[Release, tuple[int, ...]], ...] = (((580, 82), (269, 270, 271)), ((575, 0), (251, 252, 253)))


def slowed_ids(driver: Release | None) -> tuple[int, ...]:
    """Ids of the time slowed by heat in software, by heat in hardware, by the power brake; none before 575."""
    return next((ids for since, ids in _SINCE if driver and driver >= since), ())


@cache
def fields(driver: Release | None) -> tuple[Field, ...]:
    """All of them, as this driver numbers them; the older 75 counts heat of both kinds."""
    soft, hard, brake = ([one] for one in slowed_ids(driver)) if slowed_ids(driver) else ([], [], [])
    return (
        *_COMMON,
        field("throttled_heat_percent", share, *soft, 75),
        field("throttled_heat_hard_percent", share, *hard),
        field("throttled_brake_percent", share, *brake),
    )


_AVERAGE = field("power_watts", WATTS, 185)
_SCOPES = (
    field("power_module_watts", WATTS, 185, scope=_MODULE),
    field("power_module_instant_watts", WATTS, 186, scope=_MODULE),
    field("power_memory_watts", WATTS, 185, scope=_MEMORY),
    field("power_memory_instant_watts", WATTS, 186, scope=_MEMORY),
)
_BOARD = (_AVERAGE, field("power_instant_watts", WATTS, 186))
_SCOPED = (*_SCOPES, *_BOARD)
_ENERGY = (field("energy_joules", total(1e-3), 83, 191),)
BY_LINK = (
    Field("nvlink_tx_bytes_per_s", rate(), ((202, EACH),)),
    Field("nvlink_rx_bytes_per_s", rate(), ((204, EACH),)),
)


@probe(every_s=1, fills=tuple(one.name for one in fields(None)))
def stream(card: Card) -> Answers:
    """One nvmlDeviceGetFieldValues with everything that is wanted every second."""
    return read(card, fields(card.driver))


@probe(every_s=1, backs=tuple(one.name for one in BY_LINK))
def stream_by_link(card: Card) -> Answers:
    """NVLink bytes where the driver does not sum the links."""
    return read(card, BY_LINK)


@probe(every_s=1, fills=("power_watts",))
def power(card: Card) -> Answers:
    """Board power: an average of a second from Ampere on, the moment's of GA100 (A100) and before."""
    watts: int = card.call("nvmlDeviceGetPowerUsage")
    return {"power_watts": watts / 1e3 if 0 < watts < 10_000_000 else None}


@probe(every_s=2, backs=("power_watts",))
def power_average(card: Card) -> Answers:
    """The same as a field value, where the call does not say it."""
    return read(card, (_AVERAGE,))


@probe(every_s=10, fills=tuple(one.name for one in _SCOPES))
def power_scopes(card: Card) -> Answers:
    """Power of the memory, and of a superchip with its CPU."""
    if all(card.silent(source) for one in _SCOPES for source in one.sources):
        return read(card, _SCOPES)  # refused lately: the board's power, which is dear, need not be asked for
    given = read(card, _SCOPED)
    # a driver that does not know scopes says the board's power for all
    board = [given.pop(one.name) for one in _BOARD]
    return {
        name: No("unsupported") if isinstance(value, float) and value in board else value
        for name, value in given.items()
    }


@probe(every_s=10, fills=("energy_joules",))
def energy(card: Card) -> Answers:
    """Energy since the driver was loaded."""
    return read(card, _ENERGY)
