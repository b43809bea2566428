"""Running the rules in tests: scenarios to their end, and frames made up by hand."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from typing import Any

from gputop import thresholds
from gputop.demo import SCENARIOS, Demo
from gputop.demo.server import Scenario
from gputop.diagnose import Abstained, Finding
from gputop.diagnose.engine import BROKEN, EVERY_S, Engine, Verdict
from gputop.diagnose.limits import Limits
from gputop.diagnose.rules import RULES
from gputop.history import History
from gputop.model import Frame, Gpu, GpuShare, Host, Identity, Job, Missing, Process, Role
from tests.missing_signals import declared

LIMITS = thresholds.shipped()
ONSET_S = 120.0
EACH_S = round(EVERY_S)  # a frame for each look of the engine
Seen = tuple[tuple[float, Verdict], ...]


@cache
def scenario(name: str, until_s: float = math.inf) -> Seen:
    """What the rules said of a scenario at each of their looks, from its start to its end or until then."""
    return played(SCENARIOS[name], until_s)


def played(made: Scenario, until_s: float = math.inf) -> Seen:
    """The same of one that has no name."""
    demo = Demo(made, pace=False, anchor_s=1_795_185_127.0, at_s=0.0)
    start_s = demo.scenario.server.uptime_s
    length_s = int(min(demo.scenario.length_s, until_s))
    return tuple(
        (frame.mono_s - start_s, said)
        for frame, said in judged(demo.frame(float(t)) for t in range(0, length_s, EACH_S))
    )


def judged(
    frames: Iterable[Frame], limits: Limits | None = None, every_s: float = EVERY_S
) -> Iterable[tuple[Frame, Verdict]]:
    """Each frame and what is said of it. `every_s`: between two looks, as where there are many trainers."""
    engine, history = Engine(lambda: limits or LIMITS), History()
    for frame in frames:
        history.add(frame)
        engine.remember(frame, history)
        said = engine.judge(frame, history, every_s)
        assert not [one for one in said.abstained if BROKEN in (one.unlock or "")]
        for one in said.abstained:
            known = declared(RULES[one.rule]) | (set() if frame.gpus else {"gpus"})
            assert {missing.metric for missing in one.missing} <= known, one.rule
            assert one.missing, f"{one.rule} cannot judge, and does not say for want of what"
        yield frame, said


@dataclass
class Machine:
    """One GPU with one trainer, and how they differ from a healthy one; a dial may be a function of time."""

    gpu: dict[str, Any] = field(default_factory=dict)
    trainer: dict[str, Any] = field(default_factory=dict)
    loader: dict[str, Any] = field(default_factory=dict)
    host: dict[str, Any] = field(default_factory=dict)
    loaders: int = 0

    def frame(self, t: float) -> Frame:
        """It at t seconds."""
        share = GpuShare(uuid="G", busy_percent=97.0, vram_bytes=30 * 2**30)
        job = Job(key="j", name="j", ranks=(Identity(100, 1),))
        own = {"pid": 100, "started_ticks": 1, "gpus": (share,)}
        trainer = Process(**{**own, **TRAINER, **_now(self.trainer, t)})
        child = {"started_ticks": 1, "parent_pid": 100, **LOADER, **_now(self.loader, t)}
        loaders = tuple(Process(**{"pid": 200 + n, **child}) for n in range(self.loaders))
        gpu = Gpu(**{"uuid": "G", "index": "0", "name": "H100", **GPU, **_now(self.gpu, t)})
        host = Host(**{**HOST, **_now(self.host, t)})
        return Frame(
            wall_s=t, mono_s=1000 + t, hostname="h", host=host, gpus=(gpu,), processes=(trainer, *loaders), jobs=(job,)
        )

    def verdict(self, seconds: int = 150, each_s: int = EACH_S) -> Verdict:
        """What is said of it after some time; while nothing of it changes, no finding leaves again for nothing."""
        seen = _looks(self.frame, seconds, each_s)
        dials = (self.gpu, self.trainer, self.loader, self.host)
        if not any(callable(dial) for kind in dials for dial in kind.values()):
            for earlier, later in pairwise(seen):
                left = {one.rule for one in earlier.findings if not one.healthy} - {one.rule for one in later.findings}
                assert not left, f"left again, for {[one.rule for one in later.findings]}"
        return seen[-1]


def after(frame: Callable[[float], Frame], seconds: int = 150, each_s: int = EACH_S) -> Verdict:
    """What is said after some time of frames made up by hand, one for each look of the engine or more."""
    return _looks(frame, seconds, each_s)[-1]


def _looks(frame: Callable[[float], Frame], seconds: int, each_s: int) -> list[Verdict]:
    return [said for _, said in judged(frame(float(t)) for t in range(0, seconds, each_s))]


def hours(frame: Callable[[float], Frame], minutes: float) -> Verdict:
    """The same after a long time, looked at every 15 s: as the history keeps it."""
    *_, (_, said) = judged(frame(15.0 * tick) for tick in range(round(4 * minutes)))
    return said


def seconds(value: Callable[[float], float], t: float, length_s: float = 1.0) -> float:
    """The mean of something over the last second."""
    return sum(value(t - length_s * (part + 0.5) / 60) for part in range(60)) / 60


def sampled(busy: Callable[[float], float], each_s: float = 1.0) -> dict[str, Any]:
    """Dials of a GPU that is as busy as that at each moment, as the driver samples it: six times a second.

    `each_s`: between two frames.
    """

    def samples(t: float) -> tuple[tuple[float, float], ...]:
        last = math.floor(6 * t)
        return tuple(
            (round(t - number / 6, 3), round(seconds(busy, number / 6, 1 / 6))) for number in range(last - 35, last + 1)
        )

    return {"busy_samples": samples, "busy_percent": lambda t: seconds(busy, t, each_s)}


def refused(*names: str) -> dict[str, Any]:
    """Dials of metrics that may not be read."""
    return {"missing": tuple(Missing(metric=name, reason="denied") for name in names), **dict.fromkeys(names)}


def _now(dials: dict[str, Any], t: float) -> dict[str, Any]:
    return {name: dial(t) if isinstance(dial, Callable) else dial for name, dial in dials.items()}  # type: ignore[arg-type]


def found(said: Verdict, rule: str) -> Finding | None:
    """The finding of this rule."""
    return next((finding for finding in said.findings if finding.rule == rule), None)


def silent(said: Verdict, rule: str) -> Abstained | None:
    """Its abstention."""
    return next((one for one in said.abstained if one.rule == rule), None)


# what a trainer has of a GPU whose driver tells nothing of processes
UNTOLD = (GpuShare(uuid="G", vram_bytes=30 * 2**30),)
HOST: dict[str, Any] = {
    "cpus_total": 16,
    "cpus_allowed": 16.0,
    "cpu_percent": 10.0,
    "memory_total_bytes": 256 * 2**30,
    "memory_available_bytes": 200 * 2**30,
    "swap_in_per_s": 0.0,
    "swap_out_per_s": 0.0,
}
TRAINER: dict[str, Any] = {
    "name": "python",
    "command": ("python", "train.py"),
    "role": Role.TRAINER,
    "job": "j",
    "age_s": 5000.0,
    "cpu_percent": 100.0,
    "main_thread_percent": 100.0,
    "main_run_wait_percent": 1.0,
    "run_wait_percent": 1.0,
    "busy_threads": 1,
    "threads": 60,
    "voluntary_switches_per_s": 400.0,
    "involuntary_switches_per_s": 5.0,
    "allowed_cpus": 16.0,
    "blocked_percent": 0.0,
    "throttled_percent": 0.0,
    "read_bytes_per_s": 0.0,
    "write_bytes_per_s": 0.0,
    "read_chars_per_s": 0.0,
    "write_chars_per_s": 900.0,
    "read_calls_per_s": 0.0,
    "major_faults_per_s": 0.0,
    "pss_bytes": 2**33,
}
LOADER: dict[str, Any] = TRAINER | {
    "name": "pt_data_worker",
    "role": Role.LOADER,
    "cpu_percent": 10.0,
    "main_thread_percent": 10.0,
    "busy_threads": 0,
}
GPU: dict[str, Any] = {
    "architecture": "hopper",
    "compute_capability": (9, 0),
    "busy_percent": 97.0,
    "memory_busy_percent": 50.0,
    "vram_total_bytes": 80 * 2**30,
    "vram_used_bytes": 30 * 2**30,
    "temperature_celsius": 60.0,
    "temperature_margin_celsius": 30.0,
    "slowdown_celsius": 90.0,
    "power_watts": 600.0,
    "power_limit_watts": 700.0,
    "power_default_limit_watts": 700.0,
    "power_min_limit_watts": 200.0,
    "sm_clock_mhz": 1980.0,
    "sm_clock_max_mhz": 1980.0,
    "boost_clock_max_mhz": 1980.0,
    "performance_state": 0,
    "throttle_reasons": frozenset(),
    "throttled_power_percent": 0.0,
    "throttled_heat_percent": 0.0,
    "throttled_heat_hard_percent": 0.0,
    "throttled_brake_percent": 0.0,
    "sm_active_percent": 88.0,
    "sm_occupancy_percent": 40.0,
    "tensor_percent": 50.0,
    "dram_percent": 38.0,
    "fp32_percent": 6.0,
    "pcie_rx_bytes_per_s": 0.4e9,
    "pcie_tx_bytes_per_s": 0.1e9,
    "nvlink_rx_bytes_per_s": 0.0,
    "nvlink_tx_bytes_per_s": 0.0,
    "pcie_generation": 5,
    "pcie_generation_max": 5,
    "pcie_generation_device_max": 5,
    "pcie_slot_generation": 5,
    "pcie_slot_width": 16,
    "pcie_width": 16,
    "pcie_width_max": 16,
    "pcie_replays": 0,
    "ecc_uncorrected": 0,
    "recovery_action": "none",
    "persistence_mode": True,
    "mig_mode": False,
}
