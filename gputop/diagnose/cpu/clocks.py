"""A rule about CPUs that run below their clock."""

from __future__ import annotations

from collections.abc import Iterator

from gputop.diagnose.finding import Evidence, Finding, Severity, Step
from gputop.diagnose.rule import Level, rule
from gputop.diagnose.view import View
from gputop.model import Host, Identity

_SAVING = frozenset({"powersave", "conservative"})
# with these drivers "powersave" is the usual governor, and the preference decides
_BY_PREFERENCE = frozenset({"intel_pstate", "amd-pstate-epp", "amd_pstate_epp"})


@rule(
    "cpu-slow",
    "Do the CPUs run below their clock?",
    level=Level.CAUSE,
    state="slow cpu",
    short="CPU",
    number="R20",
    rows=(),
    needs=("cpu_governor", "cpu_max_mhz"),
    alone=True,
)
def cpu_slow(view: View) -> Iterator[Finding]:
    """Set so by governor, preference or cap, too hot, or simply far below the highest clock while busy."""
    host = view.host()
    if not view.knows(host, "cpu_governor", "cpu_max_mhz"):
        return
    why = [found for found in (_governor(host), _preference(host), _cap(view, host), _heat(view)) if found]
    low = _low(view, host)
    if not why and low is None:
        return
    held_up = _held_up(view) if why else []
    severity: Severity = "warn" if held_up else "info"
    clock = Evidence(
        text=f"clock {host.cpu_mhz:.0f} of {host.cpu_max_mhz:.0f} MHz, mean of the cores",
        value=host.cpu_mhz,
        unit="MHz",
        limit=view.limit("clock_share") * (host.cpu_max_mhz or 0.0),
    ) if host.cpu_mhz is not None else None  # fmt: skip
    yield view.found(
        host,
        severity,
        "runs its CPUs slower than they can" if why else "runs its CPUs far below their highest clock",
        evidence=tuple(item for item in (*(text for text, _ in why), clock, low) if item),
        steps=tuple(dict.fromkeys(step for _, step in why)) or (_LOOK,),
        confidence=0.75 if why else 0.5,
        processes=held_up,
    )


_LOOK = Step(
    text="see what holds them down: power limit, AVX-512, heat",
    command="sudo turbostat --interval 5 --num_iterations 1",
    needs_root=True,
)
_FAST = Step(
    text="let them run at full speed", command="sudo cpupower frequency-set -g performance", needs_root=True
)  # fmt: skip
_Reason = tuple[Evidence, Step]


def _governor(host: Host) -> _Reason | None:
    if host.cpu_governor not in _SAVING or host.cpu_driver in _BY_PREFERENCE:
        return None
    return Evidence(text=f"frequency governor {host.cpu_governor}, driver {host.cpu_driver or 'unknown'}"), _FAST


def _preference(host: Host) -> _Reason | None:
    if host.cpu_preference not in ("power", "balance_power"):
        return None
    files = "/sys/devices/system/cpu/cpu*/cpufreq/energy_performance_preference"
    step = Step(text="prefer speed to saving", command=f"echo performance | sudo tee {files}", needs_root=True)
    return Evidence(text=f"energy preference is {host.cpu_preference}"), step


def _cap(view: View, host: Host) -> _Reason | None:
    cap, highest = host.cpu_cap_mhz, host.cpu_max_mhz
    if cap is None or not highest or not view.below(cap / highest, "cap_share"):
        return None
    text = f"settings allow {cap:.0f} of {highest:.0f} MHz"
    step = Step(text="lift the cap", command=f"sudo cpupower frequency-set -u {highest:.0f}MHz", needs_root=True)
    return Evidence(text=text, value=cap, unit="MHz", limit=view.limit("cap_share") * highest), step


def _heat(view: View) -> _Reason | None:
    often = view.mean("host", "cpu_throttles_per_s")
    if not view.above(often, "throttles_per_s"):
        return None
    text = f"cores slowed down for heat {often or 0:.1f} times a second"
    step = Step(text="cool the CPUs: fans, dust, heat sinks, air that is not already hot from the GPUs")
    return Evidence(text=text, value=often, unit="1/s", limit=view.limit("throttles_per_s")), step


def _low(view: View, host: Host) -> Evidence | None:
    """The clock of busy cores: that of idle ones says nothing."""
    if host.cpu_mhz is None or not host.cpu_max_mhz or not view.below(host.cpu_mhz / host.cpu_max_mhz, "clock_share"):
        return None
    busy = view.mean("host", "cpu_percent")
    if not view.above(busy, "busy_percent"):
        return None
    return Evidence(text=f"while {busy or 0:.0f} % busy", value=busy, unit="%", limit=view.limit("busy_percent"))


def _held_up(view: View) -> list[Identity]:
    """Trainers whose GPU waits for a CPU that is busy: all that they may use, or their main thread's."""
    return [
        trainer.identity
        for trainer in view.vectors()
        if trainer.warm
        and trainer.duty is not None
        and trainer.duty < view.limit("starved.duty")
        and ((trainer.saturation or 0.0) >= view.limit("full") or (trainer.main or 0.0) >= view.limit("main"))
    ]
