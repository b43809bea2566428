"""Bytes over PCIe: right although the counters begin anew several times a second, measured where there are none."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from gputop.collect.nvml.device import Count
from gputop.collect.nvml.links import _Way
from tests.fakenvml import Fake
from tests.nvml_child import Child

GEN4_X16 = 32e9
ROUND = 1 << 32


@pytest.fixture
def child(fake: Fake) -> Iterator[Child]:
    fake.update({"gpus": 1, "gpu.0.pcie_max_gen": 4, "gpu.0.pcie_gen": 4})
    with Child(fake, gpm="off") as child:
        yield child


def played(bytes_per_s: list[float], fastest: float, *, apart_s: float = 0.06, every_s: float = 1.0) -> list[float]:
    """What a way says of a link that moves so much in each hundredth of a second, looked at in pairs every second."""
    way, said, total = _Way(), [], 0.0
    counts = [total := total + rate / 100 for rate in bytes_per_s]
    look, apart = round(every_s * 100), round(apart_s * 100)
    for end in range(look, len(counts), look):
        way.first, now = (Count(float(int(counts[at]) % ROUND), round(at * 1e4), at / 100) for at in (end - apart, end))
        rate = way.rate(now, fastest)
        assert rate is not None
        said.append(rate)
    return said


@pytest.mark.parametrize("kind", [1, 2])
@pytest.mark.parametrize("bytes_per_s", [0.3e9, 5e9, 24e9])
def test_steady_traffic_on_a_fast_link(fake: Fake, child: Child, kind: int, bytes_per_s: float) -> None:
    fake.update({"gpu.0.pcie_bytes_short": kind, "gpu.0.pcie_rx_bytes_per_s": bytes_per_s})
    child.sweep()
    told = [child.rest_and_sweep(0.4).gpu(0) for _ in range(4)]
    assert told[-1]["pcie_rx_bytes_per_s"] == pytest.approx(bytes_per_s, rel=0.05)
    assert told[-1]["pcie_tx_bytes_per_s"] == pytest.approx(1.2e9, rel=0.05)


def test_a_counter_of_64_bits_is_taken_as_it_is(fake: Fake, child: Child) -> None:
    fake.update({"gpu.0.pcie_bytes_short": 0, "gpu.0.pcie_rx_bytes_per_s": 24e9})
    child.sweep(2)
    assert child.rest_and_sweep(0.4).gpu(0)["pcie_rx_bytes_per_s"] == pytest.approx(24e9, rel=0.05)


@pytest.mark.parametrize("gigabytes", [0.0, 0.05, 2.0, 5.0, 12.5, 31.0])
def test_the_rounds_of_steady_traffic_are_counted(gigabytes: float) -> None:
    chance = Random(7)
    rates = [gigabytes * 1e9 * chance.uniform(0.9, 1.1) for _ in range(3_000)]
    said = played(rates, GEN4_X16)
    assert said[1:] == pytest.approx([gigabytes * 1e9] * len(said[1:]), rel=0.03)


def test_traffic_in_bursts_is_right_in_the_mean() -> None:
    """A batch of 1.25 GB in 50 ms every 0.4 s or so: each pair sees all of it, a part, or nothing."""
    chance, rates = Random(3), list[float]()
    while len(rates) < 60_000:
        rates += [25e9] * 5 + [0.0] * chance.randint(30, 40)
    said = played(rates, GEN4_X16)
    mean = sum(rates) / len(rates)
    assert sum(said) / len(said) == pytest.approx(mean, rel=0.25)
    assert max(said) <= GEN4_X16


def test_a_slow_link_needs_no_pair_to_be_exact() -> None:
    rates = [0.0] * 150 + [2.9e9] * 20 + [0.0] * 130 + [1e9] * 200
    assert played(rates, 4e9) == pytest.approx([0, 0.58e9, 0, 1e9], rel=0.01, abs=3e7)


@pytest.mark.parametrize(("before", "after"), [(20e9, 0.0), (0.0, 20e9), (3e9, 28e9), (28e9, 9e9)])
def test_what_begins_or_ends_is_told_within_two_looks(before: float, after: float) -> None:
    said = played([before] * 1_030 + [after] * 570, GEN4_X16)
    assert said[5:9] == pytest.approx([before] * 4, rel=0.01, abs=1e7)
    assert said[11:] == pytest.approx([after] * len(said[11:]), rel=0.01, abs=1e7)


def test_a_port_that_is_emulated_does_not_hide_what_is_moved(fake: Fake) -> None:
    """It says generation 1 with one lane, and 5 GB/s pass."""
    fake.update({"gpus": 1, "gpu.0.pcie_max_gen": 1, "gpu.0.pcie_max_width": 1, "gpu.0.pcie_rx_bytes_per_s": 5e9})
    with Child(fake, gpm="off") as child:
        child.sweep()
        told = [child.rest_and_sweep(0.4).gpu(0)["pcie_rx_bytes_per_s"] for _ in range(4)]
    assert told[-1] == pytest.approx(5e9, rel=0.05)


def test_a_link_that_tells_nothing_of_itself_is_counted_all_the_same(fake: Fake) -> None:
    fake.update({"gpus": 1, "gpu.0.pcie_max_gen": None, "gpu.0.pcie_gpu_max_gen": None, "gpu.0.pcie_max_width": None})
    fake.set("gpu.0.pcie_rx_bytes_per_s", 5e9)
    with Child(fake, gpm="off") as child:
        child.sweep()
        told = [child.rest_and_sweep(0.4).gpu(0)["pcie_rx_bytes_per_s"] for _ in range(4)]
    assert told[-1] == pytest.approx(5e9, rel=0.05)


def test_counters_that_answer_again_go_before_what_was_measured(fake: Fake) -> None:
    fake.update({"gpus": 1, "gpu.0.field.197": None, "gpu.0.field.198": None, "pcie_throughput_us": 1000})
    with Child(fake, gpm="off") as child:
        assert child.sweep(8).gpu(0)["pcie_rx_bytes_per_s"] == pytest.approx(3.4e9, rel=0.01)
        fake.clear("gpu.0.field.197", "gpu.0.field.198")
        fake.set("gpu.0.pcie_rx_bytes_per_s", 0)
        child.sweep(62)
        told = [child.rest_and_sweep(0.3).gpu(0)["pcie_rx_bytes_per_s"] for _ in range(3)]
    assert told[-1] == pytest.approx(0, abs=1e6)


def test_two_looks_that_lie_too_far_apart_are_no_pair() -> None:
    """A thread that waited for a CPU: the counter may have come round between them."""
    way = _Way()
    way.first = Count(0.0, 0, 0.0)
    assert way.rate(Count(1e9, 500_000, 0.5), GEN4_X16) is None
    way.first = Count(1.5e9, 1_440_000, 1.44)
    assert way.rate(Count(1.5e9 + 0.06 * 20e9, 1_500_000, 1.5), GEN4_X16) == pytest.approx(20e9, rel=0.12)


def test_gpm_says_it_and_no_counter_is_asked(fake: Fake) -> None:
    fake.set("gpus", 1)
    with Child(fake, gpm="on") as child:
        child.sweep(4)
        before = fake.counts()["nvmlDeviceGetFieldValues"]
        gpu = child.rest_and_sweep(0.2).gpu(0)
        assert gpu["pcie_rx_bytes_per_s"] == pytest.approx(3242.5 * (1 << 20))
        assert fake.counts()["nvmlDeviceGetFieldValues"] - before <= 3  # the stream, and what has its turn


def test_before_555_the_driver_measures_one_way_of_one_gpu_at_a_time(fake: Fake) -> None:
    fake.update({"gpus": 2, "gpu.*.field.197": None, "gpu.*.field.198": None, "pcie_throughput_us": 1000})
    with Child(fake, gpm="off") as child:
        child.sweep(4)
        calls, most = fake.counts()["nvmlDeviceGetPcieThroughput"], 0
        for _ in range(20):
            seen = child.sweep()
            before, calls = calls, fake.counts()["nvmlDeviceGetPcieThroughput"]
            most = max(most, calls - before)
    assert most == 1
    assert 8 <= calls <= 12  # four ways, each every eight seconds
    for index in (0, 1):
        rates = [seen.gpu(index)[f"pcie_{way}_bytes_per_s"] for way in ("tx", "rx")]
        assert rates == pytest.approx([(1.2 + 0.01 * index) * 1e9, (3.4 + 0.01 * index) * 1e9], rel=0.01)


def test_one_gpu_is_not_measured_more_often_than_every_five_seconds(fake: Fake) -> None:
    fake.update({"gpus": 1, "gpu.0.field.197": None, "gpu.0.field.198": None, "pcie_throughput_us": 1000})
    with Child(fake, gpm="off") as child:
        child.sweep(61)
    assert 14 <= fake.counts()["nvmlDeviceGetPcieThroughput"] <= 24


def test_a_driver_without_either_is_unsupported(fake: Fake) -> None:
    fake.update({"gpus": 1, "gpu.0.field.197": None, "gpu.0.field.198": None, "gpu.0.gpm_supported": 0})
    fake.fail("nvmlDeviceGetPcieThroughput", 3)
    with Child(fake, gpm="on") as child:
        seen = child.sweep(6)
    assert (seen.gpu(0)["pcie_tx_bytes_per_s"], seen.reasons(0)["pcie_tx_bytes_per_s"]) == (None, "unsupported")
    assert fake.counts()["nvmlDeviceGetPcieThroughput"] == 2
