"""How the cost of calls decides the pace: cases on a made-up clock, no driver; and what is a cost of the driver."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import ExitStack

import pytest

from gputop.collect.nvml.cadence import Cadence, CallCosts
from gputop.collect.nvml.gate import DriverGate


class Run:
    """Sweeps of calls that take so long, every second times the factor."""

    def __init__(self) -> None:
        self.costs = CallCosts()
        self.pace = Cadence(self.costs)
        self.now_s = 0.0
        self.pace.restart(0.0)

    def sweeps(self, times: int, call_s: float, calls: int = 8, gpus: int = 2) -> int:
        for _ in range(times):
            self.now_s += self.pace.factor
            for gpu in range(gpus):
                for _ in range(calls):
                    self.costs.add(gpu, call_s)
            self.pace.judge(self.now_s)
        return self.pace.factor


@pytest.mark.parametrize(
    ("call_s", "calls", "factor"),
    [
        (0.0001, 8, 1),  # 0.16 % of the time, two GPUs together
        (0.0012, 8, 1),  # 1.92 %
        (0.0015, 8, 2),  # 2.4 % fits when halved
        (0.00225, 8, 2),
        (0.005, 8, 4),
        (0.025, 1, 4),  # 5 %, and a call too slow
        (0.100, 8, 64),  # 160 %
    ],
)
def test_the_factor_that_fits(call_s: float, calls: int, factor: int) -> None:
    run = Run()
    assert run.sweeps(30, call_s, calls) == factor
    assert run.sweeps(30, call_s, calls) == factor  # and it stays


def test_what_it_costs_is_known() -> None:
    run = Run()
    run.sweeps(6, 0.001)
    assert run.pace.driver_percent == pytest.approx(1.6)
    assert run.pace.call_s == 0.001


def test_what_is_allowed_is_for_all_gpus_together() -> None:
    """The driver holds one lock: sixteen GPUs cost its programs sixteen times as much as one."""
    assert Run().sweeps(30, 0.0005, gpus=1) == 1
    assert Run().sweeps(30, 0.0005, gpus=16) == 4


def test_a_rare_slow_call_changes_nothing() -> None:
    run = Run()
    run.sweeps(10, 0.0001, gpus=8)
    for _ in range(2):
        run.costs.add(0, 0.030)
    assert run.sweeps(10, 0.0001, gpus=8) == 1


def test_calls_above_20_ms_are_slowed_whatever_their_share() -> None:
    run = Run()
    for _ in range(60):
        run.now_s += 100 * run.pace.factor
        run.costs.add(0, 0.050)
        run.pace.judge(run.now_s)
    assert run.pace.driver_percent < 0.1
    assert run.pace.factor == 4


def test_fast_again_means_as_often_again() -> None:
    run = Run()
    assert run.sweeps(30, 0.2) == 64
    factors = [run.sweeps(1, 0.0001) for _ in range(60)]
    assert factors[-1] == 1
    assert factors == sorted(factors, reverse=True)


def test_the_whole_reading_of_a_first_sweep_is_not_held_against_it() -> None:
    run = Run()
    for gpu in range(2):
        for _ in range(45):
            run.costs.add(gpu, 0.005)
    run.pace.restart(1.0)
    run.now_s = 1.0
    assert run.sweeps(20, 0.0001) == 1


SPIN = "import os; os.sched_setaffinity(0, {%d}); print(flush=True)\nwhile True: pass"


def test_who_waits_for_a_cpu_does_not_blame_the_driver() -> None:
    own = os.sched_getaffinity(0)
    cpu, costs = min(own), CallCosts()
    gate = DriverGate(costs)
    with ExitStack() as stack:
        for _ in range(2):
            busy = stack.enter_context(subprocess.Popen([sys.executable, "-c", SPIN % cpu], stdout=subprocess.PIPE))
            stack.callback(busy.kill)
            assert busy.stdout is not None
            busy.stdout.readline()
        os.sched_setaffinity(0, {cpu})  # this thread
        stack.callback(os.sched_setaffinity, 0, own)
        began_s = time.monotonic()
        gate._timed("spins", lambda: [None for _ in range(4_000_000)], (), 0)
        lasted_s = time.monotonic() - began_s
    assert 0 < costs.total_s < 0.8 * lasted_s  # two others had that CPU, too
