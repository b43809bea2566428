"""Item 13: what is known of drivers from public dumps and headers, fact by fact, beside what this one answers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from threading import Thread
from typing import Any

from gputop.collect.nvml.pci import bus_id, slot_of
from tests.gpu_check.check import Check
from tests.gpu_check.driver import OK
from tests.gpu_check.records import Fact, Record, Verdict, measurement, middle, within

ROUND = 1 << 32
NO_FIELD = 60_000
APART_S = 0.06
TYPES = ("double", "uint", "ulong", "ull", "sll", "int", "ushort")
# by field: what public dumps of drivers say it takes, in ms, for the slowest device class seen
SLOW_FIELDS = {185: "average power", 83: "energy", 186: "power now", 197: "PCIe bytes sent", 82: "memory temperature"}
KNOWN_EVENTS = 0x1FF


@measurement("13", "Which facts that gputop was built on hold for this device?")
def facts(check: Check) -> Iterator[Record]:
    """Each fact once, with what this device answers."""
    version = check.driver.ask("nvmlSystemGetDriverVersion").value
    yield Fact(f"{check.gpu.name}, driver {version}")
    for one in (_samples, _pcie, _link, _costs, _types, _gpm, _temperatures, _events, _memory, _lock):
        yield from one(check)


def _field(check: Check, number: int, scope: int = 0) -> Any:
    found = check.driver.fields(check.gpu, (number, scope))
    return found[0] if found else None


def _call(check: Check, name: str, *args: Any) -> Any:
    return check.driver.on(check.gpu, f"nvmlDevice{name}", *args)


def _samples(check: Check) -> Iterator[Record]:
    """A GPU that idles may store none: then the rates are asked for."""
    found, rates = _call(check, "GetSamples", 1, 0), _call(check, "GetUtilizationRates")
    if found.code != OK or not found.value[1]:
        word = "answers" if rates.code == OK else "does not answer either"
        yield Verdict(
            rates.code == OK, f"no samples of utilization ({check.driver.error(found.code)}): the rate {word}"
        )
    else:
        age_s = time.time() - max(one.timeStamp for one in found.value[1]) / 1e6
        dry = age_s > 1
        text = f"newest sample of utilization {age_s:.1f} s old" + (": the buffer ran dry" if dry else "")
        yield Verdict(not dry or rates.code == OK, f"{text}; the rate is asked for where none is newer than 1 s")
    power = _call(check, "GetSamples", 0, 0)
    if power.code == OK and len(power.value[1]) > 1:
        stamps = sorted(one.timeStamp for one in power.value[1])
        yield Fact(
            f"power samples: {len(stamps)} over {(stamps[-1] - stamps[0]) / 1e6:.1f} s (119 over 2.4 s is known)"
        )
    for kind, name in ((5, "SM clock"), (6, "memory clock")):
        clocks = _call(check, "GetSamples", kind, 0)
        if clocks.code != OK:
            yield Fact(f"samples of the {name}: {check.driver.error(clocks.code)}")
        elif stamps := sorted(one.timeStamp for one in clocks.value[1]):
            yield Fact(f"samples of the {name}: {len(stamps)} over {(stamps[-1] - stamps[0]) / 1e6:.0f} s")


def _pcie(check: Check) -> Iterator[Record]:
    """Counters of 32 bits, whatever their type; before 555 there are none."""
    first = _field(check, 197)
    if first is None or first.code != OK:
        yield Fact(f"no PCIe counters (fields 197, 198: they came with 555): {_code(check, first)}")
    else:
        highest, wrapped, before = first.value, False, first.value
        end_s = time.monotonic() + check.seconds
        while time.monotonic() < end_s:
            time.sleep(APART_S)
            now = _field(check, 197)
            if now is None or now.value is None:
                break
            wrapped |= now.value < before
            highest, before = max(highest, now.value), now.value
        kind = TYPES[first.kind] if first.kind < len(TYPES) else str(first.kind)
        came_round = "came round" if wrapped else "did not come round"
        text = f"PCIe counter said to be {kind}: highest value {highest:.4g}, {came_round} in {check.seconds:g} s"
        yield Verdict(highest < ROUND, f"{text}; gputop takes it to be of 32 bits until it sees a higher one")
    for way, name in enumerate(("sent", "received")):
        answer = _call(check, "GetPcieThroughput", way)
        if answer.code == OK:
            yield Fact(
                f"PcieThroughput {name}: {answer.value} KB/s, took {answer.spent_s * 1e3:.0f} ms (20 to 40 known)"
            )
        else:
            yield Fact(f"PcieThroughput {name}: {check.driver.error(answer.code)}")


def _link(check: Check) -> Iterator[Record]:
    """The driver's highest number of lanes is that of the card where the slot is wired for fewer."""
    most, place = _call(check, "GetMaxPcieLinkWidth"), _call(check, "GetPciInfo")
    slot = None
    if place.code == OK:
        slot = slot_of(bus_id(place.value.domain, place.value.bus, place.value.device), "/sys")
    port = slot.port if slot else None
    if port is None:
        yield Fact("the port above the card is not shown by this kernel: a narrow link is an information, no warning")
        return
    yield Fact(
        f"lanes: driver's most {most.value}, the port's {port.read('max_link_width')}; "
        f"the port's speed {port.read('max_link_speed')}"
    )


