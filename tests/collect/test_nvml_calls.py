"""What reading costs: calls a second, cadences, what is not asked again; and drivers that lack functions."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from gputop.collect.nvml.cadence import CallCosts
from gputop.collect.nvml.device import Device
from gputop.collect.nvml.gate import DriverGate
from gputop.collect.nvml.probe import PROBES, Probe, ask, settle, sources
from gputop.collect.nvml.reader import FILLED
from gputop.model import Gpu, metrics
from tests.fakenvml import Fake, symbols
from tests.nvml_child import Child

EVENTS = ("nvmlEvent", "nvmlDeviceRegisterEvents")


def calls(fake: Fake) -> Counter[str]:
    return Counter({name: count for name, count in fake.counts().items() if not name.startswith(EVENTS)})


def busy(fake: Fake) -> None:
    fake.set("sample_hz", 1000)  # made-up seconds pass faster than real ones: there is something new at each look
    for gpu in range(8):
        fake.add_process(gpu=gpu, pid=1000 + gpu, sm=50)


@pytest.mark.parametrize(
    ("gpm", "extended", "most", "peak"),
    [("off", False, 77, 85), ("on", False, 77, 85), ("off", True, 82, 90), ("on", True, 84, 92)],
)
def test_calls_a_second_at_eight_gpus(fake: Fake, gpm: str, extended: bool, most: int, peak: int) -> None:
    busy(fake)
    with Child(fake, gpm=gpm, extended=extended) as child:
        child.sweep(5)
        totals = [sum(calls(fake).values())]
        for _ in range(60):
            child.sweep()
            totals.append(sum(calls(fake).values()))
    assert (totals[-1] - totals[0]) / 60 <= most
    # the slow cadences are spread: no second is much worse than the mean
    assert max(after - before for before, after in pairwise(totals)) <= peak


def test_each_call_at_its_cadence(fake: Fake) -> None:
    busy(fake)
    fake.set("gpu.*.power_average_module_mw", 655_500)
    with Child(fake, gpm="off") as child:
        child.sweep(5)
        before = calls(fake)
        child.sweep(60)
    made = {name: count / 8 for name, count in (calls(fake) - before).items()}
    each_minute = {
        30 + 2 * 6: ["ClockInfo"],  # SM; graphics and memory
        60 + 12 + 4 * 6: ["Samples"],  # busy; memory; power of board and module, two clocks
        30: ["MemoryInfo_v2", "TemperatureV", "CurrentClocksEventReasons", "ComputeRunningProcesses_v3"],
        6: ["GraphicsRunningProcesses_v3", "MPSComputeRunningProcesses_v3", "PerformanceState", "CurrPcieLinkWidth"],
        2: ["EnforcedPowerLimit"],
        1: ["MigMode"],
    }
    for times, names in each_minute.items():
        for name in names:
            assert made[f"nvmlDeviceGet{name}"] == times, name
    assert made["nvmlDeviceGetFieldValues"] == 60 + 2 * 60 + 4 * 6 + 2 * 2  # PCIe twice a second
    assert made["nvmlDeviceGetProcessUtilization"] == 30
    never = {"nvmlDeviceGetName", "nvmlDeviceGetUUID", "nvmlInitWithFlags", "nvmlDeviceGetPcieThroughput"}
    never |= {"nvmlDeviceGetUtilizationRates", "nvmlDeviceGetViolationStatus", "nvmlDeviceGetCpuAffinityWithinScope"}
    assert not never & set(made)


def test_what_is_unsupported_is_asked_again_rarely(fake: Fake) -> None:
    fake.set("gpus", 1)
    fake.fail("nvmlDeviceGetMemoryInfo*", 3)
    fake.fail("nvmlDeviceGetTemperature*", 10)
    with Child(fake, gpm="off") as child:
        child.sweep(50)
        assert fake.counts()["nvmlDeviceGetMemoryInfo_v2"] == 1
        assert fake.counts()["nvmlDeviceGetTemperatureV"] >= 25  # a timeout may pass
        fake.release("fail", "nvmlDeviceGetMemoryInfo*")
        assert child.sweep(15).gpu(0)["vram_total_bytes"] == 85520809984


def test_utilization_rates_where_there_is_no_buffer(fake: Fake) -> None:
    fake.set("gpus", 1)
    fake.fail("nvmlDeviceGetSamples", 3)
    with Child(fake, gpm="off") as child:
        child.sweep()
        before = fake.counts()
        gpu = child.sweep(10).gpu(0)
    assert (gpu["busy_percent"], gpu["busy_samples"]) == (58.0, [])
    made = fake.counts() - before
    assert made["nvmlDeviceGetSamples"] == 0
    assert made["nvmlDeviceGetUtilizationRates"] == 15


VITAL = {"nvmlInitWithFlags", "nvmlShutdown", "nvmlErrorString", "nvmlDeviceGetHandleByIndex_v2"}


@pytest.mark.parametrize("seed", range(8))
def test_n21_any_function_may_be_missing(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    without = chance.sample(sorted(symbols() - VITAL), chance.randint(5, 80))
    fake = Fake(tmp_path / "driver", gpus=2, without=without)
    fake.add_process(gpu=0, pid=4242, sm=5)
    with Child(fake, gpm="on") as child:
        seen = child.sweep(3)
    assert seen.indexes == ["0", "1"]
    assert set(seen.conditions.values()) == {"ok"}
    assert "broken" not in seen.notes
    gpu, missing = seen.gpu(0), set(seen.reasons(0))
    for metric in metrics(Gpu):
        assert (gpu[metric.name] is None) == (metric.name in missing), metric.name
    if "nvmlDeviceGetClockInfo" in without:
        assert seen.reasons(0)["sm_clock_mhz"] == "unsupported"
    else:
        assert gpu["sm_clock_mhz"] == 1740


def test_every_metric_has_one_probe() -> None:
    assert {metric.name for metric in metrics(Gpu)} <= set(FILLED)
    assert FILLED["pcie_tx_bytes_per_s"] == ("gpm", "traffic")


@pytest.mark.parametrize(
    ("fills", "backs", "words"),
    [
        (("busy_percent",), (), "busy_percent is filled by busy and by more"),
        (("busyness",), (), "more fills busyness, which a Gpu does not have"),
        ((), ("busyness",), "more backs busyness, which nothing fills"),
    ],
)
def test_a_probe_that_does_not_fit_is_an_error_at_import(fills: tuple[str], backs: tuple[str], words: str) -> None:
    more = Probe(name="more", every_s=1, fills=fills, backs=backs, ask=lambda card: {})
    with pytest.raises(ValueError, match=words):
        sources([*PROBES, more])


def test_a_metric_without_a_probe_is_an_error_at_import() -> None:
    with pytest.raises(ValueError, match="no probe fills busy_percent"):
        sources([probe for probe in PROBES if probe.name != "busy"])


def test_an_answer_nobody_foresaw_costs_its_own_values_only() -> None:
    def surprise(card: Device) -> dict[str, float]:
        return {"busy_percent": 1 / 0, "busy_samples": ()}

    card = Device(0, "GPU-1", DriverGate(CallCosts()))
    probe = Probe(name="busy", every_s=1, fills=("busy_percent", "busy_samples"), backs=(), ask=surprise)
    settle(card, ask(probe, card), FILLED)
    assert {name: card.missing[name].reason for name in probe.fills} == dict.fromkeys(probe.fills, "stale")
    assert card.broken == {"busy": "busy: ZeroDivisionError: division by zero"}
    settle(card, ask(replace(probe, ask=lambda card: {"busy_percent": 5.0}), card), FILLED)
    assert card.values == {"busy_percent": 5.0}
    assert not card.broken


def test_the_power_of_the_board_is_not_asked_for_where_there_are_no_scopes(fake: Fake) -> None:
    """The field value takes a driver 3 ms; without a scope there is nothing to hold it against."""
    fake.update({"gpus": 1, "gpu.0.field_us.185": 1000})
    with Child(fake, gpm="off") as child:
        child.sweep(50)
    assert fake.spent_s() == pytest.approx(0.001 * 1, abs=1e-4)


def test_samples_that_are_dear_to_read_are_read_every_other_second(fake: Fake) -> None:
    """A millisecond and a half on some drivers, for each of eight GPUs; between, the last window is told."""
    fake.update({"gpus": 1, "gpu.0.util": 58, "sample_hz": 1000})
    fake.fault("delay_us", "nvmlDeviceGetSamples", 1500)
    with Child(fake, gpm="off") as child:
        child.sweep(6)
        before = calls(fake)
        seen = [child.sweep().gpu(0) for _ in range(20)]
    made = calls(fake) - before
    assert made["nvmlDeviceGetUtilizationRates"] == 10
    assert made["nvmlDeviceGetSamples"] <= 10 + 4 + 2 * 4  # busy; memory every five seconds, four more every ten
    assert {one["busy_percent"] for one in seen} == {58.0}
    assert all(one["busy_samples"] for one in seen)
