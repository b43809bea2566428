"""Clocks, and what holds them down."""

from __future__ import annotations

from gputop.collect.nvml.device import Device
from gputop.collect.nvml.field_values import FieldAnswer, share
from gputop.collect.nvml.gate import ABSENT, NoValue
from gputop.collect.nvml.probe import Answers, Ask, probe
from gputop.collect.nvml.samples import MOST_MHZ
from gputop.model import Throttle

_GRAPHICS, _SM, _MEMORY = 0, 1, 2  # clock domains
_REASONS: tuple[tuple[int, Throttle], ...] = (
    (0x1, "idle"),
    (0x2, "clock settings"),
    (0x4, "power cap"),
    (0x8, "hw slowdown"),
    (0x10, "sync boost"),
    (0x20, "thermal"),
    (0x40, "hw thermal"),
    (0x80, "power brake"),
    (0x100, "display"),
    (0x200, "board limit"),  # this and the next from driver 615 on
    (0x400, "reliability"),
)
_NAMED = sum(bit for bit, _ in _REASONS)


def reasons(mask: int) -> frozenset[Throttle]:
    """The clock event reasons of a bit mask (nvmlClocksEventReasons)."""
    words = {word for bit, word in _REASONS if mask & bit}
    return frozenset(words | {"other"} if mask & ~_NAMED else words)


def mhz(value: int) -> float | None:
    """A clock."""
    return float(value) if 0 <= value < MOST_MHZ else None


@probe(every_s=2, fills=("sm_clock_mhz",))
def sm_clock(card: Device) -> Answers:
    """Clock of the multiprocessors."""
    return {"sm_clock_mhz": mhz(card.call("nvmlDeviceGetClockInfo", _SM))}


@probe(every_s=10, fills=("memory_clock_mhz",))
def memory_clock(card: Device) -> Answers:
    """Memory clock. Its buffer does not show it: many cards store a clock only when it changes, or never."""
    return {"memory_clock_mhz": mhz(card.call("nvmlDeviceGetClockInfo", _MEMORY)) or None}


@probe(every_s=10, fills=("graphics_clock_mhz",))
def graphics_clock(card: Device) -> Answers:
    """Graphics clock."""
    return {"graphics_clock_mhz": mhz(card.call("nvmlDeviceGetClockInfo", _GRAPHICS))}


@probe(every_s=0, fills=("graphics_clock_max_mhz",))
def graphics_clock_max(card: Device) -> Answers:
    """Highest graphics clock."""
    return {"graphics_clock_max_mhz": mhz(card.call("nvmlDeviceGetMaxClockInfo", _GRAPHICS))}


@probe(every_s=0, fills=("boost_clock_max_mhz",))
def boost_clock_max(card: Device) -> Answers:
    """Highest graphics clock that may be chosen on this card; it can be below the highest there is."""
    return {"boost_clock_max_mhz": mhz(card.call("nvmlDeviceGetMaxCustomerBoostClock", _GRAPHICS))}


@probe(every_s=0, fills=("sm_clock_max_mhz",))
def sm_clock_max(card: Device) -> Answers:
    """Highest clock of the multiprocessors."""
    return {"sm_clock_max_mhz": mhz(card.call("nvmlDeviceGetMaxClockInfo", _SM))}


@probe(every_s=0, fills=("memory_clock_max_mhz",))
def memory_clock_max(card: Device) -> Answers:
    """Highest memory clock."""
    return {"memory_clock_max_mhz": mhz(card.call("nvmlDeviceGetMaxClockInfo", _MEMORY))}


@probe(every_s=10, fills=("performance_state",))
def performance_state(card: Device) -> Answers:
    """P-state; 32 is the driver's "unknown"."""
    state: int = card.call("nvmlDeviceGetPerformanceState")
    return {"performance_state": state if 0 <= state <= 15 else None}


@probe(every_s=2, fills=("throttle_reasons",))
def throttle_reasons(card: Device) -> Answers:
    """What holds the clocks down at this moment."""
    mask: int = card.first(("nvmlDeviceGetCurrentClocksEventReasons",), ("nvmlDeviceGetCurrentClocksThrottleReasons",))
    return {"throttle_reasons": reasons(mask)}


# what the driver's counters are called in the call of older drivers (nvmlPerfPolicyType_t)
_POLICIES = {
    "throttled_power_percent": 0,
    "throttled_heat_percent": 1,
    "throttled_sync_percent": 2,
    "throttled_board_percent": 3,
    "throttled_low_use_percent": 4,
    "throttled_reliability_percent": 5,
    "throttled_base_percent": 11,
}


def _violation(name: str, policy: int) -> Ask:
    def ask(card: Device) -> Answers:
        answer = card.answers.get("stream", {}).get(name)
        if not isinstance(answer, NoValue) or answer.reason != "unsupported":
            return {name: ABSENT}  # the field value is there, or will be at its second sample
        spent = card.call("nvmlDeviceGetViolationStatus", policy)
        return {name: share(card, f"violation {name}", FieldAnswer(spent.violationTime, spent.referenceTime))}

    ask.__name__ = f"violation_{policy}"
    return ask


for _name, _policy in _POLICIES.items():
    probe(every_s=10, backs=(_name,))(_violation(_name, _policy))
