"""Rules on throttling of a GPU: temperature, power, clocks."""

from __future__ import annotations

import math
from collections.abc import Iterator
from shlex import quote

from gputop.diagnose.finding import Evidence, Finding, Severity, Step
from gputop.diagnose.gpu_tracker import sustained_mhz
from gputop.diagnose.rule import Level, rule
from gputop.diagnose.view import View, idle_watts
from gputop.model import Gpu

_LOWER = 0.85  # of the power limit: the last watts add little speed
_ROUNDED = 1.0  # watts by which two equal limits may differ
_LESS_DRAWN = 0.9  # of its power while busy, if temperature already holds it below its limit
_LEAST_BUSY, _ALWAYS_BUSY = 5.0, 90.0  # percent: below, its power while busy is unknown; pauses are few


def slowed(view: View, gpu: Gpu) -> float | None:
    """Share (0-1) of its sustained clock that a GPU has lost; None if unknown."""
    clock = view.mean(gpu, "sm_clock_mhz")
    highest = sustained_mhz(gpu)
    return max(0.0, 1 - clock / highest) if clock is not None and highest else None


def _clocks(gpu: Gpu, clock: float | None, lost: float | None, limit: float | None = None) -> Iterator[Evidence]:
    highest = sustained_mhz(gpu)
    if clock is not None and highest and lost is not None:
        text = f"mean SM clock {clock:.0f} of {highest:.0f} MHz ({-100 * lost or 0:.0f} %)"
        yield Evidence(text=text, value=clock, unit="MHz", limit=limit, sense="healthy_from")
    elif clock is not None:
        yield Evidence(text=f"mean SM clock {clock:.0f} MHz (boost clock unknown)", value=clock, unit="MHz")


@rule(
    "thermal",
    "Is a GPU slowed by thermal throttling?",
    level=Level.DEVICE,
    state="thermal",
    short="HEAT",
    needs=("temperature_celsius", "throttled_heat_percent or throttled_heat_hard_percent or throttle_reasons"),
)
def thermal(view: View) -> Iterator[Finding]:
    """Thermal slowdown, or a temperature near it; without counters, by the current throttle reasons."""
    for gpu in view.gpus():
        if not view.knows(gpu, "temperature_celsius"):
            continue
        soft, hard = view.mean(gpu, "throttled_heat_percent"), view.mean(gpu, "throttled_heat_hard_percent")
        if soft is None and hard is None and not view.knows(gpu, "throttle_reasons"):
            continue
        reasons = gpu.throttle_reasons or frozenset()
        severity: Severity
        if (hard or 0.0) >= view.limit("hard_percent") or (hard is None and "hw thermal" in reasons):
            severity = "crit"
        elif view.above(soft, "soft_percent") or (soft is None and "thermal" in reasons):
            severity = "warn"
        elif _near_limit(view, gpu):
            severity = "info"
        else:
            continue
        yield _thermal_finding(view, gpu, severity, soft, hard)


def _near_limit(view: View, gpu: Gpu) -> bool:
    """Whether slowdown is near: close to the GPU's own threshold, or to the usual one if it reports none."""
    if view.below(view.mean(gpu, "temperature_margin_celsius"), "margin_celsius"):
        return True
    celsius = view.mean(gpu, "temperature_celsius")
    if gpu.slowdown_celsius is None and gpu.temperature_margin_celsius is None:
        return view.above(celsius, "usual_celsius")
    return gpu.slowdown_celsius is not None and view.above(
        None if celsius is None else celsius - gpu.slowdown_celsius, "slowdown_distance_celsius"
    )


