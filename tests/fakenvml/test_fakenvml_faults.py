"""The fake driver's faults: each kind works, ends, and stays where it was put."""

from __future__ import annotations

import random
import signal

import pytest

from tests.fakenvml import OLD_DRIVER, Fake, NoCompiler, build, symbols
from tests.fakenvml.remote import Refused, Remote

POWER, TEMPERATURE = "N.nvmlDeviceGetPowerUsage(gpu({}))", "N.nvmlDeviceGetTemperatureV(gpu({}), 0)"
COMPUTE = "N.nvmlDeviceGetComputeRunningProcesses"


def test_an_error_stays_with_its_call_and_its_gpu(fake, ask):
    fake.fail("nvmlDeviceGetPowerUsage", 4, gpu=1)
    assert ask(POWER.format(1)) == Refused(4)
    assert ask(POWER.format(0)) == 412_000
    assert ask(TEMPERATURE.format(1)) == 62
    fake.release("fail", "nvmlDeviceGetPowerUsage", gpu=1)
    assert ask(POWER.format(1)) == 413_000


def test_a_lost_gpu_fails_every_call_but_those_excepted(fake, ask):
    fake.fail("*", 15, gpu=1)
    assert ask(POWER.format(1)) == Refused(15)  # not even a handle
    fake.release("fail", "*", gpu=1)
    assert ask(POWER.format(1)) == 413_000
    fake.fail("*", 15, gpu=1)
    fake.fail("nvmlDeviceGetTemperatureV", 0, gpu=1)
    assert ask(POWER.format(1)) == Refused(15)
    assert ask(TEMPERATURE.format(1)) == 62
    assert ask(POWER.format(2)) == 414_000
    assert ask("N.nvmlDeviceGetCount()") == 8


def test_the_last_rule_that_matches_decides(fake, ask):
    assert ask(POWER.format(0)) == 412_000
    fake.fail("nvmlDeviceGet*", 999)
    fake.fail("nvmlDeviceGetPower*", 0)
    assert [ask(POWER.format(0)), ask(TEMPERATURE.format(0))] == [412_000, Refused(999)]
    fake.clear("fail.*")
    fake.fail("nvmlDeviceGetPower*", 0)
    fake.fail("nvmlDeviceGet*", 999)
    assert [ask(POWER.format(0)), ask(TEMPERATURE.format(0))] == [Refused(999), Refused(999)]


def test_a_rule_can_come_late_and_end(fake, ask):
    fake.fail("nvmlDeviceGetPowerUsage", 10, after=2, times=2, gpu=0)
    first = [ask(POWER.format(0)) for _ in range(3)]
    fake.set("gpu.0.util", 1)  # a new state, the same rule: it goes on counting
    assert [*first, *(ask(POWER.format(0)) for _ in range(3))] == [
        *(412_000, 412_000, Refused(10)),
        *(Refused(10), 412_000, 412_000),
    ]


@pytest.mark.parametrize("code", [9, 18, 999])
def test_init_may_fail_and_nothing_works_without_it(fake, code):
    fake.fail("nvmlInit*", code)
    with Remote(fake, init=False) as ask:
        assert ask("N.nvmlInit()") == Refused(code)
        assert ask("N.nvmlDeviceGetCount()") == Refused(1)
        fake.release("fail", "nvmlInit*")
        assert ask("N.nvmlInit()") is None
        assert ask("N.nvmlDeviceGetCount()") == 8
        assert ask("N.nvmlShutdown()") is None
        assert ask("N.nvmlDeviceGetCount()") == Refused(1)