def _costs(check: Check) -> Iterator[Record]:
    """Power asked for each second must be the cheap one, and the same."""
    taken = {number: _took_ms(check, number) for number in SLOW_FIELDS}
    for number, name in SLOW_FIELDS.items():
        yield Fact(f"field {number}, {name}: " + ("no value" if taken[number] is None else f"{taken[number]:.3f} ms"))
    usage = [_call(check, "GetPowerUsage") for _ in range(20)]
    if usage[0].code != OK:
        yield Verdict(None, f"PowerUsage: {check.driver.error(usage[0].code)}; field 185 stands in")
        return
    cheap_ms = middle([one.spent_s * 1e3 for one in usage])
    yield Fact(f"PowerUsage: {cheap_ms:.4f} ms")
    if taken[185] is not None:
        yield Verdict(cheap_ms <= taken[185] + 0.01, "PowerUsage is no dearer than field 185")
        average = _field(check, 185).value
        yield within(
            "PowerUsage over field 185", usage[-1].value / average if average else None, 0.8, 1.25, "", "equal"
        )


def _took_ms(check: Check, number: int) -> float | None:
    spent = []
    for _ in range(10):
        answer = _call(check, "GetFieldValues", [number])
        if answer.code != OK or answer.value[0].nvmlReturn != OK:
            return None
        spent.append(answer.spent_s * 1e3)
    return middle(spent)


def _types(check: Check) -> Iterator[Record]:
    """Whole numbers whose type is left at that of a double; fields that do not exist."""
    for number, name in (
        (3, "corrected ECC errors"),
        (4, "uncorrected"),
        (82, "memory temperature"),
        (297, "MMA stall"),
    ):
        one = _field(check, number)
        if one is not None and one.code == OK:
            kind = TYPES[one.kind] if one.kind < len(TYPES) else str(one.kind)
            yield Fact(f"field {number}, {name}: type {kind}, value {one.value}")
    one = _field(check, NO_FIELD)
    refused = one is not None and one.code != OK
    yield Verdict(refused, f"a field that does not exist is refused: {_code(check, one)}")


def _code(check: Check, one: Any) -> str:
    return "no answer" if one is None else check.driver.error(one.code)