def _thermal_finding(view: View, gpu: Gpu, severity: Severity, soft: float | None, hard: float | None) -> Finding:
    celsius, lost = gpu.temperature_celsius or 0.0, slowed(view, gpu)
    at = "" if gpu.slowdown_celsius is None else f" (slowdown at {gpu.slowdown_celsius:.0f} °C)"
    if hard and gpu.slowdown_celsius is not None and celsius < gpu.slowdown_celsius:
        at += ", memory or hot spot may be hotter"  # they slow the GPU down, and most cards do not report them
    evidence = [*_clocks(gpu, view.mean(gpu, "sm_clock_mhz"), lost)] if lost else []  # first: this is what it costs
    for share, how, name in ((hard, "hardware", "hard_percent"), (soft, "software", "soft_percent")):
        if share:
            text = f"{how} thermal slowdown {share:.0f} % of the last {view.limit('window_s'):.0f} s"
            evidence.append(Evidence(text=text, value=share, unit="%", limit=view.limit(name), sense="healthy_to"))
    text = f"{celsius:.0f} °C{at}"
    evidence.append(Evidence(text=text, value=celsius, unit="C", limit=gpu.slowdown_celsius, sense="healthy_to"))
    words = {"crit": "hardware thermal slowdown", "warn": "software thermal slowdown", "info": "near thermal slowdown"}
    return view.found(
        gpu,
        severity,
        words[severity],
        evidence=tuple(evidence),
        steps=(
            Step(text="Improve airflow, or report it: fans, dust filters, blanking panels, space between cards"),
            *_power_limit_steps(view, gpu),
        ),
        confidence=view.confidence(0.95, soft, hard),
        grade="driver",
        lost_share=lost if severity != "info" else None,
    )


def _power_limit_steps(view: View, gpu: Gpu) -> Iterator[Step]:
    """A valid power limit below its power at work: temperature alone may hold it below the present one."""
    limit, least = gpu.power_limit_watts, gpu.power_min_limit_watts
    if limit is None or least is None:
        return
    drawn = _busy_watts(view, gpu, limit)
    wanted = min(_LOWER * limit, math.inf if drawn is None else _LESS_DRAWN * drawn)
    lower = max(math.ceil(least), 5 * round(wanted / 5))
    if lower < limit and (drawn is None or drawn > lower):
        yield Step(
            text=f"Until then, limit power to {lower} W for steadier clocks",
            command=f"sudo nvidia-smi -i {quote(gpu.index)} -pl {lower}",
            needs_root=True,
        )


def _busy_watts(view: View, gpu: Gpu, limit: float) -> float | None:
    """Power in watts while kernels run: the mean includes pauses, and a lower power limit slows all work."""
    drawn, busy, idle = view.mean(gpu, "power_watts"), view.mean(gpu, "busy_percent"), idle_watts(view, gpu)
    if drawn is None or (busy is not None and busy < _LEAST_BUSY):
        return None
    seen = view.window(gpu, "power_watts").percentile(0.9) or drawn
    substitute = view.substitute(gpu)
    if busy is None or busy >= _ALWAYS_BUSY or idle is None or (substitute and substitute.lower_bound):
        return max(drawn, seen)
    return max(drawn, seen, min(limit, idle + (drawn - idle) * 100 / busy))


@rule(
    "power",
    "Is a GPU power-capped?",
    level=Level.DEVICE,
    state="power cap",
    short="PWR",
    needs=(),
    partly=("throttled_power_percent", "power_limit_watts", "power_default_limit_watts"),
)
def power(view: View) -> Iterator[Finding]:
    """Power-capped below the default power limit is a fault; at the default limit it is a GPU at full load.

    The power brake is a fault at any limit, by its counter or else by the current throttle reasons. So is a hardware
    slowdown with neither a thermal nor a power brake reason.
    """
    for gpu in view.gpus():
        brake, reasons = view.mean(gpu, "throttled_brake_percent"), gpu.throttle_reasons or frozenset()
        uncounted = gpu.throttled_brake_percent is None and "power brake" in reasons
        if view.above(brake, "brake_percent") or uncounted:
            yield _brake_finding(view, gpu, brake)
            continue
        if _has_no_reason(view, gpu):
            yield _hardware(view, gpu)
            continue
        if not view.knows(gpu, "throttled_power_percent", "power_limit_watts", "power_default_limit_watts"):
            continue
        capped = view.mean(gpu, "throttled_power_percent")
        lowered = (gpu.power_limit_watts or 0.0) < (gpu.power_default_limit_watts or 0.0) - _ROUNDED
        if view.above(capped, "capped_percent") and (lowered or _draws_full_limit(view, gpu, capped or 0.0)):
            yield _capped_finding(view, gpu, capped or 0.0)


