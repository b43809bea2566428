"""What is read every second in one driver call: power, energy, time held down, bytes over NVLink."""

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
    field("power_watts", WATTS, 185),
    field("power_instant_watts", WATTS, 186),
    field("power_module_watts", WATTS, 185, scope=_MODULE),
    field("power_module_instant_watts", WATTS, 186, scope=_MODULE),
    field("power_memory_watts", WATTS, 185, scope=_MEMORY),
    field("power_memory_instant_watts", WATTS, 186, scope=_MEMORY),
    field("energy_joules", total(1e-3), 83, 191),
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


_SCOPED = {
    "power_module_watts": "power_watts",
    "power_module_instant_watts": "power_instant_watts",
    "power_memory_watts": "power_watts",
    "power_memory_instant_watts": "power_instant_watts",
}
BY_LINK = (
    Field("nvlink_tx_bytes_per_s", rate(), ((202, EACH),)),
    Field("nvlink_rx_bytes_per_s", rate(), ((204, EACH),)),
)


@probe(every_s=1, fills=tuple(one.name for one in fields(None)))
def stream(card: Card) -> Answers:
    """One nvmlDeviceGetFieldValues with everything that is wanted every second."""
    given = read(card, fields(card.driver))
    for name, board in _SCOPED.items():
        if given[name] == given[board]:  # a driver that does not know scopes says the board's power for all
            given[name] = No("unsupported")
    return given


@probe(every_s=1, backs=tuple(one.name for one in BY_LINK))
def stream_by_link(card: Card) -> Answers:
    """NVLink bytes where the driver does not sum the links."""
    return read(card, BY_LINK)


@probe(every_s=1, backs=("power_watts",))
def power_usage(card: Card) -> Answers:
    """Board power from the old call: an average of a second from Ampere on, the moment's before."""
    watts: int = card.call("nvmlDeviceGetPowerUsage")
    return {"power_watts": watts / 1e3 if 0 < watts < 10_000_000 else None}
