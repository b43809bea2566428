"""The driver's sample buffers: read in one call, nothing lost, nothing invented."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from itertools import pairwise
from random import Random

import pytest

from gputop.collect.nvml.activity import Buffer
from gputop.collect.nvml.lane import _before
from gputop.collect.nvml.samples import DriverClock, series
from tests.fakenvml import Fake, square
from tests.nvml_child import Child, Seen

NAMES = {
    "memory_busy_series": 33,
    "power_series": 412.0,
    "power_module_series": 655.5,
    "sm_clock_series": 1740,
    "memory_clock_series": 2619,
}


@pytest.fixture
def child(fake: Fake) -> Iterator[Child]:
    fake.update({"gpus": 1, "gpu.0.power_average_module_mw": 655_500})
    with Child(fake, gpm="off") as child:
        yield child


def test_the_buffer_shows_what_a_mean_hides(fake: Fake, child: Child) -> None:
    fake.set("gpu.0.util", square(0, 100, period_s=1.0, duty=0.5))
    samples = child.rest_and_sweep().gpu(0)["busy_samples"]
    ages = [age for age, _ in samples]
    assert ages == sorted(ages, reverse=True)
    assert len(set(ages)) == len(ages)
    assert 0 <= ages[-1] < 0.5
    assert 14 < ages[0] < 16.5
    assert {0.0, 100.0} <= {value for _, value in samples}


def test_a_later_frame_repeats_only_what_one_before_it_may_have_missed(child: Child) -> None:
    first = child.sweep().gpu(0)["busy_samples"]
    child.sweep(17)  # a second apart
    later, after_a_pause = (child.sweep(1, seconds).gpu(0)["busy_samples"] for seconds in (1.0, 8.0))
    # six a second: the whole buffer of 16 s, then that of the pause and four seconds more
    told = [len(samples) for samples in (first, later, after_a_pause)]
    assert told == pytest.approx([16 * 6, 5 * 6, 12 * 6], abs=1)


def test_who_looks_every_five_seconds_is_told_of_all_of_them(fake: Fake, child: Child) -> None:
    fake.set("gpu.0.util", square(0, 100, period_s=5.0, duty=0.5))
    child.sweep(2, 5.0)
    for _ in range(3):
        assert child.sweep(1, 5.0).gpu(0)["busy_percent"] == pytest.approx(50, abs=8)


def test_the_mean_of_a_look_leaves_out_no_sample_of_the_driver() -> None:
    """A look every 1.2 s or so, and samples every 0.17 s: a second of them is not all that is new."""
    buffer, clock, taken = Buffer(began_s=0.0, looked_s=0.0), Random(4), set[float]()
    now_s, last = 0.0, 0
    for _ in range(60):
        now_s += 0.9 + 0.6 * clock.random()
        before, last = last, math.floor(now_s * 6)
        new = [(round(number / 6 * 1e6), float(number)) for number in range(before + 1, last + 1)]
        told = buffer.add(new, now_s)
        assert len(told) >= 6 or before == 0
        taken.update(told)
    assert len(taken) == last


def test_samples_are_as_old_as_the_frame_says_that_they_are_in() -> None:
    samples = ((1.0, 10.0), (0.5, 20.0), (0.1, 30.0))
    assert _before(samples, 0.7) == ((1.7, 10.0), (1.2, 20.0), (0.8, 30.0))
    assert _before(samples, -0.25) == ((0.75, 10.0), (0.25, 20.0))


def test_a_first_look_finds_the_whole_buffer(child: Child) -> None:
    gpu = child.sweep().gpu(0)
    for name, value in NAMES.items():
        assert gpu[name]["values"] == pytest.approx([value] * 100), name
        assert gpu[name]["step_s"] == pytest.approx(1 / 6, abs=1e-3)
        assert 0 <= time.time() - gpu[name]["wall_s"] < 5


def test_later_looks_bring_what_is_new_and_lose_nothing(fake: Fake, child: Child) -> None:
    fake.update({"sample_hz": 50, "gpu.0.power_mw": square(100_000, 600_000, period_s=0.4, duty=0.5)})
    found = [child.sweep().gpu(0)["power_series"]]
    for _ in range(40):
        one = child.rest_and_sweep(0.02).gpu(0)["power_series"]
        if one != found[-1]:
            found.append(one)
    # made-up seconds pass faster than real ones: the next look comes ten sweeps later
    assert len(found) >= 3
    for before, after in pairwise(found):
        first_s = after["wall_s"] - after["step_s"] * (len(after["values"]) - 1)
        assert first_s - before["wall_s"] == pytest.approx(0.02, abs=2e-3)
    assert {100, 600} <= {round(value) for one in found[1:] for value in one["values"]}


def test_one_call_a_look_after_the_first(fake: Fake, child: Child) -> None:
    child.sweep()
    assert fake.counts()["nvmlDeviceGetSamples"] == 6 * 2  # the size of each buffer once
    child.sweep(10)
    assert fake.counts()["nvmlDeviceGetSamples"] == 6 * 2 + 10 + 2 + 4


def test_a_kind_that_is_refused_is_refused_alone(fake: Fake, child: Child) -> None:
    fake.update({"gpu.0.mem_clock": None, "gpu.0.power_average_module_mw": None})
    seen = child.sweep(3)
    assert seen.reasons(0)["memory_clock_series"] == "unsupported"
    assert seen.reasons(0)["power_module_series"] == "unsupported"
    assert seen.gpu(0)["memory_clock_series"] is None
    assert seen.gpu(0)["sm_clock_series"]["values"][-1] == 1740
    assert seen.gpu(0)["busy_percent"] == 58


def test_nothing_new_is_absent_and_not_an_old_value(fake: Fake, child: Child) -> None:
    fake.set("sample_hz", 0)
    seen = child.sweep()
    assert seen.reasons(0)["power_series"] == "absent"
    assert seen.gpu(0)["power_series"] is None


def test_n15_samples_that_are_none_are_left_out(fake: Fake, child: Child) -> None:
    fake.update({"gpu.0.mem_util": 4294967295, "gpu.0.sm_clock": 4294967295})
    seen = child.sweep()
    assert (seen.gpu(0)["memory_busy_series"], seen.gpu(0)["sm_clock_series"]) == (None, None)
    assert seen.reasons(0)["memory_busy_series"] == "absent"


def test_a_gap_ends_a_series() -> None:
    stamps = [0, 100, 200, 5_000, 5_100, 5_200, 5_300]
    found = series([(1_000 * stamp, stamp) for stamp in stamps], 0.1, DriverClock())
    assert found is not None
    assert (found.values, found.step_s) == ((500.0, 510.0, 520.0, 530.0), pytest.approx(0.1))
    assert series([(1_000, 1.0)], 1, DriverClock()) is None
    assert series([], 1, DriverClock()) is None


def test_a_clock_that_is_stored_when_it_changes_is_no_series() -> None:
    changes = [(7 * minute * 60_000_000, 1_000.0 + minute) for minute in range(100)]
    assert series(changes, 1, DriverClock()) is None


def test_a_buffer_that_runs_dry_is_not_its_last_value_for_ever(fake: Fake, child: Child) -> None:
    fake.set("gpu.0.util", 95)
    assert child.sweep().gpu(0)["busy_percent"] == 95
    fake.update({"sample_hz": 0, "gpu.0.util": 0})
    just_now = child.rest_and_sweep(0.3).gpu(0)
    later = child.rest_and_sweep(1.2).gpu(0)
    assert just_now["busy_percent"] == 95  # some drivers store one sample in a second
    assert later["busy_percent"] == 0
    *driver, asked = later["busy_samples"]
    assert asked == [pytest.approx(0, abs=0.2), 0.0]
    assert {value for _, value in driver} == {95.0}
    assert driver[-1][0] >= 1.5 - 1 / 6 - 0.05  # as old as it is
    fake.set("sample_hz", 6)
    again = child.rest_and_sweep(1.1).gpu(0)
    assert (again["busy_percent"], again["busy_samples"][-1][1]) == (0, 0)


def test_a_dry_buffer_is_old_from_the_first_look_on() -> None:
    """A driver that stored nothing for five minutes: what it has is of then, in every series."""
    now_us = 1_790_000_000_000_000
    buffer, clock = Buffer(began_s=0.0, looked_s=0.0), DriverClock()
    old = [(now_us - 300_000_000 + 200_000 * place, 95.0) for place in range(71)]
    clock.arrived(old[-1][0], now_us)
    buffer.add(old, 0.0)
    assert buffer.dry(clock.stamp_us(now_us))
    assert buffer.ages(clock.stamp_us(now_us), 16.0) == ()
    found = series(old, 1, clock)
    assert found is not None
    assert found.wall_s == old[-1][0] / 1e6


def test_what_a_driver_stores_late_is_told_in_place_of_what_was_asked_for() -> None:
    buffer = Buffer(began_s=0.0, looked_s=0.0)
    buffer.add([(1_000_000, 90.0)], 1.0)
    buffer.fill(2_200_000, 50.0)
    buffer.fill(3_200_000, 40.0)
    buffer.add([(2_500_000, 80.0), (3_500_000, 70.0)], 3.6)
    assert buffer.samples == [(1_000_000, 90.0), (2_200_000, 50.0), (2_500_000, 80.0), (3_500_000, 70.0)]


def test_another_clock_is_learnt_from_the_newest_samples_and_never_moves_old_ones() -> None:
    """Of a driver that counts from its start: a sample ages by our clock, however long nothing new comes."""
    wall_us, clock = 1_790_000_000_000_000, DriverClock()
    clock.arrived(5_000_000, wall_us)  # a buffer that was four seconds old, as it turns out
    clock.arrived(10_900_000, wall_us + 2_000_000)
    clock.arrived(12_000_000, wall_us + 4_000_000)
    assert clock.wall_us(10_900_000) == wall_us + 2_000_000
    assert clock.stamp_us(wall_us + 30_000_000) == 38_900_000


def test_nothing_new_in_the_buffer_is_no_loss(fake: Fake, child: Child) -> None:
    fake.set("sample_hz", 0.5)
    seen: list[Seen] = [child.rest_and_sweep(0.1) for _ in range(3)]
    assert [one.gpu(0)["busy_percent"] for one in seen] == [58.0] * 3


def test_a_driver_that_stores_nothing_while_the_gpu_idles(fake: Fake, child: Child) -> None:
    """As GB10: NOT_FOUND for as long as it idles, and the rate says that it does."""
    fake.update({"gpu.0.samples.1": "6 100 busy", "gpu.0.util": 95})
    assert child.sweep().gpu(0)["busy_percent"] == 95
    fake.set("gpu.0.util", 0)
    child.rest_and_sweep(0.7)
    assert child.rest_and_sweep(1.2).gpu(0)["busy_percent"] == 0
    fake.set("gpu.0.util", 90)
    child.rest_and_sweep(0.6)
    assert child.rest_and_sweep(1.1).gpu(0)["busy_percent"] == 90


def test_clocks_that_are_stored_when_they_change_are_no_series_and_the_clock_is_asked_for(
    fake: Fake, child: Child
) -> None:
    fake.update({"gpu.0.samples.6": "6 100 changes", "gpu.0.samples.5": "6 100 changes"})
    gpu = child.sweep(3).gpu(0)
    assert (gpu["memory_clock_series"], gpu["sm_clock_series"]) == (None, None)
    assert gpu["memory_clock_mhz"] == 2619


def test_a_buffer_whose_size_can_be_asked_for_and_nothing_else(fake: Fake, child: Child) -> None:
    fake.update({"gpu.0.samples.5": "empty", "gpu.0.samples.6": "empty"})
    seen = child.sweep(3)
    assert seen.reasons(0)["sm_clock_series"] == "unsupported"
    assert seen.gpu(0)["memory_clock_mhz"] == 2619


def test_what_stood_in_for_a_value_is_not_told_again_when_it_is_old(fake: Fake, child: Child) -> None:
    """Power averaged by the driver stands in for the call while that fails, and not with what it said then."""
    fake.fail("nvmlDeviceGetPowerUsage", 999)
    assert child.sweep(4).gpu(0)["power_watts"] == 409.5
    fake.clear("fail.*")
    assert child.sweep(5).gpu(0)["power_watts"] == 412
    fake.fail("nvmlDeviceGetPowerUsage", 999)
    fake.set("gpu.0.power_average_mw", 300_000)
    seen = [child.sweep().gpu(0)["power_watts"] for _ in range(4)]
    assert 409.5 not in seen
    assert seen[-1] == 300


def test_pauses_of_which_the_driver_stores_nothing_are_pauses(fake: Fake, child: Child) -> None:
    """As GB10 stores samples while it works only: their mean alone would be that of its work."""
    fake.update({"gpu.0.samples.1": "10 100 busy", "gpu.0.util": 0})
    child.sweep()
    child.rest_and_sweep(1.3)  # it was seen to store nothing
    fake.set("gpu.0.util", square(0, 100, period_s=1.0, duty=0.4))
    told = [child.rest_and_sweep(1.0).gpu(0) for _ in range(4)]
    assert told[-1]["busy_percent"] == pytest.approx(40, abs=12)
    samples = told[-1]["busy_samples"]
    newest_s = min(ago_s for ago_s, _ in samples)  # two whole periods, however late this look came
    values = [value for ago_s, value in samples if ago_s < newest_s + 2]
    assert sum(values) / len(values) == pytest.approx(40, abs=15)


def test_a_gap_is_a_pause_only_where_the_driver_was_seen_to_skip_them() -> None:
    buffer = Buffer(began_s=0.0, looked_s=0.0)
    buffer.add([(100_000 * place, 90.0) for place in range(1, 11)], 1.0)
    buffer.add([(2_000_000, 80.0), (2_100_000, 80.0)], 2.1)
    assert {value for _, value in buffer.samples} == {90.0, 80.0}
    buffer.fill(4_000_000, 0.0)
    buffer.add([(4_500_000, 70.0), (4_600_000, 70.0)], 4.6)
    assert [value for stamp, value in buffer.samples if stamp > 4_000_000] == [0.0] * 4 + [70.0] * 2