def test_a_hung_call_blocks_no_other_and_ends_when_its_rule_goes(fake, ask):
    assert ask("[N.nvmlDeviceGetIndex(gpu(i)) for i in (0, 1)]") == [0, 1]
    fake.hang("*", gpu=0)
    stuck = ask.start(POWER.format(0))
    fake.wait_for("hanging", gpu=0)
    assert ask(POWER.format(1)) == 413_000
    assert ask("N.nvmlDeviceGetCount()") == 8
    assert not stuck.done()
    assert fake.counts()["hanging"] == 1
    fake.update({"gpu.0.power_mw": 5})
    assert not stuck.done()
    fake.release("hang", "*", gpu=0)
    assert stuck.result(5) == 5
    assert fake.counts()["hanging"] == 0


def test_a_hang_ends_after_its_seconds(fake, ask):
    fake.hang("nvmlDeviceGetCount_v2", 0.2)
    took, count = ask("(lambda t: [N.nvmlDeviceGetCount(), time.monotonic() - t][::-1])(time.monotonic())")
    assert count == 8
    assert took >= 0.2


def test_init_may_hang(fake):
    fake.hang("nvmlInit*")
    with Remote(fake, init=False) as ask:
        stuck = ask.start("N.nvmlInit()")
        fake.wait_for("hanging")
        fake.clear("hang.*")
        assert stuck.result(5) is None


def test_a_call_may_sleep_or_burn(fake, ask):
    cost = "(lambda w, c: [N.nvmlDeviceGetCount(), time.monotonic() - w, time.thread_time() - c])"
    cost += "(time.monotonic(), time.thread_time())"
    fake.fault("delay_us", "nvmlDeviceGetCount_v2", 150_000)
    _count, wall, cpu = ask(cost)
    assert wall >= 0.15
    assert cpu < 0.1
    fake.clear("delay_us.*")
    fake.fault("burn_us", "*", 60_000)
    _count, _wall, cpu = ask(cost)
    assert cpu >= 0.06


def test_a_call_may_crash_the_program(fake, ask):
    fake.fault("crash", "nvmlDeviceGetPowerUsage", 1, after=1)
    assert ask(POWER.format(0)) == 412_000
    ask.start(POWER.format(0))
    assert ask.wait() == -signal.SIGSEGV


def test_a_list_may_outgrow_its_buffer_or_never_fit(fake, ask):
    fake.add_process(gpu=0, pid=51)
    fake.fault("grow", "nvmlDeviceGetComputeRunningProcesses_v3", 20, gpu=0, after=1, times=3)
    assert ask(f"{COMPUTE}(gpu(0))") == Refused(7)  # nvidia-ml-py leaves room for twice as many, and 5
    assert len(ask(f"{COMPUTE}(gpu(0))")) == 61
    fake.clear("*grow*")
    fake.fail("nvmlDeviceGetComputeRunningProcesses_v3", 7)
    assert ask(f"{COMPUTE}(gpu(0))") == Refused(7)


def test_entries_of_another_size_are_misread(fake, ask):
    for pid in (61, 62, 63):
        fake.add_process(gpu=0, pid=pid, gi=0, ci=0)
    fake.set("gpu.0.process_stride", 40)
    listed = [entry["pid"] for entry in ask(f"{COMPUTE}(gpu(0))")]
    assert listed[0] == 61
    assert listed != [61, 62, 63]


def test_numbers_may_be_absurd(fake, ask):
    fake.update({"gpu.0.util": 2**32 - 1, "gpu.0.power_mw": 65_535_000, "gpu.0.memory_used": 2**64 - 1})
    assert ask("N.nvmlDeviceGetUtilizationRates(gpu(0)).gpu") == 2**32 - 1
    assert ask(POWER.format(0)) == 65_535_000
    assert ask("N.nvmlDeviceGetMemoryInfo(gpu(0), version=N.nvmlMemory_v2).used") == 2**64 - 1


