"""What real drivers answer that a tidy one would not: dry buffers, untyped fields, refusals, one lock, slow calls."""

from __future__ import annotations

import time

import pytest

from tests.fakenvml import Fake
from tests.fakenvml.remote import Refused, Remote
from tests.fakenvml.test_fakenvml_faults import POWER
from tests.fakenvml.test_fakenvml_time import SAMPLES, metrics, until

SIZE = """(lambda n, t: [raw("nvmlDeviceGetSamples", gpu(0), {}, ctypes.c_ulonglong(0), ctypes.byref(t),
    ctypes.byref(n), None), n.value])(ctypes.c_uint(), ctypes.c_int())"""
FIELDS = """(lambda entries: [raw("nvmlDeviceGetFieldValues", gpu(0), len(entries), entries),
    [[one.nvmlReturn, one.valueType, one.value.ullVal] for one in entries]])(
    (N.c_nvmlFieldValue_t * len({ids}))(*[N.c_nvmlFieldValue_t(fieldId=one, nvmlReturn=777, valueType=55)
    for one in {ids}]))"""


def test_a_buffer_stores_nothing_while_the_gpu_idles(fake: Fake, ask: Remote) -> None:
    fake.update({"gpu.0.samples.1": "20 71 busy", "gpu.0.util": 0})
    assert ask(SAMPLES.format(1, 0)) == Refused(6)
    assert ask("N.nvmlDeviceGetUtilizationRates(gpu(0)).gpu") == 0
    fake.set("gpu.0.util", 40)
    ring = until(lambda: ask(SAMPLES.format(1, 0)), lambda got: got != Refused(6))
    assert {value for _at, value in ring} == {40}
    fake.set("gpu.0.util", 0)
    last = ask(SAMPLES.format(1, 0))[-1][0]
    time.sleep(0.2)
    assert ask(SAMPLES.format(1, last)) == Refused(6), "and keeps what it had"


@pytest.mark.parametrize(("kind", "how", "hz", "depth"), [(0, "50 119", 50, 119), (1, "5 71", 5, 71)])
def test_each_buffer_has_a_rate_and_a_depth_of_its_own(
    fake: Fake, ask: Remote, kind: int, how: str, hz: int, depth: int
) -> None:
    fake.set(f"gpu.0.samples.{kind}", how)
    ring = ask(SAMPLES.format(kind, 0))
    assert len(ring) == depth
    assert ring[-1][0] - ring[0][0] == pytest.approx((depth - 1) / hz * 1e6, abs=2)
    assert len(ask(SAMPLES.format(2, 0))) == 100, "the others stay"
    assert ask(SIZE.format(kind)) == [0, depth]


def test_clocks_may_be_stored_only_when_they_change(fake: Fake, ask: Remote) -> None:
    fake.set("gpu.0.samples.5", "50 100 changes")
    first = ask(SAMPLES.format(5, 0))
    assert [value for _at, value in first] == [1740]
    time.sleep(0.1)
    assert ask(SAMPLES.format(5, 0)) == first
    fake.set("gpu.0.sm_clock", 1200)
    ring = until(lambda: ask(SAMPLES.format(5, 0)), lambda got: len(got) > 1)
    assert [value for _at, value in ring] == [1740, 1200]


def test_the_size_of_a_buffer_may_be_all_that_can_be_asked(fake: Fake, ask: Remote) -> None:
    fake.set("gpu.0.samples.6", "empty")
    assert ask(SIZE.format(6)) == [0, 120]
    assert ask(SAMPLES.format(6, 0)) == Refused(3)
    assert ask("N.nvmlDeviceGetClockInfo(gpu(0), 2)") == 2619


def test_utilisation_is_of_the_window_of_its_own_samples(fake: Fake, ask: Remote) -> None:
    fake.update({"gpu.0.samples.1": "0.5 10", "gpu.0.util": "square 0 100 2 0.5"})
    assert ask("N.nvmlDeviceGetUtilizationRates(gpu(0)).gpu") == 50


def test_a_field_may_have_no_type_and_a_whole_number_all_the_same(fake: Fake, ask: Remote) -> None:
    fake.update({"gpu.0.fields_untyped": "3 82", "gpu.0.ecc_corrected": 9})
    assert ask(FIELDS.format(ids=[3, 82, 4])) == [0, [[0, 0, 9], [0, 0, 73], [0, 3, 0]]]


@pytest.mark.parametrize(("version", "type_"), [("580.65.06", 1), ("610.12", 0)])
def test_stalls_are_a_double_from_610_on(fake: Fake, ask: Remote, version: str, type_: int) -> None:
    fake.update({"driver_version": version, "gpu.0.mma_stall_percent": 14})
    assert ask("fields(0, 297)") == [[0, type_, 14]]


def test_an_entry_may_be_left_as_it_was(fake: Fake, ask: Remote) -> None:
    fake.set("gpu.0.fields_untouched", "82 197")
    assert ask(FIELDS.format(ids=[82, 91, 197])) == [0, [[777, 55, 0], [0, 1, 18], [777, 55, 0]]]