def _has_no_reason(view: View, gpu: Gpu) -> bool:
    """Whether hardware slows it without a reason; a P-state change does so for a moment."""
    reasons = gpu.throttle_reasons or frozenset()
    counted = gpu.throttled_heat_hard_percent or gpu.throttled_brake_percent
    named = counted or reasons & {"hw thermal", "power brake"}
    return "hw slowdown" in reasons and not named and (gpu.performance_state or 0) <= view.limit("performance_state")


def _hardware(view: View, gpu: Gpu) -> Finding:
    lost = slowed(view, gpu)
    return view.found(
        gpu,
        "warn",
        "hardware slowdown, no cause reported",
        evidence=(
            Evidence(text="driver reports neither thermal slowdown nor power brake"),
            *_clocks(gpu, view.mean(gpu, "sm_clock_mhz"), lost),
        ),
        steps=(
            Step(text="Check power supplies, cables and rack power: load peaks may exceed what they deliver"),
            Step(
                text="Check temperatures and throttle reasons",
                command=f"nvidia-smi -q -d PERFORMANCE,TEMPERATURE -i {quote(gpu.index)}",
            ),
        ),
        confidence=0.8,
        grade="driver",
        lost_share=lost,
    )


def _brake_finding(view: View, gpu: Gpu, brake: float | None) -> Finding:
    lost = slowed(view, gpu)
    braking = Evidence(text="power brake active now")
    if brake is not None:
        text = f"power brake {brake:.0f} % of the last {view.limit('window_s'):.0f} s"
        braking = Evidence(text=text, value=brake, unit="%", limit=view.limit("brake_percent"), sense="healthy_to")
    return view.found(
        gpu,
        "crit",
        "power brake slowdown, asserted by the server",
        evidence=(braking, *_clocks(gpu, view.mean(gpu, "sm_clock_mhz"), lost)),
        steps=(Step(text="Check power supplies, cables and rack power: the server asserted the power brake"),),
        confidence=0.9,
        grade="driver",
        lost_share=lost,
    )


def _capped_finding(view: View, gpu: Gpu, capped: float) -> Finding:
    limit, default = gpu.power_limit_watts or 0.0, gpu.power_default_limit_watts or 0.0
    asked, lost, lowered = gpu.power_requested_limit_watts, slowed(view, gpu), limit < default - _ROUNDED
    evidence = tuple(_limit_evidence(view, gpu, capped, lowered=lowered))
    if not lowered:
        if (lost or 0.0) >= view.limit("too_slow"):
            return _slow_finding(view, gpu, lost or 0.0, evidence)
        return view.found(
            gpu,
            "info",
            "power-capped at full load, as expected",
            evidence=evidence,
            confidence=0.9,
            grade="driver",
            healthy=True,
        )
    headline = f"power limit {limit:.0f} W (default {default:.0f} W)"
    if asked is not None and asked > limit + _ROUNDED:
        headline += ", enforced by the server"
        text = f"requested limit {asked:.0f} W, enforced {limit:.0f} W"
        evidence += (Evidence(text=text, value=asked, unit="W", limit=limit, sense="flagged_from"),)
        step = Step(text="Check the power cap in the server's BMC and its power supplies; nvidia-smi cannot raise it")
    else:
        step = Step(
            text=f"Raise the power limit to {default:.0f} W if the server's power and cooling allow",
            command=f"sudo nvidia-smi -i {quote(gpu.index)} -pl {default:.0f}",
            needs_root=True,
        )
    return view.found(
        gpu, "warn", headline, evidence=evidence, steps=(step,), confidence=0.9, grade="driver", lost_share=lost
    )  # fmt: skip