def test_names_may_be_anything(fake, ask):
    name = "(lambda room: [raw('nvmlDeviceGetName', gpu(0), room, 96), room.value])(ctypes.create_string_buffer(96))"
    for given in (b"\xff\xfe\x80 H100", b"", b" \x1b[2J\n\\x41 ", "Grün 显卡".encode()):
        fake.set("gpu.0.name", given)
        assert ask(name) == [0, given.decode("latin-1")]
    fake.set("gpu.0.name", "n" * 10_240)
    assert ask("N.nvmlDeviceGetName(gpu(0))") == Refused(7)
    fake.set("text_cut", 1)
    assert ask("N.nvmlDeviceGetName(gpu(0))") == "n" * 95


def test_gpus_come_and_go_and_may_share_a_uuid(fake, ask):
    uuids = "[N.nvmlDeviceGetUUID(N.nvmlDeviceGetHandleByIndex(i)) for i in range(N.nvmlDeviceGetCount())]"
    all_of_them = ask(uuids)
    old = ask("N.nvmlDeviceGetIndex(gpu(3))")
    fake.set("order", "0 1 2 4 5 6 7")
    assert ask(uuids) == [*all_of_them[:3], *all_of_them[4:]]
    assert old == 3
    assert ask(POWER.format(3)) == Refused(15)
    fake.clear("order")
    assert ask(POWER.format(3)) == 415_000
    fake.set("gpu.1.uuid", all_of_them[0])
    assert ask(uuids)[:2] == [all_of_them[0]] * 2
    fake.set("gpus", 0)
    assert ask(uuids) == []


def test_calls_are_counted_by_function_gpu_and_in_every_process(fake, ask):
    for gpu in (0, 0, 3):
        ask(POWER.format(gpu))
    with Remote(fake) as other:
        other(POWER.format(3))
    assert fake.counts()["nvmlDeviceGetPowerUsage"] == 4
    assert [fake.counts(gpu)["nvmlDeviceGetPowerUsage"] for gpu in (0, 1, 3)] == [2, 0, 2]
    assert fake.counts()["nvmlInitWithFlags"] == 2
    assert fake.counts()["nvmlDeviceGetSamples"] == 0


def test_an_old_driver_lacks_what_came_later(tmp_path, fake):
    old = Fake(tmp_path / "old", without=OLD_DRIVER)
    old.add_process(gpu=0, pid=71)
    with Remote(old) as ask:
        with pytest.raises(RuntimeError, match="NVMLLibraryMismatchError"):  # nvidia-ml-py's own, no NVMLError
            ask(f"{COMPUTE}(gpu(0))")
        assert ask(f"{COMPUTE}_v3(gpu(0))") == Refused(13)
        assert [entry["pid"] for entry in ask(f"{COMPUTE}_v2(gpu(0))")] == [71]
        assert ask("N.nvmlDeviceGetMemoryInfo(gpu(0), version=N.nvmlMemory_v2)") == Refused(13)
        assert ask("N.nvmlDeviceGetMemoryInfo(gpu(0)).total") == 85520809984


def test_any_functions_can_be_missing(tmp_path, fake):
    ever = {"nvmlInitWithFlags", "nvmlDeviceGetHandleByIndex_v2"}
    without = random.Random(7).sample(sorted(symbols() - ever), 40)
    partial = Fake(tmp_path / "partial", without=without)
    present = "[hasattr(N.nvmlLib, name) for name in {}]"
    with Remote(partial) as ask:
        assert not any(ask(present.format(without)))
        assert all(ask(present.format(sorted(symbols() - set(without)))))
    with pytest.raises(ValueError, match="nvmlNothing"):
        Fake(tmp_path / "wrong", without=["nvmlNothing"])


def test_the_sources_build_where_nothing_was_built_before(fake, tmp_path, monkeypatch):
    monkeypatch.setattr(build.tempfile, "tempdir", str(tmp_path))
    build.library.cache_clear()
    assert (build.library() / build.SONAME).is_relative_to(tmp_path)
    build.library.cache_clear()


def test_without_a_compiler_there_is_one_clear_error(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    build.library.cache_clear()
    with pytest.raises(NoCompiler, match="no cc on PATH"):
        Fake(tmp_path)
