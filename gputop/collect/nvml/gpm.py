"""GPM: how busy the units inside a GPU are (Hopper and newer), from two samples a second apart.

It is read beside a DCGM host engine, too: that two programs are in each other's way there is so of older cards, which
have no GPM. Ids from 98 on came with driver 575: one before it answers them with an error each, or refuses the whole
request. Then the older ones are asked for, and where that is refused as well, what answers by itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from ctypes import byref, memmove, string_at
from dataclasses import dataclass, field
from math import nan
from struct import Struct
from threading import Lock
from typing import Any

from gputop.collect.nvml.device import EXTENDED, Device
from gputop.collect.nvml.gate import OK, DriverGate, DriverGone, Lost, NoValue, Unanswered, refusal
from gputop.collect.nvml.probe import Answers, probe
from gputop.model import Engine

_MIB = 1024 * 1024
_MOST_BYTES_PER_S = 4e12
OFF = NoValue("absent", "--gpm on")
_NONE = "GPM, unsupported by this GPU or driver (available on Hopper and newer data center GPUs)"
_REQUEST = "nvmlGpmMetricsGet"
_SURE = 3  # refusals in a row, of a kind that may pass, after which fewer are asked for
_AGAIN_S = 600.0  # after which what made the driver refuse is asked for again
_FIRST_NEW = 98  # ids from here on are of driver 575 and newer
_APART_S = 0.1  # between two samples: of the same tenth of a second the driver says 0, or NaN (seen on an H200)

SHARES = {
    1: "graphics_active_percent",
    2: "sm_active_percent",
    3: "sm_occupancy_percent",
    4: "integer_percent",
    5: "tensor_percent",
    6: "tensor_double_fma_percent",
    7: "tensor_half_percent",
    8: "tensor_double_percent",
    9: "tensor_integer_percent",
    10: "dram_percent",
    11: "fp64_percent",
    12: "fp32_percent",
    13: "fp16_percent",
    174: "context_switch_percent",
}
PCIE = {20: "pcie_tx_bytes_per_s", 21: "pcie_rx_bytes_per_s"}
NVLINK = {
    60: "nvlink_rx_bytes_per_s",
    61: "nvlink_tx_bytes_per_s",
}
CHIP_TO_CHIP = {100: "c2c_tx_bytes_per_s", 101: "c2c_rx_bytes_per_s"}
_UNITS, _DETAILS = "gpm", "gpm details"  # the two samples
_ALL = SHARES | PCIE | NVLINK | CHIP_TO_CHIP
CACHES = {160: "host_cache_hit_percent", 162: "peer_cache_hit_percent", 164: "memory_cache_hit_percent"}
ENGINES = {
    **{30 + number: f"decoder {number}" for number in range(8)},
    **{40 + number: f"jpeg {number}" for number in range(8)},
    **{166 + number: f"encoder {number}" for number in range(4)},
}
_BYTES = frozenset({*PCIE, *NVLINK, *CHIP_TO_CHIP, *range(62, 98)})
_FIRST_LINK, _LINKS = 62, 18  # received by link 0, sent by link 0, received by link 1, ...

# nvmlGpmMetric_t: id, return code, value, and three texts nobody needs; the wrapper reads it attribute by attribute
_METRIC = Struct("=IId24x")
_UNTOUCHED = 0xFFFFFFFF  # no return code: an entry that the driver leaves as it is has no value

Value = float | NoValue | None


@dataclass(slots=True)
class GpmSamples:
    """The two samples of a GPU, which take turns, and the request that compares them."""

    name: str
    before: Any
    now: Any
    request: Any
    wanted: tuple[int, ...]  # as they were asked for
    metrics: tuple[int, ...] = ()  # of these, those that are not refused
    blank: bytes = b""  # the entries of the request before it is filled
    refused: dict[int, Value] = field(default_factory=dict)  # those that made the driver refuse all of them
    again_s: float = 0.0  # when they are asked for once more
    failed: int = 0  # requests in a row
    taken_s: float | None = None  # when `before` was; None: it holds none
    in_use: Lock = field(default_factory=Lock)  # by who is inside the driver with them, perhaps for long; or given back

    def want(self, metrics: tuple[int, ...]) -> None:
        """Ask for these from now on."""
        self.wanted = metrics
        self.refused.clear()
        self.ask_for(metrics)

    def ask_for(self, metrics: Iterable[int]) -> None:
        """Ask for these and no others."""
        self.metrics = tuple(dict.fromkeys(metrics))
        self.request.numMetrics = len(self.metrics)
        self.blank = b"".join([_METRIC.pack(number, _UNTOUCHED, nan) for number in self.metrics])


_FILLS = SHARES | PCIE | CHIP_TO_CHIP
_EVERY = tuple(_ALL)
_CORE = tuple([number for number, name in _ALL.items() if name not in EXTENDED])


@probe(every_s=1, fills=tuple(_FILLS.values()), backs=tuple(NVLINK.values()))
def gpm(card: Device) -> Answers:
    """What the units did since the last sample."""
    if card.gpm is not None:
        release(card)
        return dict.fromkeys(_ALL.values(), card.gpm)
    found = _measure(card, _UNITS, _EVERY if card.extended else _CORE)
    if found and not (card.parent or card).links:  # of links that are not there it says 0
        found |= dict.fromkeys(NVLINK, NoValue("unsupported"))
    return {name: found.get(number) for number, name in _ALL.items()}


@probe(every_s=10, fills=("engines", "nvlink_bytes_per_s", *CACHES.values()))
def gpm_details(card: Device) -> Answers:
    """What each video engine, each NVLink and each cache did since the last sample."""
    if card.gpm is not None:
        return dict.fromkeys(("engines", "nvlink_bytes_per_s", *CACHES.values()), card.gpm)
    links = [_FIRST_LINK + 2 * link for link in range(min(card.links, _LINKS))]
    found = _measure(card, _DETAILS, (*ENGINES, *CACHES, *(way for rx in links for way in (rx, rx + 1))))
    engines = [(name, found.get(number)) for number, name in ENGINES.items()]
    traffic = [(found.get(rx + 1), found.get(rx)) for rx in links]
    return {
        "engines": _or_why(
            [Engine(name=name, busy_percent=value) for name, value in engines if isinstance(value, float)],
            [value for _, value in engines],
        ),
        "nvlink_bytes_per_s": _or_why(
            [(_number(tx), _number(rx)) for tx, rx in traffic if isinstance(tx, float) or isinstance(rx, float)],
            [tx for tx, _ in traffic] or [NoValue("unsupported")],
        ),
        **{name: found.get(number) for number, name in CACHES.items()},
    }


def _number(value: Value) -> float | None:
    return value if isinstance(value, float) else None


def _or_why(there: list[Any], values: list[Value]) -> tuple[Any, ...] | NoValue | None:
    """What is there; if nothing is, why not."""
    if there:
        return tuple(there)
    return next((value for value in values if isinstance(value, NoValue)), None)


def _measure(card: Device, name: str, metrics: tuple[int, ...]) -> dict[int, Value]:
    """Metrics since the last sample of this name, none at the first: one call takes a sample, one compares it."""
    if no := card.silent((_REQUEST, name)):
        raise Unanswered(no)
    samples: GpmSamples | None = card.kept.get(name)
    if samples is None:
        question = "nvmlGpmQueryDeviceSupport"
        whole = card.parent or card  # older drivers refuse to say it of an instance
        if not whole.call(question).isSupportedDevice:
            refused = Unanswered(NoValue("unsupported", _NONE))
            whole.hush((question,), refused)
            raise refused
        samples = card.kept[name] = _allocate(card.gate, name, metrics)
    if samples.wanted != metrics:
        samples.want(metrics)
    now_s = card.gate.clock()
    if samples.taken_s is not None and now_s - samples.taken_s < _APART_S:
        return {}
    if not samples.in_use.acquire(blocking=False):
        return {}
    try:
        _take(card, samples.now)
        try:
            return {} if samples.taken_s is None else _compare(card, samples)
        finally:
            samples.before, samples.now, samples.taken_s = samples.now, samples.before, now_s
    finally:
        samples.in_use.release()


def _allocate(gate: DriverGate, name: str, metrics: tuple[int, ...]) -> GpmSamples:
    request = gate.binding.c_nvmlGpmMetricsGet_t()
    request.version = gate.binding.NVML_GPM_METRICS_GET_VERSION
    samples = GpmSamples(name, gate.call("nvmlGpmSampleAlloc"), gate.call("nvmlGpmSampleAlloc"), request, metrics)
    samples.ask_for(metrics)
    return samples


def _take(card: Device, sample: Any) -> None:
    if card.parent is None or card.instance is None:
        card.call("nvmlGpmSampleGet", since=(sample,))
    else:
        card.parent.call("nvmlGpmMigSampleGet", card.instance, since=(sample,))


def _compare(card: Device, samples: GpmSamples) -> dict[int, Value]:
    if samples.refused and card.gate.clock() >= samples.again_s:
        samples.ask_for((*samples.metrics, *samples.refused))
        samples.refused.clear()
    try:
        found = _request(card, samples)
    except Lost:
        raise
    except Unanswered as silent:
        samples.failed += 1
        if silent.no.reason != "unsupported" and samples.failed % _SURE:
            raise
        return _fewer(card, samples, silent)
    samples.failed = 0
    return found


def _fewer(card: Device, samples: GpmSamples, silent: Unanswered) -> dict[int, Value]:
    """What answers where all of them together are refused; the rest is not asked for again."""
    every = samples.metrics
    old = tuple(number for number in every if number < _FIRST_NEW)
    found: dict[int, Value] = {}
    if old and old != every:
        samples.ask_for(old)
        try:
            found = _request(card, samples)
        except Lost:
            raise
        except Unanswered as again:
            silent = again
    if not found:
        for number in every:
            samples.ask_for((number,))
            try:
                found |= _request(card, samples)
            except Lost:
                raise
            except Unanswered as alone:
                silent = alone
        samples.ask_for(found)
    if not found:
        samples.ask_for(every)
        card.hush((_REQUEST, samples.name), silent)  # for a while
        raise silent
    samples.refused |= dict.fromkeys(set(every) - set(found), silent.no)
    samples.again_s, samples.failed = card.gate.clock() + _AGAIN_S, 0
    return found | samples.refused


def _request(card: Device, samples: GpmSamples) -> dict[int, Value]:
    request = samples.request
    request.sample1, request.sample2 = samples.before, samples.now
    entries = byref(request, type(request).metrics.offset)
    memmove(entries, samples.blank, len(samples.blank))
    card.gate.call(_REQUEST, request, gpu=card.index)
    answered = string_at(entries, len(samples.blank))
    found = {number: _value(number, code, value) for number, code, value in _METRIC.iter_unpack(answered)}
    return found | samples.refused


def _value(number: int, code: int, value: float) -> Value:
    if code == _UNTOUCHED:
        return None
    if code != OK:
        return refusal(code).no
    if number in _BYTES:
        value *= _MIB
        return value if 0 <= value <= _MOST_BYTES_PER_S else None
    # a mean over a second may stand a little above its maximum; NaN is no value
    return min(value, 100.0) if 0 <= value <= 101 else None


def release(card: Device) -> None:
    """Give the samples back: before the driver is closed, and before the GPU is read by another handle."""
    _free(card, drop(card))


def release_details(card: Device) -> None:
    """Give back those of the details, which are read no more."""
    _free(card, drop(card, (_DETAILS,)))


def _free(card: Device, dropped: list[GpmSamples]) -> None:
    """Those with which a thread is inside the driver stay: it writes to them when it comes back, however late."""
    for samples in dropped:
        if not samples.in_use.acquire(blocking=False):  # for good: nobody may use them any more
            continue
        for sample in (samples.before, samples.now):
            try:
                card.gate.call("nvmlGpmSampleFree", sample)
            except (Unanswered, DriverGone):
                pass


def drop(card: Device, names: tuple[str, ...] = (_UNITS, _DETAILS)) -> list[GpmSamples]:
    """Forget the samples."""
    return [card.kept.pop(name) for name in names if name in card.kept]