def _gpm(check: Check) -> Iterator[Record]:
    """Ids from 98 on came with 575: an older driver answers them with an error each, or refuses all."""
    support = check.driver.on(check.gpu, "nvmlGpmQueryDeviceSupport")
    if support.code != OK or not support.value.isSupportedDevice:
        yield Fact("no GPM: Hopper and newer have it")
        return
    binding = check.driver.binding
    samples = [check.driver.ask("nvmlGpmSampleAlloc", kept=False).value for _ in range(2)]
    for sample in samples:
        check.driver.on(check.gpu, "nvmlGpmSampleGet", sample, kept=False)
        time.sleep(0.12)
    request = binding.c_nvmlGpmMetricsGet_t()
    request.version, request.numMetrics = binding.NVML_GPM_METRICS_GET_VERSION, 4
    request.sample1, request.sample2 = samples
    for place, number in enumerate((2, 20, 100, 174)):
        request.metrics[place].metricId, request.metrics[place].nvmlReturn = number, 0xFFFF
    answer = check.driver.ask("nvmlGpmMetricsGet", request, kept=False)
    if answer.code != OK:
        yield Verdict(
            False, f"ids 100 and 174 make the driver refuse all: {check.driver.error(answer.code)}; asked without"
        )
    else:
        codes = {metric.metricId: metric.nvmlReturn for metric in request.metrics[:4]}
        yield Fact("GPM: " + ", ".join(f"{number} {_untouched(check, code)}" for number, code in codes.items()))
    for sample in samples:
        check.driver.ask("nvmlGpmSampleFree", sample, kept=False)


def _untouched(check: Check, code: int) -> str:
    return "left as it was" if code == 0xFFFF else check.driver.error(code)


def _temperatures(check: Check) -> Iterator[Record]:
    """Thresholds are in order on most cards, and not on all."""
    shutdown, slowdown, _, gpu_max = (_call(check, "GetTemperatureThreshold", kind) for kind in range(4))
    known = [one.value for one in (shutdown, slowdown, gpu_max) if one.code == OK]
    if len(known) < 2:
        yield Fact("temperature thresholds in degrees: none; distances below the limit stand in (item 6)")
        return
    yield Verdict(max(known) == known[0], f"shutdown, slowdown and GPU maximum {known}: the first is the highest")


def _events(check: Check) -> Iterator[Record]:
    """Bits that gputop has no word for."""
    answer = _call(check, "GetSupportedClocksEventReasons")
    if answer.code == OK:
        new = answer.value & ~KNOWN_EVENTS
        yield Fact(f"clock event reasons {answer.value:#x}" + (f"; new since 580: {new:#x}" if new else ""))
    one, most = _call(check, "GetMaxCustomerBoostClock", 0), _call(check, "GetMaxClockInfo", 0)
    if one.code != OK:
        yield Fact(f"no boost clock ({check.driver.error(one.code)}), as on GeForce; highest clock {most.value} MHz")


def _memory(check: Check) -> Iterator[Record]:
    answer = _call(check, "GetMemoryInfo")
    said = f"{answer.value.total / 2**30:.1f} GiB" if answer.code == OK else check.driver.error(answer.code)
    yield Fact(f"device memory: {said}")


def _lock(check: Check) -> Iterator[Record]:
    """Whether a slow call about a GPU holds up a quick one: then costs add up over GPUs."""
    slow = _call(check, "GetPcieThroughput", 0)
    if slow.code != OK or slow.spent_s < 0.005:
        yield Fact("whether the driver holds one lock is not seen here: no call is slow enough")
        return
    alone_ms = middle([_call(check, "GetMemoryInfo").spent_s * 1e3 for _ in range(20)])
    function, handle = check.driver.binding.nvmlDeviceGetPcieThroughput, check.gpu.handle
    other = Thread(target=function, args=(handle, 0), daemon=True)
    other.start()
    time.sleep(slow.spent_s / 4)
    beside_ms = _call(check, "GetMemoryInfo").spent_s * 1e3
    other.join()
    held = beside_ms > max(10 * alone_ms, 1.0)
    yield Fact(
        f"MemoryInfo takes {alone_ms:.3f} ms, {beside_ms:.3f} ms beside PcieThroughput: "
        + ("one lock is held" if held else "it is not held up")
    )