def test_a_value_may_be_refused_with_a_code_of_its_own(fake: Fake, ask: Remote) -> None:
    fake.update({"gpu.0.mig_mode": 1, "gpu.0.mig_count": 1, "gpu.0.memory_total": "error 4", "gpu.0.uuid": "error 4"})
    fake.update({"gpu.0.temperature": "error 4", "gpu.0.energy_mj": "error 2", "gpu.2.power_mw": "error 21"})
    for version in ("", ", N.nvmlMemory_v2"):
        assert ask(f"N.nvmlDeviceGetMemoryInfo(gpu(0){version})") == Refused(4)
    child = "N.nvmlDeviceGetMigDeviceHandleByIndex(gpu(0), 0)"
    assert ask(f"N.nvmlDeviceGetMemoryInfo({child}, N.nvmlMemory_v2).used") == 2147483648, "its instance says it"
    assert ask("N.nvmlDeviceGetUUID(gpu(0))") == Refused(4)
    assert ask("N.nvmlDeviceGetTemperatureV(gpu(0), 0)") == Refused(4)
    assert ask("N.nvmlDeviceGetTotalEnergyConsumption(gpu(0))") == Refused(2)
    assert ask("N.nvmlDeviceGetSamples(gpu(2), 0, 0)") == Refused(21)
    assert [rc for rc, *_ in ask("fields(0, 83, 185)")] == [2, 0]
    fake.update({"gpu.1.util": "error 999", "gpu.1.field.82": "error 4"})
    assert ask("N.nvmlDeviceGetUtilizationRates(gpu(1))") == Refused(999)
    assert [rc for rc, *_ in ask("fields(1, 82)")] == [4]


def test_gpm_of_an_older_driver_refuses_what_is_newer_one_by_one_or_all(fake: Fake, ask: Remote) -> None:
    fake.update({"gpu.*.gpm_known_below": 98, "gpu.0.gpm.100": 7})
    assert metrics(ask, [2, 100]) == [[0, 83.25], [2, 0]]
    fake.set("gpu.*.gpm_refuses_all", 2)
    assert metrics(ask, [2, 100]) == Refused(2)
    assert metrics(ask, [100]) == Refused(2)
    assert metrics(ask, [2, 5]) == [[0, 83.25], [0, 37.5]]


def test_gpm_may_leave_an_entry_as_it_was(fake: Fake, ask: Remote) -> None:
    fake.set("gpu.0.gpm_untouched", "5")
    question = METRICS_FILLED.format(ids=[2, 5], sample="N.nvmlGpmSampleGet(gpu(0), N.nvmlGpmSampleAlloc())")
    assert ask(question) == [[0, 83.25], [777, 0]]


METRICS_FILLED = """(lambda request: [
    setattr(request, "version", 1), setattr(request, "numMetrics", len({ids})), setattr(request, "sample1", {sample}),
    time.sleep(0.02), setattr(request, "sample2", {sample}),
    [(setattr(request.metrics[i], "metricId", metric), setattr(request.metrics[i], "nvmlReturn", 777))
     for i, metric in enumerate({ids})],
    N.nvmlGpmMetricsGet(request), [[m.nvmlReturn, m.value] for m in request.metrics[:len({ids})]],
][-1])(N.c_nvmlGpmMetricsGet_t())"""
TIMED = "(lambda t: [{}, time.monotonic() - t][1])(time.monotonic())"


def test_a_batch_of_fields_costs_its_dearest_member(fake: Fake, ask: Remote) -> None:
    fake.update({"gpu.0.field_us.185": 120_000, "gpu.*.field_us.83": 100_000})
    both = until(lambda: ask(TIMED.format("fields(0, 83, 185, 82)")), lambda spent_s: spent_s < 0.22)
    assert 0.12 <= both < 0.22
    assert ask(TIMED.format("fields(0, 83)")) >= 0.1
    assert until(lambda: ask(TIMED.format("fields(0, 82, 186)")), lambda spent_s: spent_s < 0.1) < 0.1


def test_one_lock_lets_the_calls_of_all_gpus_wait_for_each_other(fake: Fake, ask: Remote) -> None:
    assert ask("[N.nvmlDeviceGetIndex(gpu(i)) for i in range(3)]") == [0, 1, 2]
    fake.update({"one_lock": 1, "pcie_throughput_us": 150_000})
    fake.fault("delay_us", "nvmlDeviceGetPowerUsage", 150_000)
    began = time.monotonic()
    waiting = [ask.start(POWER.format(0)), ask.start("N.nvmlDeviceGetPcieThroughput(gpu(1), 0)")]
    assert [one.result(10) for one in waiting] == [412_000, 1_210_000]
    assert time.monotonic() - began >= 0.3
    fake.clear("delay_us.*")
    fake.hang("*", gpu=2)
    stuck = ask.start(POWER.format(2))
    fake.wait_for("hanging", gpu=2)
    assert ask(POWER.format(0)) == 412_000, "who hangs lets the others pass"
    fake.clear("gpu.2.hang.*")
    assert stuck.result(5) == 414_000


@pytest.mark.parametrize(
    ("code", "words"),
    [(17, "The operating system has blocked the request"), (28, "GPU Not Found"), (999, "Unknown Error")],
)
def test_init_may_be_refused_by_a_machine_without_a_gpu_of_ours(fake: Fake, code: int, words: str) -> None:
    fake.fail("nvmlInit*", code)
    with Remote(fake, init=False) as ask:
        assert ask("N.nvmlInit()") == Refused(code)
        # nvidia-ml-py looks words up only after nvmlInit
        say = "(lambda f: [setattr(f, 'restype', ctypes.c_char_p), f({})][1].decode())"
        assert ask(f"{say.format(code)}(ctypes.CDLL('libnvidia-ml.so.1').nvmlErrorString)") == words
