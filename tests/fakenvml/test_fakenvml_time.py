"""What moves in the fake driver: samples, utilisation over a window, counters, GPM, events."""

from __future__ import annotations

import itertools
import math
import time

import pytest

from tests.fakenvml import square
from tests.fakenvml.remote import Refused

SAMPLES = "[[s.timeStamp, s.sampleValue.uiVal] for s in N.nvmlDeviceGetSamples(gpu(0), {}, {})[1]]"
KINDS = {0: "power_mw", 1: "util", 2: "mem_util", 3: "encoder_util", 4: "decoder_util", 5: "sm_clock", 6: "mem_clock"}
KINDS |= {7: "power_average_module_mw", 8: "jpeg_util", 9: "ofa_util"}


def until(question, good, seconds=10.0):
    """The first answer that is good; the last one when none is, in time."""
    deadline = time.monotonic() + seconds
    while not good(answer := question()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return answer


@pytest.mark.parametrize("kind", KINDS)
def test_each_ring_holds_its_own_key(fake, ask, kind):
    fake.set(f"gpu.0.{KINDS[kind]}", 40 + kind)
    ring = ask(SAMPLES.format(kind, 0))
    assert {value for _at, value in ring} == {40 + kind}
    assert len(ring) == 100
    steps = {b[0] - a[0] for a, b in itertools.pairwise(ring)}
    assert all(abs(step - 1e6 / 6) <= 1 for step in steps)
    assert 0 <= time.time() - ring[-1][0] / 1e6 < 10


def test_only_newer_samples_come_and_none_is_not_found(fake, ask):
    last = ask(SAMPLES.format(1, 0))[-1][0]
    fake.set("gpu.0.util", 21)
    newer = until(lambda: ask(SAMPLES.format(1, last)), lambda got: got != Refused(6) and got[-1][1] == 21)
    assert newer[-1][1] == 21
    assert all(at > last for at, _value in newer)
    assert ask(SAMPLES.format(1, int(time.time() * 1e6) + 3_600_000_000)) == Refused(6)


def test_a_change_does_not_alter_the_past(fake, ask):
    before = ask(SAMPLES.format(1, 0))
    fake.set("gpu.0.util", 99)
    after = until(lambda: ask(SAMPLES.format(1, 0)), lambda ring: ring[-1][1] == 99)
    kept = dict(before)
    assert after[-1][1] == 99
    assert all(kept.get(at, value) == value for at, value in after)


def test_a_short_step_is_a_flat_mean_and_a_long_one_a_square(fake, ask):
    fake.set("gpu.0.util", square(0, 100, period_s=1 / 60, duty=0.5))  # ten periods in a window
    assert {value for _at, value in ask(SAMPLES.format(1, 0))} == {50}
    assert ask("N.nvmlDeviceGetUtilizationRates(gpu(0)).gpu") == 50
    fake.set("gpu.1.util", square(5, 95, period_s=4, duty=0.25))
    long = [value for _at, value in ask(SAMPLES.replace("(0)", "(1)").format(1, 0))]
    assert min(long) == 5
    assert max(long) == 95
    assert sum(long) / len(long) == pytest.approx(5 + 0.25 * 90, abs=6)


def test_the_rings_rate_and_depth_can_be_set(fake, ask):
    fake.update({"sample_hz": 50, "sample_depth": 10})
    ring = ask(SAMPLES.format(1, 0))
    assert len(ring) == 10
    assert ring[-1][0] - ring[0][0] == pytest.approx(9 / 50 * 1e6, abs=2)


def test_counters_grow_at_their_rate(fake, ask):
    fake.update({"gpu.0.pcie_rx_bytes_per_s": 7e9, "gpu.0.hw_thermal_ns_per_s": 5e8, "gpu.0.power_mw": 600_000})
    fake.set("gpu.0.pcie_bytes_short", 0)
    fake.set("gpu.0.nvlink.2.rx_bytes_per_s", 3 * 1024**2)
    question = "[f[2] for f in fields(0, 198, 252, 83, (139, 2))]"
    sent = time.monotonic()
    first = ask(question)
    got = time.monotonic()
    until(time.monotonic, lambda now: now - got > 0.4)
    shortest = time.monotonic() - got
    second = ask(question)
    longest = time.monotonic() - sent
    for rate, a, b in zip((7e9, 5e8, 600_000, 3 * 1024), first, second, strict=True):
        assert rate * shortest - 1 <= b - a <= rate * longest + 1


def test_a_new_rate_counts_from_now_and_a_counter_can_fall(fake, ask):
    fake.update({"gpu.0.pcie_tx_bytes_per_s": 0, "gpu.0.pcie_bytes_short": 0})
    assert ask("fields(0, 197)") == ask("fields(0, 197)")
    fake.set("gpu.0.pcie_tx_bytes_per_s", 1e12)
    high = ask("fields(0, 197)[0][2]")
    fake.set("gpu.0.pcie_tx_bytes", 5)
    assert ask("fields(0, 197)[0][2]") < high


METRICS = """(lambda request: [
    setattr(request, "version", 1), setattr(request, "numMetrics", len({ids})), setattr(request, "sample1", {first}),
    time.sleep(0.02), setattr(request, "sample2", {second}),
    [setattr(request.metrics[i], "metricId", metric) for i, metric in enumerate({ids})],
    N.nvmlGpmMetricsGet(request),
    [[m.nvmlReturn, m.value if m.value == m.value else "nan"] for m in request.metrics[:len({ids})]],
][-1])(N.c_nvmlGpmMetricsGet_t())"""


def metrics(ask, ids, sample="N.nvmlGpmSampleGet(gpu(0), N.nvmlGpmSampleAlloc())"):
    return ask(METRICS.format(ids=ids, first=sample, second=sample))


def test_gpm_gives_each_metric_or_its_own_error(fake, ask):
    assert ask("N.nvmlGpmQueryDeviceSupport(gpu(0)).isSupportedDevice") == 1
    fake.update({"gpu.0.gpm.10": math.nan, "gpu.0.gpm.7": "error 4", "gpu.0.gpm.2": 71.5})
    assert metrics(ask, [2, 5, 10, 7, 300]) == [[0, 71.5], [0, 37.5], [0, "nan"], [4, 0], [3, 0]]
    fake.set("gpu.0.gpm.2", square(0, 80, period_s=1e-5, duty=0.25))
    [[rc, value]] = metrics(ask, [2])
    assert (rc, value) == (0, pytest.approx(20, abs=1))


def test_gpm_of_a_mig_child_is_its_own(fake, ask):
    fake.update({"gpu.0.mig_count": 1, "gpu.0.mig.0.gpm.2": 12.25})
    assert metrics(ask, [2], "N.nvmlGpmMigSampleGet(gpu(0), 7, N.nvmlGpmSampleAlloc())") == [[0, 12.25]]
    assert metrics(ask, [2], "N.nvmlGpmMigSampleGet(gpu(0), 9, N.nvmlGpmSampleAlloc())") == Refused(2)


def test_gpm_needs_support_and_two_samples_in_order(fake, ask):
    assert metrics(ask, [2], "N.nvmlGpmSampleAlloc()") == Refused(2)
    fake.set("gpu.0.gpm_supported", 0)
    assert ask("N.nvmlGpmQueryDeviceSupport(gpu(0)).isSupportedDevice") == 0
    assert metrics(ask, [2]) == Refused(3)


def test_an_xid_is_one_event_and_only_from_registration_on(fake, ask):
    fake.xid(3, 48)
    assert ask("globals().update(events=N.nvmlEventSetCreate())") is None
    assert ask("[N.nvmlDeviceRegisterEvents(gpu(i), 8, events) for i in (2, 3)]") == [None, None]
    wait = "(lambda e: [N.nvmlDeviceGetIndex(e.device), e.eventType, e.eventData])(N.nvmlEventSetWait_v2(events, {}))"
    assert ask(wait.format(30)) == Refused(10)
    waiting = ask.start(wait.format(20_000))
    fake.wait_for("nvmlEventSetWait_v2", 2)
    fake.xid(3, 79)
    fake.xid(2, 31)
    assert sorted([waiting.result(20), ask(wait.format(20_000))]) == [[2, 8, 31], [3, 8, 79]]
    assert ask(wait.format(0)) == Refused(10)


def test_a_gpu_may_have_no_events(fake, ask):
    fake.set("gpu.0.event_types", None)
    assert ask("N.nvmlDeviceGetSupportedEventTypes(gpu(0))") == Refused(3)
    assert ask("N.nvmlDeviceRegisterEvents(gpu(0), 8, N.nvmlEventSetCreate())") == Refused(3)


def test_errors_of_a_link_stand_still_while_its_bytes_move(ask):
    def look():
        return [answer[2] for answer in ask("fields(0, (139, 0), (161, 0), (162, 0))")]

    received, *errors = look()
    later = until(look, lambda now: now[0] > received)
    assert later[0] > received
    assert later[1:] == errors == [2, 1]
