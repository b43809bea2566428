"""The links of a GPU, NVLink and PCIe: width, speed, errors, and the bytes that cross them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import fmean
from typing import Any

from gputop import units
from gputop.collect.nvml.device import Count, Device, came_late, reads, rests
from gputop.collect.nvml.field_values import (
    EACH,
    Answered,
    FieldAnswer,
    FieldSource,
    ask,
    choose,
    count,
    field_value,
    read,
    tally,
)
from gputop.collect.nvml.gate import DriverGate, DriverGone, Late, Lost, NoValue, Unanswered
from gputop.collect.nvml.probe import Answers, probe
from gputop.model import NvLink, PcieErrors

_MB = 1e6
_STATE, _SPEED = 165, 164
_STATES = (False, True, True, True)  # inactive, active, asleep to save power, active without traffic for now: is it up
# replay, recovery and CRC; from Blackwell on there are recovery events instead
ERRORS = (161, 162, 163)
EVENTS = (215,)
_FAULTS = tuple(FieldSource(str(one), tally, ((one, EACH),)) for one in (*ERRORS, *EVENTS))
_COUNTS = {
    "replays": (161,),
    "recoveries": (162, 215),
    "recoveries_failed": (214,),
    "crc_errors": (163,),
    "effective_errors": (219,),
    "symbol_errors": (221,),
}
_RATES = {"effective_error_rate": 220, "symbol_error_rate": 222}
_EACH = (_STATE, _SPEED, *ERRORS, *EVENTS, 214, 219, 220, 221, 222)
_EXIST = "nvlink fields"  # in what a card keeps: those that answered
_MOST = 2**53
_FASTEST = 1e6  # in the driver's MB/s
_UNKNOWN = NvLink(numbers="")


@probe(every_s=10, fills=("nvlinks_active", "nvlink_errors", "nvlink_max_bytes_per_s", "nvlinks"))
def nvlinks(card: Device) -> Answers:
    """State, speed and errors of every NVLink, in one call; what this card has none of is asked for once."""
    numbers: tuple[int, ...] = card.kept.get(_EXIST, _EACH)
    answers = ask(card, [(number, link) for number in numbers for link in range(card.links)])
    there = {
        number for (number, _), one in answers.items() if isinstance(one, FieldAnswer) or one.reason != "unsupported"
    }
    if _STATE in there:
        card.kept[_EXIST] = tuple(number for number in numbers if number in there)
    faults = {one.name: choose(card, one, answers) for one in _FAULTS}
    summed = [faults[str(one)] for one in ERRORS if isinstance(faults[str(one)], int)]
    each = _alike(answers, card.links)
    speeds = [
        one.speed_bytes_per_s * len(links)
        for one, links in each.items()
        if one.up and one.speed_bytes_per_s is not None
    ]
    return {
        "nvlinks_active": _active(answers),
        "nvlink_errors": sum(summed) if summed else faults[str(EVENTS[0])],
        "nvlink_max_bytes_per_s": sum(speeds) if speeds else _no(answers, _SPEED),
        "nvlinks": _numbered(each) if each.keys() - {_UNKNOWN} else _no(answers, _STATE),
    }


def _up(state: float | None) -> bool | None:
    return _STATES[int(state)] if state is not None and state in range(len(_STATES)) else None


def _active(answers: Answered) -> int | NoValue:
    """How many links are up, of those that say it."""
    states = [one.value for (number, _), one in answers.items() if number == _STATE and isinstance(one, FieldAnswer)]
    known = [up for state in states if (up := _up(state)) is not None]
    return sum(known) if known else _no(answers, _STATE)


def _no(answers: Answered, number: int) -> NoValue:
    refused = (answer for source, answer in answers.items() if source[0] == number and isinstance(answer, NoValue))
    return next(refused, NoValue("unsupported"))


def _alike(answers: Answered, links: int) -> dict[NvLink, list[int]]:
    """The numbers of the links that say the same, by what they say; nearly always all of them do."""
    by_link: dict[int, dict[int, float]] = {link: {} for link in range(links)}
    for (number, link), answer in answers.items():
        if isinstance(answer, FieldAnswer):
            by_link[link][number] = answer.value
    alike: dict[tuple[tuple[int, float], ...], list[int]] = {}
    for link, values in by_link.items():
        alike.setdefault(tuple(values.items()), []).append(link)
    found: dict[NvLink, list[int]] = {}
    for said, numbers in alike.items():
        found.setdefault(_link(dict(said)), []).extend(numbers)
    return found


def _numbered(each: Mapping[NvLink, list[int]]) -> tuple[NvLink, ...]:
    return tuple([replace(one, numbers=units.ranges(tuple(sorted(links)))) for one, links in each.items()])


def _link(found: Mapping[int, float]) -> NvLink:
    """What a link says, its number left open."""
    speed = found.get(_SPEED)
    given: dict[str, Any] = {name: _first(found, numbers) for name, numbers in _COUNTS.items()}
    given |= {name: _error_rate(found.get(number)) for name, number in _RATES.items()}
    return NvLink(
        numbers="",
        up=_up(found.get(_STATE)),
        speed_bytes_per_s=speed * _MB if speed is not None and 0 < speed < _FASTEST else None,
        **given,
    )


def _first(found: Mapping[int, float], numbers: tuple[int, ...]) -> int | None:
    return next((int(value) for one in numbers if (value := found.get(one)) is not None and 0 <= value <= _MOST), None)


def _error_rate(packed: float | None) -> float | None:
    """Bits 0-7 are a negative exponent of ten, bits 8-11 the number before it (as DCGM reads it)."""
    if packed is None or not 0 <= packed <= 0xFFF:
        return None
    number, exponent = divmod(int(packed), 0x100)
    return float(f"{number}e-{exponent}")


TX, RX = "pcie_tx_bytes_per_s", "pcie_rx_bytes_per_s"
_FIELDS = {TX: (197, 0), RX: (198, 0)}
_THROUGHPUT = {TX: 0, RX: 1}  # nvmlPcieUtilCounter_t
_WRAPS_AT = 1 << 32
LANE_BYTES_PER_S = {1: 0.3125e9, 2: 0.625e9, 3: 1e9, 4: 2e9, 5: 4e9, 6: 8e9, 7: 16e9}  # by generation, raw
_MOST_BYTES_PER_S = 4e12
APART_S = 0.06  # between the two samples of a pair, less on a link that is faster
_SHARE = 0.6  # of the time in which the fastest link fills a counter
_KEPT = 8  # pairs that say how fast it is lately
_BURSTS = 3  # changes between two pairs, from which it moves in bursts and has not just begun or ended
_LONGEST_S = 30.0  # a mean over a longer gap says nothing about now
_EVERY_S = 1.9  # the driver measures for 20 ms and more while we wait: one way of one GPU in so long a time
_AGAIN_S = 5.0  # and the same one not sooner than this
_LATE_S = 90.0  # after which what it measured is not said any more
_LANES, _NEWEST = 16, 5  # of a link that says less of itself than it moves, as an emulated port does, or nothing


@dataclass(slots=True)
class _Way:
    """One direction: the looks before, and how fast it was between the two of each pair."""

    first: Count | None = None  # of the pair that is under way
    last: Count | None = None  # of the pair before it
    wide: bool = False  # a counter that was seen above 32 bits
    lately: deque[float] = field(default_factory=lambda: deque(maxlen=_KEPT))

    def rate(self, now: Count, fastest: float) -> float | None:
        """Bytes a second since the pair before; None where nothing can be said yet."""
        first, last = self.first, self.last
        self.first, self.last = None, now
        self.wide |= now.value >= _WRAPS_AT
        if first is not None:
            self._pair(first, now, fastest)
        if last is None:
            return fmean(self.lately) if self.lately else None
        seconds, grown = _between(last, now, self.wide)
        if not 0 < seconds <= _LONGEST_S or grown < 0:
            self.lately.clear()
            return None
        if self.wide or fastest * seconds < _WRAPS_AT:
            return grown / seconds
        return self._wrapped(grown, seconds, fastest)

    def _pair(self, first: Count, now: Count, fastest: float) -> None:
        seconds, grown = _between(first, now, self.wide)
        # where this thread had to wait for a CPU they may lie so far apart that it came round between them
        if seconds > 0 and grown >= 0 and (self.wide or fastest * seconds < _WRAPS_AT):
            self.lately.append(grown / seconds)

    def _wrapped(self, grown: float, seconds: float, fastest: float) -> float | None:
        """The rate with as many rounds as bring it nearest to what the pairs at both ends saw.

        Traffic in bursts is met by some pairs and missed by others: then the mean of the last ones is reported. Bursts
        that no pair meets are reported too low.
        """
        if not self.lately:
            return None
        before, now = self.lately[-2] if len(self.lately) > 1 else self.lately[-1], self.lately[-1]
        most = _WRAPS_AT / seconds / 2
        changes = sum(abs(after - first) > most for first, after in pairwise(self.lately))
        if changes >= _BURSTS:
            return fmean(self.lately)
        # where the two ends differ it began or ended meanwhile, or this is the first burst that was met
        seen = (before + now) / 2 if abs(now - before) <= most else fmean(self.lately)
        rounds = max(0, round((seen * seconds - grown) / _WRAPS_AT))
        rate = (grown + rounds * _WRAPS_AT) / seconds
        return rate if rate <= fastest else seen


def _between(first: Count, now: Count, wide: bool) -> tuple[float, float]:
    """Seconds, and bytes; below zero for a wide counter that was reset."""
    grown = now.value - first.value
    return now.since_s(first), grown if wide else grown % _WRAPS_AT


@dataclass(slots=True)
class _Measured:
    """What the driver measured itself, and when."""

    bytes_per_s: float
    at_s: float


class _Meter:
    """What is known of the traffic of one GPU."""

    def __init__(self) -> None:
        self.ways = {TX: _Way(), RX: _Way()}
        self.given: Answers = {}
        self.measured: dict[str, _Measured] = {}
        self.counted: bool | None = None  # whether the counters answer; None: not asked yet


def _meter(card: Device) -> _Meter:
    meter: _Meter = card.kept.setdefault("traffic", _Meter())
    return meter


def _fastest(card: Device) -> float:
    """What the link can move at most, in bytes a second: rather too much than too little."""
    known = [card.values.get(name) or 0 for name in ("pcie_generation_max", "pcie_generation_device_max")]
    lane = LANE_BYTES_PER_S.get(max(known)) if max(known) > 1 else None
    return (lane or LANE_BYTES_PER_S[_NEWEST]) * max(_LANES, card.values.get("pcie_width_max") or 0)


class LinkTraffic:
    """Asks every GPU that GPM says nothing of: `begin` a moment before a sweep, `finish` as it begins."""

    def __init__(self) -> None:
        self._turn = 0  # of those that the driver measures for
        self._measured_s = -_EVERY_S

    def apart_s(self, cards: Iterable[Device]) -> float | None:
        """How long before a sweep `begin` is due; None where no GPU needs it."""
        fastest = [_fastest(card) for card in cards if _wanted(card) and _meter(card).counted is not False]
        return min(APART_S, _SHARE * _WRAPS_AT / max(fastest)) if fastest else None

    def begin(self, cards: Iterable[Device], gate: DriverGate) -> None:
        """The first look of a pair."""
        for card in cards:
            if _wanted(card) and _meter(card).counted is not False:
                for name, answer in _counters(card, gate).items():
                    _meter(card).ways[name].first = answer if isinstance(answer, Count) else None

    def finish(self, cards: Sequence[Device], gate: DriverGate) -> None:
        """The second look of each, and one measurement by the driver where there are no counters."""
        for card in cards:
            if _wanted(card):
                _count(card, gate)
        if gate.clock() - self._measured_s >= _EVERY_S:
            self._measure([card for card in cards if _wanted(card) and _meter(card).counted is False], gate)

    def _measure(self, cards: Sequence[Device], gate: DriverGate) -> None:
        ways = [(card, name) for card in cards for name in _THROUGHPUT]
        if not ways:
            return
        self._turn = (self._turn + 1) % len(ways)
        card, name = ways[self._turn]
        self._measured_s = gate.clock()
        meter, now_s = _meter(card), gate.clock()
        before = meter.measured.get(name)
        if before is not None and now_s - before.at_s < _AGAIN_S:
            return
        kilobytes: int | None = _asked(card, gate, "nvmlDeviceGetPcieThroughput", _THROUGHPUT[name])
        if kilobytes is not None:
            meter.measured[name] = _Measured(kilobytes * 1e3, now_s)


def _wanted(card: Device) -> bool:
    """Whether this GPU is to be asked: it answers, and GPM does not say it."""
    ready = card.parent is None and card.condition == "ok" and card.gpu is not None and card.handle is not None
    return ready and card.probe_of.get(TX) != "gpm" and not rests(card)


def _counters(card: Device, gate: DriverGate) -> dict[str, Count | NoValue]:
    """Both counters in one call; empty where the GPU does not answer, which its probes find out too."""
    card.gate = gate
    try:
        given = ask(card, _FIELDS.values())
    except Late as late:
        came_late(card, gate, late)
        return {}
    except (Lost, DriverGone):
        return {}
    except Unanswered as silent:
        return {TX: silent.no, RX: silent.no}
    now_s = gate.clock()
    found = {name: given[source] for name, source in _FIELDS.items()}
    return {
        name: one if isinstance(one, NoValue) else Count(one.value, one.stamp_us, now_s) for name, one in found.items()
    }


def _count(card: Device, gate: DriverGate) -> None:
    meter, fastest = _meter(card), _fastest(card)
    given = _counters(card, gate)
    if not given:
        return
    if any(isinstance(answer, Count) for answer in given.values()):
        meter.counted = True
        meter.measured.clear()
    elif all(isinstance(answer, NoValue) and answer.reason == "unsupported" for answer in given.values()):
        meter.counted = False
    rates: dict[str, float | NoValue | None] = {}
    for name, answer in given.items():
        if isinstance(answer, NoValue):
            rates[name] = answer
            continue
        rate = meter.ways[name].rate(answer, fastest)
        rates[name] = rate if rate is None or rate <= _MOST_BYTES_PER_S else None
    meter.given = rates


def _asked(card: Device, gate: DriverGate, name: str, way: int) -> int | None:
    card.gate = gate
    try:
        answer: int = card.call(name, way)
    except Late as late:
        came_late(card, gate, late)
        return None
    except (Unanswered, DriverGone):
        return None
    return answer


@probe(every_s=1, backs=(TX, RX))
def traffic(card: Device) -> Answers:
    """Bytes over PCIe since the last sample, or as the driver measured it within the last minute; no call."""
    meter = _meter(card)
    now_s = card.gate.clock()
    measured = {name: one.bytes_per_s for name, one in meter.measured.items() if now_s - one.at_s < _LATE_S}
    return {name: measured.get(name, meter.given.get(name)) for name in (TX, RX)}


_MOST_LANES = 32
_NEWEST_GENERATION = 10


_GENERATIONS = {
    "2.5": 1,
    "5.0": 2,
    "5": 2,
    "8.0": 3,
    "16.0": 4,
    "32.0": 5,
    "64.0": 6,
}  # by GT/s, as the kernel writes it


def _small(value: int, high: int) -> int | None:
    return value if 0 < value <= high else None


@probe(every_s=10, fills=("pcie_generation", "pcie_lane_bytes_per_s"))
def pcie_generation(card: Device) -> Answers:
    """PCIe generation now, and how fast it makes a lane; both drop while the GPU idles."""
    generation: int = card.call("nvmlDeviceGetCurrPcieLinkGeneration")
    return {
        "pcie_generation": _small(generation, _NEWEST_GENERATION),
        "pcie_lane_bytes_per_s": LANE_BYTES_PER_S.get(generation),
    }


@probe(every_s=10, fills=("pcie_width",))
def pcie_width(card: Device) -> Answers:
    """PCIe lanes now."""
    return {"pcie_width": _small(card.call("nvmlDeviceGetCurrPcieLinkWidth"), _MOST_LANES)}


@probe(every_s=0, fills=("pcie_generation_max",))
def pcie_generation_max(card: Device) -> Answers:
    """Highest generation that device and slot can do together."""
    return {"pcie_generation_max": _small(card.call("nvmlDeviceGetMaxPcieLinkGeneration"), _NEWEST_GENERATION)}


@probe(every_s=0, fills=("pcie_width_max",))
def pcie_width_max(card: Device) -> Answers:
    """Most lanes that the device can do; some drivers do not know how many the slot is wired for."""
    return {"pcie_width_max": _small(card.call("nvmlDeviceGetMaxPcieLinkWidth"), _MOST_LANES)}


@probe(every_s=0, fills=("pcie_slot_generation", "pcie_slot_width"))
def slot(card: Device) -> Answers:
    """What the port can do that the card is plugged into, from the kernel; no call."""
    port = card.slot.port if card.slot else None
    if port is None:
        return dict.fromkeys(("pcie_slot_generation", "pcie_slot_width"), NoValue("absent"))
    speed, lanes = port.read("max_link_speed") or "", port.read("max_link_width") or ""
    return {
        "pcie_slot_generation": _GENERATIONS.get(speed.partition(" ")[0]),
        "pcie_slot_width": _small(int(lanes), _MOST_LANES) if lanes.isdigit() else None,
    }


@probe(every_s=0, fills=("pcie_generation_device_max",))
def pcie_generation_device_max(card: Device) -> Answers:
    """Highest generation of the device alone, in whatever slot."""
    newest: int = card.call("nvmlDeviceGetGpuMaxPcieLinkGeneration")
    return {"pcie_generation_device_max": _small(newest, _NEWEST_GENERATION)}


_PCIE = {
    "replay_rollovers": 95,
    "recoveries": 169,
    "correctable": 173,
    "naks_received": 174,
    "receiver_errors": 175,
    "bad_packets": 176,
    "naks_sent": 177,
    "bad_link_packets": 178,
    "non_fatal": 179,
    "fatal": 180,
    "unsupported_requests": 181,
    "checksum_errors": 182,
    "lane_errors": 183,
}
_REPLAYS = (field_value("pcie_replays", tally, 94),)
_ERRORS = (*_REPLAYS, *(field_value(name, count(), one) for name, one in _PCIE.items()))


@probe(every_s=10, fills=("pcie_replays", "pcie_errors"))
def pcie_errors(card: Device) -> Answers:
    """What went wrong on PCIe, in one call."""
    given = read(card, _ERRORS if reads(card, "pcie_errors") else _REPLAYS)
    return {"pcie_replays": given.pop("pcie_replays"), "pcie_errors": _counted(given)}


def _counted(given: Mapping[str, Any]) -> PcieErrors | NoValue | None:
    """The counters this card has; if it has none, why."""
    known = {name: value for name, value in given.items() if isinstance(value, int)}
    if known:
        return PcieErrors(**known)
    return next((value for value in given.values() if isinstance(value, NoValue)), None)


@probe(every_s=10, backs=("pcie_replays",))
def pcie_replays(card: Device) -> Answers:
    """PCIe replays from the call of older drivers."""
    return {"pcie_replays": card.call("nvmlDeviceGetPcieReplayCounter")}
