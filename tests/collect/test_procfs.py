"""The process reader on a /proc in a folder: every metric, the tiers, gaps and what this kernel lacks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from gputop.collect.proc.proc_files import UNLOCK_DELAYS
from gputop.collect.step_meters import METER_FILLS
from gputop.model import Missing, Process, metrics
from tests.fakeproc import STAT, FakeProc, find, named


@pytest.fixture
def proc(tmp_path: Path) -> Iterator[FakeProc]:
    proc = FakeProc(tmp_path)
    yield proc
    proc.names.stop()


def test_every_metric_of_a_gpu_process(proc: FakeProc) -> None:
    proc.add(42, user=100, system=50, started=500_000, threads=1, faults=4, delay=10)
    proc.more(42, io=(1000, 200, 10, 4, 4096, 0), run=1_000_000_000, wait=500_000_000)
    for name in ("cmdline", "environ", "maps", "cgroup", "smaps_rollup"):
        proc.write(f"42/{name}", "")
    proc.names.start()
    named(proc, 42, lambda process: process.allowed_cpus, 42)
    for _ in range(3):
        proc.look(42, open_=42)
    proc.add(42, user=180, system=70, threads=1, faults=6, delay=30, nice=5, cpu=3, voluntary=110, involuntary=15)
    proc.more(42, io=(9000, 400, 14, 5, 12288, 2048), run=1_600_000_000, wait=700_000_000)
    process = proc.process(42, 42, after_s=2.0, open_=42)
    assert (process.cpu_percent, process.cpu_time_s, process.state, process.threads) == (50.0, 2.5, "S", 1)
    assert process.age_s == pytest.approx(proc.now_s + 10_000 - 5000)
    assert (process.main_thread_percent, process.main_run_wait_percent) == (30.0, 25.0)
    assert (process.run_wait_percent, process.busy_threads) == (25.0, 1)
    assert (process.last_cpu, process.nice, process.affinity, process.allowed_cpus) == (3, 5, "0-3,6", 5.0)
    assert process.memory_nodes == "0"
    assert (process.read_bytes_per_s, process.write_bytes_per_s) == (4096.0, 1024.0)
    assert (process.read_chars_per_s, process.write_chars_per_s) == (4000.0, 100.0)
    assert (process.read_calls_per_s, process.write_calls_per_s, process.mean_read_bytes) == (2.0, 0.5, 2000.0)
    assert (process.major_faults_per_s, process.io_wait_percent, process.blocked_percent) == (1.0, 10.0, 0.0)
    assert (process.voluntary_switches_per_s, process.involuntary_switches_per_s) == (50.0, 5.0)
    assert (process.rss_bytes, process.shared_bytes, process.swap_bytes) == (4_096_000, 40_960_000, 131_072)
    assert (process.waiting_in, process.open_files) == ("do_poll", 3)
    assert process.missing == ()


def test_all_but_named_metrics_are_known(proc: FakeProc) -> None:
    proc.add(42)
    proc.more(42)
    proc.names.start()
    named(proc, 42, lambda process: process.allowed_cpus, 42)
    for _ in range(3):
        process = proc.process(42, 42, open_=42)
    unknown = {metric.name for metric in metrics(Process) if getattr(process, metric.name) is None}
    later = {"pss_bytes", "shm_total_bytes", "shm_used_bytes"}  # weighed by the names lane
    metered = set(METER_FILLS)  # from inside, where there is a step meter
    assert unknown - later - metered == {"mean_read_bytes", "throttled_percent"}  # no read; no cgroup yet


def test_kin_of_a_gpu_process_is_followed(proc: FakeProc) -> None:
    for pid, parent in ((10, 1), (11, 10), (12, 11), (13, 12), (14, 11)):
        proc.add(pid, parent=parent)
        proc.more(pid)
    for _ in range(3):
        table = proc.look(12)
    followed = {process.pid for process in table.processes if process.read_bytes_per_s is not None}
    assert followed == {10, 11, 12, 13}


def test_loaders_without_a_gpu_are_followed_with_their_parent(proc: FakeProc) -> None:
    proc.add(20, "bash")
    for pid, comm, parent in ((21, "python", 20), (22, "pt_data_worker", 21), (23, "pt_data_worker", 21)):
        proc.add(pid, comm, parent=parent)
        proc.more(pid)
    for _ in range(3):
        table = proc.look()
    assert [find(table, pid).read_bytes_per_s for pid in (21, 22, 23)] == [0.0] * 3


def test_ranks_of_torchrun_are_followed_however_little_they_do(proc: FakeProc) -> None:
    for pid, comm, parent in ((31, "pt_elastic", 1), (32, "python", 31), (33, "python", 31), (34, "python", 1)):
        proc.add(pid, comm, parent=parent)
        proc.more(pid)
    for _ in range(3):
        table = proc.look()
    assert [find(table, pid).read_bytes_per_s for pid in (31, 32, 33, 34)] == [0.0, 0.0, 0.0, None]


def test_a_rank_stays_followed_when_it_only_waits(proc: FakeProc) -> None:
    proc.add(35, "python")
    proc.more(35)
    proc.names.start()
    proc.write("35/environ", b"RANK=0\0WORLD_SIZE=2\0")
    for ticks in range(0, 50, 10):
        proc.add(35, "python", user=ticks)
        proc.look()
    named(proc, 35, lambda process: process.rank == 0)
    for _ in range(15):
        process = proc.process(35)
    assert (process.rank, process.read_bytes_per_s) == (0, 0.0)


def test_births_and_deaths_are_seen_at_once(proc: FakeProc) -> None:
    proc.write("loadavg", "0.1 0.1 0.1 1/10 41\n")
    assert proc.look().count == 1
    proc.add(42)
    proc.write("loadavg", "0.1 0.1 0.1 1/11 42\n")
    assert {process.pid for process in proc.look().processes} == {1, 42}
    proc.remove(42)
    proc.write("loadavg", "0.1 0.1 0.1 1/10 42\n")
    assert {process.pid for process in proc.look().processes} == {1}


def test_a_made_up_loadavg_hides_a_birth_for_seconds_only(proc: FakeProc) -> None:
    proc.write("loadavg", "0.1 0.1 0.1 1/10 41\n")
    proc.look()
    proc.add(42)
    assert any(process.pid == 42 for _ in range(6) for process in proc.look().processes)


@pytest.mark.parametrize("kept", [22, 24, 30, 41])
def test_p10_a_kernel_with_shorter_stat(proc: FakeProc, kept: int) -> None:
    proc.add(42, comm="a b")
    path = proc.proc / "42/stat"
    path.write_text(" ".join(path.read_text().split()[: kept + 1]) + "\n")
    for _ in range(2):
        process = proc.process(42, 42)
    assert (process.name, process.cpu_percent) == ("a b", 0.0)
    assert (process.rss_bytes is None) == (kept < 24)
    assert (process.last_cpu is None) == (kept < 39)
    assert process.io_wait_percent is None


def test_p10_gvisor_has_no_schedstat_no_io_and_zeros(proc: FakeProc) -> None:
    proc.write("42/stat", "42 (python) S 1 42 42 0 0 0 0 0 0 0 7 3 0 0 20 0 12 0 500000 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n")  # noqa: E501  # fmt: skip
    proc.write("42/status", "Name:\tpython\nState:\tS (sleeping)\nTgid:\t42\nPid:\t42\nPPid:\t1\nThreads:\t12\n")
    proc.look(42)
    process = proc.process(42, 42)
    assert (process.cpu_time_s, process.threads, process.affinity, process.main_thread_percent) == (0.1, 12, None, None)
    missing = {one.metric: one.reason for one in process.missing}
    assert missing["main_thread_percent"] == missing["read_bytes_per_s"] == missing["shared_bytes"] == "unsupported"


def test_p10_schedstat_of_zeros_is_not_zero_percent(proc: FakeProc) -> None:
    proc.add(42)
    proc.more(42, run=0, wait=0, slices=0)
    proc.look(42)
    process = proc.process(42, 42)
    assert process.main_thread_percent is None
    assert Missing(metric="main_thread_percent", reason="unsupported") in process.missing


def test_p10_rhel7_has_no_kinds_of_rss_and_no_delay_setting(proc: FakeProc) -> None:
    (proc.proc / "sys/kernel/task_delayacct").unlink()
    status = proc.add(42) and (proc.proc / "42/status")
    status.write_text(re.sub(r"Rss\w+:.*\n", "", status.read_text()))
    proc.more(42)
    proc.add(1, "systemd", parent=0, started=1, delay=1234)
    for _ in range(3):
        process = proc.process(42, 42)
    assert (process.shared_bytes, process.swap_bytes, process.io_wait_percent) == (40_960_000, 131_072, 0.0)


def test_p10_pages_of_64_kib(tmp_path: Path) -> None:
    proc = FakeProc(tmp_path, page_bytes=65536)
    proc.add(42, rss=1000)
    proc.more(42)
    proc.look(42)
    process = proc.process(42, 42)
    assert (process.rss_bytes, process.shared_bytes) == (65_536_000, 655_360_000)


def test_delays_that_are_not_counted_are_unknown_and_say_what_unlocks_them(proc: FakeProc) -> None:
    setting = proc.write("sys/kernel/task_delayacct", "0\n")
    proc.add(42)
    proc.more(42)
    proc.look(42)
    process = proc.process(42, 42)
    assert process.io_wait_percent is None
    assert process.missing == (Missing(metric="io_wait_percent", reason="unsupported", unlock=UNLOCK_DELAYS),)
    setting.write_text("1\n")
    proc.add(43, started=int((10_000 + proc.now_s + 20) * 100))
    for _ in range(22):
        table = proc.look(42, 43)
    assert find(table, 42).io_wait_percent is None  # started before: the kernel does not count its delays
    assert find(table, 43).io_wait_percent == 0.0


def test_stat_text_is_what_this_kernel_writes() -> None:
    real = Path("/proc/self/stat").read_text()
    assert len(STAT.split()) == len(real[: real.index("(")].split()) + 1 + len(real[real.rindex(")") + 1 :].split())