def _slow_finding(view: View, gpu: Gpu, lost: float, evidence: tuple[Evidence, ...]) -> Finding:
    """Power-capped at the default limit, but with nearly no clock left: that is not a GPU at full load."""
    return view.found(
        gpu,
        "warn",
        f"power-capped at its default limit, SM clock {100 * lost:.0f} % lower",
        evidence=evidence,
        steps=(
            Step(
                text="Check power, clocks and throttle reasons",
                command=f"nvidia-smi -q -d POWER,PERFORMANCE,CLOCK -i {quote(gpu.index)}",
            ),
            Step(text="Check the power connectors; on a laptop, the charger and the power profile"),
        ),
        confidence=0.7,
        grade="driver",
        lost_share=lost,
    )


def _draws_full_limit(view: View, gpu: Gpu, capped: float) -> bool:
    """Whether it draws its full limit while power-capped, as far as its power is known."""
    watts, limit = view.mean(gpu, "power_watts"), gpu.power_limit_watts
    return watts is None or not limit or watts >= view.limit("full_share") * limit * capped / 100


def _limit_evidence(view: View, gpu: Gpu, capped: float, *, lowered: bool) -> Iterator[Evidence]:
    """Power against its limit; held against thresholds only where the limit is lowered."""
    watts, limit, default = view.mean(gpu, "power_watts"), gpu.power_limit_watts or 0.0, gpu.power_default_limit_watts
    if watts is not None:
        text = f"power {watts:.0f} W, limit {limit:.0f} W (default {default or 0:.0f} W)"
        yield Evidence(text=text, value=watts, unit="W", limit=limit, sense="flagged_from")
    text = f"power-capped {capped:.0f} % of the last {view.limit('window_s'):.0f} s"
    least = view.limit("capped_percent") if lowered else None
    yield Evidence(text=text, value=capped, unit="%", limit=least, sense="flagged_from")
    yield from _clocks(gpu, view.mean(gpu, "sm_clock_mhz"), slowed(view, gpu))


@rule(
    "clocks-low",
    "Are a GPU's clocks locked low?",
    level=Level.DEVICE,
    state="low clock",
    short="CLK",
    needs=("busy_percent", "sm_clock_mhz", "throttle_reasons", "boost_clock_max_mhz or sm_clock_max_mhz"),
)
def clocks_low(view: View) -> Iterator[Finding]:
    """Busy in the highest performance state at a low SM clock, without a throttle reason: a setting limits it."""
    for gpu in view.gpus():
        if not view.knows(gpu, "busy_percent", "sm_clock_mhz", "throttle_reasons"):
            continue
        clock, highest = view.mean(gpu, "sm_clock_mhz"), sustained_mhz(gpu)
        if highest is None and not view.knows(gpu, "boost_clock_max_mhz"):
            continue
        share = clock / highest if clock is not None and highest else None
        if not view.below(share, "clock_share"):
            continue
        held = (gpu.throttle_reasons or frozenset()) - {"idle", "clock settings"}
        before = any(
            (view.mean(gpu, f"throttled_{cause}_percent") or 0.0) > view.limit("held_percent")
            for cause in ("power", "heat", "heat_hard", "brake")
        )
        if held or before or (gpu.performance_state or 0) > view.limit("performance_state"):
            continue
        if view.above(view.mean(gpu, "busy_percent"), "busy_percent"):
            lost, least = slowed(view, gpu), view.limit("clock_share") * (highest or 0.0)
            card = f"sudo nvidia-smi -i {quote(gpu.index)}"
            yield view.found(
                gpu,
                "warn",
                "SM clock locked low",
                evidence=(*_clocks(gpu, clock, lost, least), Evidence(text="no thermal or power throttling")),
                steps=(
                    Step(
                        text="Reset the locked and application clocks",
                        command=f"{card} -rgc && {card} -rac",
                        needs_root=True,
                    ),
                ),
                confidence=0.8,
                grade="driver",
                lost_share=lost,
            )
