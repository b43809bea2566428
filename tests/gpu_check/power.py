"""Item 5: power and P-state of a GPU without a context, with one, and at work."""

from __future__ import annotations

from collections.abc import Iterator

from tests.gpu_check.check import Check
from tests.gpu_check.records import Fact, Figures, Record, Skip, Verdict, measurement, middle, within
from tests.gpu_check.watch import Watched

IDLE_BIT = 0x1


def share_of_limit(check: Check, watts: float | None) -> float | None:
    """Pn: power above idle over the limit in force above idle."""
    limit = check.driver.on(check.gpu, "nvmlDeviceGetEnforcedPowerLimit").value
    idle = middle(check.idle.watts) if check.idle.watts else None
    if watts is None or idle is None or not limit or limit / 1e3 <= idle:
        return None
    return (watts - idle) / (limit / 1e3 - idle)


@measurement("5", "What do power and P-state do without a context, with a context and no work, and just after work?")
def power(check: Check) -> Iterator[Record]:
    """Idle first; the rest needs torch."""
    note = f", {len(check.others)} of others" if check.others else ""
    yield from _describe(check, f"no context of ours{note}", check.idle)
    with check.load() as load:
        load.run("rest")
        parked = check.watch("context, no work")
        yield from _describe(check, "context, no work", parked)
        yield from _compare(check, parked)
        load.run("bf16")
        check.watch("bf16 before rest")
        load.run("rest")
        yield from _describe(check, "just after work", check.watch("just after work"))
    yield from _describe(check, "context gone", check.watch("context gone"))


def _describe(check: Check, name: str, seen: Watched) -> Iterator[Record]:
    bits = sum(1 for mask in seen.reasons if mask & IDLE_BIT)
    yield Fact(f"{name}: P{seen.state}, idle bit in {bits} of {len(seen.reasons)} looks")
    yield Figures(f"{name}: power", "W", tuple(seen.watts))
    yield Figures(f"{name}: SM clock", "MHz", tuple(seen.clock))


def _compare(check: Check, parked: Watched) -> Iterator[Record]:
    if not parked.watts or not parked.busy:
        raise Skip("no power or no busy samples")
    extra = share_of_limit(check, middle(parked.watts))
    yield within("Pn of a context without work", extra, -0.1, 0.35, "", "below 0.35 is low power")
    busy = sum(parked.busy) / len(parked.busy)
    yield Verdict(busy < 1, f"busy {busy:.3g} % with a context and no work; below 1 counts as not working")
