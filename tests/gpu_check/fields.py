"""Item 6: which field values answer, in which unit, and what the relative temperature limits mean."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

from tests.gpu_check.check import Check
from tests.gpu_check.driver import OK, Field
from tests.gpu_check.records import Fact, Record, Verdict, measurement, within

ALL_LINKS = 0xFFFFFFFF
NS_COUNTERS = tuple(range(74, 82))
POWER = tuple((number, scope) for number in (185, 186) for scope in (0, 1, 2))
QUESTIONS = (
    *((number, 0) for number in (3, 4, 29, 30, *range(74, 84), 91, 94, *range(142, 146), 161, 162, 163, 165)),
    *POWER,
    *((number, 0) for number in (*range(187, 199), 202, 204, 215, 230, 297)),
    *((number, 0) for number in (31, 95, 164, 169, *range(173, 184), 213, 214, *range(219, 223))),
    (138, ALL_LINKS),
    (139, ALL_LINKS),
)
# what gputop reads and has no other way to know
NEEDED = {
    74: "time slowed by the power limit",
    83: "energy",
    188: "highest power limit",
    189: "power limit as delivered",
    197: "PCIe bytes sent (GPM 20 stands in)",
    198: "PCIe bytes received (GPM 21 stands in)",
    185: "mean power (nvmlDeviceGetPowerUsage stands in)",
    186: "power now",
    76: "time slowed by sync boost",
    77: "time slowed by board limits",
    79: "time slowed for reliability",
    78: "time slowed for want of work",
    81: "time below the base clock",
    94: "PCIe replays (nvmlDeviceGetPcieReplayCounter stands in)",
    230: "what the driver asks for",
}
SLOWED = (  # by the ids that this driver has for them, if any
    "time slowed by heat, software (75 stands in)",
    "time slowed by heat, hardware",
    "time slowed by the power brake",
)
SHUTDOWN, SLOWDOWN = 193, 194


def name(check: Check, number: int) -> str:
    """The field's name in nvidia-ml-py."""
    binding = check.driver.binding
    start = "NVML_FI_DEV_"
    found = (word for word in dir(binding) if word.startswith(start) and getattr(binding, word) == number)
    return next((word.removeprefix(start) for word in found), "?")


@measurement("6", "Which field values answer, in which unit, and what do the temperature limits mean?")
def fields(check: Check) -> Iterator[Record]:
    """All of them twice, some time apart: value, type, time stamp, growth."""
    check.driver.label = "fields"
    first, start_s = _ask(check), time.monotonic()
    time.sleep(max(0.2, check.seconds / 2))
    second, dt_s = _ask(check), time.monotonic() - start_s
    check.driver.label = ""
    for key in _questions(check):
        yield Fact(
            _line(check, first[key], second[key], dt_s), {"field": key, "first": first[key], "second": second[key]}
        )
    needed = {**NEEDED, **dict(zip(check.driver.slowed, SLOWED, strict=False))}
    lacking = {number: check.driver.error(second[number, 0].code) for number in needed if second[number, 0].code != OK}
    yield Verdict(
        not lacking, f"{len(needed) - len(lacking)} of the {len(needed)} field values that gputop needs answer"
    )
    for number, word in lacking.items():
        yield Verdict(False, f"field {number} answers {word}: {needed[number]}")
    yield from _units((*NS_COUNTERS, *check.driver.slowed), first, second, dt_s)
    yield from _temperatures(check, second)


def _questions(check: Check) -> tuple[tuple[int, int], ...]:
    return (*QUESTIONS, *((number, 0) for number in check.driver.slowed))


def _ask(check: Check) -> dict[tuple[int, int], Field]:
    found = check.driver.fields(check.gpu, *_questions(check))
    if not found:
        raise RuntimeError("nvmlDeviceGetFieldValues fails as a whole")
    return {(one.number, one.scope): one for one in found}


def _line(check: Check, first: Field, second: Field, dt_s: float) -> str:
    scope = {0: "", ALL_LINKS: " all links"}.get(first.scope, f" scope {first.scope}")
    start = f"{first.number:3}{scope} {name(check, first.number)}"
    if second.code != OK or first.value is None or second.value is None:
        return f"{start:54} {check.driver.error(second.code)}"
    grown = (second.value - first.value) / dt_s
    moves = f"  {grown:+.5g}/s" if grown else ""
    return f"{start:54} {second.value:<16g} type {second.kind}{moves}"


def _units(
    times: Iterable[int], first: dict[tuple[int, int], Field], second: dict[tuple[int, int], Field], dt_s: float
) -> Iterator[Record]:
    for number in times:
        before, after = first[number, 0].value, second[number, 0].value
        if before is not None and after is not None:
            share = (after - before) / dt_s / 1e9
            if not -1e-9 <= share <= 1.1:
                yield Verdict(False, f"field {number} grew {share:.3g} s a second; assumed nanoseconds, at most 1")
    energy = [found[83, 0].value for found in (first, second)]
    watts = second[185, 0].value if second[185, 0].value is not None else second[186, 0].value
    if None not in energy and watts:
        ratio = (energy[1] - energy[0]) / dt_s / watts
        yield within("energy counter over mean power", ratio, 0.8, 1.25, "", "field 83 in mJ, 185 in mW")
    stamps = [one.stamp_us for one in second.values() if one.code == OK and one.stamp_us]
    if stamps:
        age_s = time.time() - max(stamps) / 1e6
        yield within("age of the newest time stamp", age_s, -1, 2, "s", "microseconds of the host's wall clock")
    else:
        yield Verdict(False, "no field has a time stamp; gputop divides by them where it can")


def _temperatures(check: Check, fields: dict[tuple[int, int], Field]) -> Iterator[Record]:
    ask = check.driver.on
    absolute = [ask(check.gpu, "nvmlDeviceGetTemperatureThreshold", kind) for kind in (0, 1)]
    now, margin = ask(check.gpu, "nvmlDeviceGetTemperatureV", 0), ask(check.gpu, "nvmlDeviceGetMarginTemperature")
    words = [str(one.value) if one.code == OK else check.driver.error(one.code) for one in (now, margin, *absolute)]
    yield Fact("temperature {}, margin {}, absolute shutdown {}, slowdown {}".format(*words))
    limits = [fields[number, 0].value for number in (SHUTDOWN, SLOWDOWN)]
    if None in limits or now.code != OK or margin.code != OK:
        yield Verdict(
            None if absolute[1].code == OK else False, "slow-down temperature from margin and T.Limit: no value"
        )
        return
    shutdown, slowdown = (now.value + margin.value - limit for limit in limits)
    yield within("slow-down at temperature + margin - T.Limit", slowdown, 70, 120, "C", "how gputop reads it")
    yield Verdict(shutdown >= slowdown, f"shutdown {shutdown:g} C is not below slow-down {slowdown:g} C")
    if absolute[1].code == OK:
        yield within("the same less the absolute slow-down", slowdown - absolute[1].value, -3, 3, "C", "equal")
