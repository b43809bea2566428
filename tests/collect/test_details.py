"""The details of an open process, from copies of /proc, part by part."""

from __future__ import annotations

import os
from math import inf
from pathlib import Path

import pytest

from gputop.collect.details.threads import system_call
from gputop.model import PARTS, Identity, Process, Thread
from gputop.source import DetailWish
from tests.details_proc import OWNER, STARTED, OpenProc


@pytest.fixture
def proc(tmp_path: Path) -> OpenProc:
    return OpenProc(tmp_path)


def test_every_part_of_a_whole_process_is_there(proc: OpenProc) -> None:
    identity = proc.whole(42)
    detail = proc.detail(identity)
    assert detail.identity == identity
    assert detail.missing == ()
    assert all(getattr(detail, part) is not None for part in PARTS)


def test_only_the_parts_that_are_wanted_are_read(proc: OpenProc) -> None:
    identity = proc.whole(42)
    detail = proc.detail(identity, DetailWish(parts=("limits",)))
    assert {part for part in PARTS if getattr(detail, part) is not None} == {"limits"}
    assert detail.missing == ()


def test_threads_have_rates_from_the_second_look_on(proc: OpenProc) -> None:
    identity = proc.whole(42)
    proc.task(42, 42, "python", "R", run=1_000)
    proc.task(42, 43, "pt_autograd_0", "S", run=500, wait=500, voluntary=10, syscall="202 0x1 0x2\n")
    proc.task(42, 44, "pt_data_worker", "D", run=700, wchan="folio_wait_bit_common.isra.0", syscall="0 0x3 0x4\n")
    first = proc.detail(identity)
    assert first.threads is not None
    assert [thread.cpu_percent for thread in first.threads] == [None] * 3
    proc.task(42, 42, "python", "R", run=970_001_000)
    proc.task(42, 43, "pt_autograd_0", "S", run=20_000_500, wait=60_000_500, voluntary=320, syscall="202 0x1 0x2\n")
    main, autograd, loader = proc.detail(identity, after_s=1.0).threads or ()
    assert (main.tid, main.name, main.state, main.last_cpu) == (42, "python", "R", 2)
    assert (main.cpu_percent, main.run_wait_percent, main.blocked_on) == (97.0, 0.0, None)
    assert (autograd.cpu_percent, autograd.run_wait_percent) == (2.0, 75.0)
    assert (autograd.voluntary_switches_per_s, autograd.involuntary_switches_per_s) == (310.0, 155.0)
    assert (loader.name, loader.cpu_percent, loader.voluntary_switches_per_s) == ("pt_data_worker", 0.0, 0.0)
    assert loader.blocked_on == "folio_wait_bit_common"


def test_a_thread_that_runs_again_is_not_shown_where_it_slept(proc: OpenProc) -> None:
    identity = proc.whole(42)
    proc.task(42, 42, "python", "S", run=5)
    assert [thread.waiting_in for thread in proc.detail(identity).threads or ()] == ["futex_do_wait"]
    proc.task(42, 42, "python", "R", run=5)  # it may run, and waits for a CPU: it has not run since
    (thread,) = proc.detail(identity, after_s=1.0).threads or ()
    assert (thread.state, thread.waiting_in, thread.blocked_on) == ("R", None, None)


def test_threads_of_a_kernel_without_scheduler_statistics(proc: OpenProc) -> None:
    identity = proc.whole(42)
    (proc.proc / "42/task/42/schedstat").unlink()
    proc.detail(identity)
    path = proc.proc / "42/task/42/stat"
    path.write_text(path.read_text().replace(" 0 0 0 0 20 0 ", " 30 20 0 0 20 0 "))
    (thread,) = proc.detail(identity, after_s=1.0).threads or ()
    assert (thread.cpu_percent, thread.run_wait_percent, thread.cpu_time_s) == (50.0, None, 0.5)


def test_a_thread_that_has_ended_is_gone_and_very_many_are_counted(proc: OpenProc) -> None:
    identity = proc.whole(42)
    for tid in range(43, 43 + 1100):
        (proc.proc / f"42/task/{tid}").mkdir()
    proc.task(42, 50, "worker")
    detail = proc.detail(identity, DetailWish(parts=("threads",)))
    assert [thread.tid for thread in detail.threads or ()] == [42, 50]
    assert detail.threads_count == 1101


@pytest.mark.parametrize(
    ("state", "call", "function", "blocked_on"),
    [
        ("R", None, None, None), ("S", "futex", "futex_do_wait", "futex"), ("S", None, "do_poll", "do_poll"),
        ("D", "read", "nfs_wait_bit_killable", "nfs_wait_bit_killable"), ("D", "read", None, "read"),
        ("S", None, None, None),
    ],
)  # fmt: skip
def test_what_a_thread_is_blocked_on(
    state: str, call: str | None, function: str | None, blocked_on: str | None
) -> None:
    assert Thread(tid=1, state=state, system_call=call, waiting_in=function).blocked_on == blocked_on


@pytest.mark.parametrize(("raw", "name"), [(b"running\n", None), (b"-1 0x7ff 0x1\n", None), (b"", None)])
def test_no_system_call(raw: bytes, name: str | None) -> None:
    assert system_call(raw) is name
    assert system_call(b"99999 0x1\n") == "call 99999"


def test_descriptors_say_what_they_are_and_how_far_they_are(proc: OpenProc) -> None:
    identity = proc.whole(42)
    shard = proc.folder / "shard-0412.tar"
    shard.write_bytes(b"x" * 9000)
    proc.file(42, 0, "/dev/null")
    proc.file(42, 3, "socket:[4711]")
    proc.file(42, 4, "pipe:[4712]")
    proc.file(42, 5, "anon_inode:[eventpoll]")
    proc.file(42, 6, "/dev/shm/torch_1 (deleted)", flags="0100002")
    proc.file(42, 7, "/data", flags=oct(os.O_DIRECTORY)[2:])
    proc.file(42, 8, "/home/alice/train.log", 100, flags=oct(os.O_WRONLY | os.O_APPEND)[2:])
    proc.file(42, 17, shard, 1000)
    proc.detail(identity)
    proc.detail(identity, after_s=1.0)  # sizes are asked beside the files, of those that the look before found
    proc.file(42, 17, shard, 3000)
    detail = proc.detail(identity, after_s=1.0)
    files = detail.files or ()
    assert [(file.fd, file.kind, file.mode) for file in files] == [
        (0, "device", "r"), (3, "socket", None), (4, "pipe", None), (5, "other", None), (6, "shared memory", "rw"),
        (7, "folder", "r"), (8, "file", "wa"), (17, "file", "r"),
    ]  # fmt: skip
    assert (files[4].path, files[4].deleted) == ("/dev/shm/torch_1", True)
    assert detail.file_now == files[-1]
    assert (files[-1].position_bytes, files[-1].size_bytes, files[-1].moved_bytes_per_s) == (3000, 9000, 2000.0)
    assert detail.files_count == 8


def test_the_file_now_is_the_one_that_moves_else_the_last_that_was_opened(proc: OpenProc) -> None:
    identity = proc.whole(42)
    read = proc.folder / "vocabulary.json"
    read.write_bytes(b"x" * 10)
    for fd, target in ((4, "/data/a"), (5, "/data/b"), (6, read), (7, "/x/libtorch.so"), (8, "/data/gone (deleted)")):
        proc.file(42, fd, target, 10)
    proc.detail(identity)
    proc.detail(identity, after_s=1.0)  # sizes are asked beside the looks: they are known from the second on, at least
    now = proc.detail(identity, after_s=1.0).file_now  # 6 is at its end
    assert now is not None
    assert now.path == "/data/b"
    proc.file(42, 4, "/data/a", 11)
    now = proc.detail(identity, after_s=1.0).file_now
    assert now is not None
    assert now.path == "/data/a"


def test_another_file_on_the_same_descriptor_has_no_rate(proc: OpenProc) -> None:
    identity = proc.whole(42)
    proc.file(42, 5, "/data/a", 1000)
    proc.detail(identity)
    proc.file(42, 5, "/data/b", 9000)
    (file,) = proc.detail(identity, after_s=1.0).files or ()
    assert (file.path, file.moved_bytes_per_s) == ("/data/b", None)


def test_children_have_the_file_they_read_now_not_those_they_inherited(proc: OpenProc) -> None:
    identity = proc.whole(42)
    proc.whole(43, parent=42)
    proc.whole(44, parent=42)
    for pid in (42, 43, 44):
        proc.file(pid, 9, "/data/index.json", 7)
    proc.file(43, 12, "/data/shard-1", 5)
    proc.detail(identity)
    children = proc.detail(identity, after_s=1.0).children or ()
    assert [(child.identity.pid, child.file and child.file.path) for child in children] == [
        (43, "/data/shard-1"), (44, None),
    ]  # fmt: skip


def test_limits_with_what_is_used_of_them(proc: OpenProc) -> None:
    identity = proc.whole(42)
    proc.processes.append(Process(pid=77, started_ticks=1, uid=OWNER, threads=40))
    proc.processes.append(Process(pid=78, started_ticks=1, uid=0, threads=400))
    proc.add(42, user=150, system=50, started=STARTED)
    proc.file(42, 0, "/dev/null")
    limits = {limit.name: limit for limit in proc.detail(identity).limits or ()}
    assert list(limits) == ["cpu time", "open files", "processes", "nice priority", "realtime timeout"]
    cpu, files, processes = (limits[name] for name in ("cpu time", "open files", "processes"))
    assert (cpu.soft, cpu.hard, cpu.unit, cpu.used) == (inf, inf, "seconds", 2.0)
    assert (files.soft, files.hard, files.unit, files.used) == (20000, 1048576, "files", 1)
    assert (processes.soft, processes.used) == (96551, 43)
    assert (limits["realtime timeout"].unit, limits["realtime timeout"].hard) == ("microseconds", 1000)
    assert (limits["nice priority"].unit, limits["nice priority"].used) == ("priority", None)


def test_memory_is_walked_rarely_and_summed_by_node(proc: OpenProc) -> None:
    identity = proc.whole(42)
    memory = proc.detail(identity).memory
    assert memory is not None
    assert (memory.pss_bytes, memory.uss_bytes, memory.huge_bytes) == (310 << 10, 152 << 10, 2 << 20)
    assert memory.nodes == ((0, (2 * 4 + 2048) << 10), (1, 4096 << 10))
    assert (memory.anonymous_bytes, memory.swap_bytes, memory.peak_bytes) == (80_000 << 10, 128 << 10, None)
    proc.write("42/smaps_rollup", (proc.proc / "42/smaps_rollup").read_text().replace("310", "999"))
    for _ in range(14):
        memory = proc.detail(identity, after_s=1.0).memory
        assert memory is not None
        assert memory.pss_bytes == 310 << 10
    memory = proc.detail(identity, after_s=1.0).memory
    assert memory is not None
    assert memory.pss_bytes == 999 << 10


def test_overview_tells_where_it_is_and_with_which_rights(proc: OpenProc) -> None:
    identity = proc.whole(42, parent=41)
    proc.add(41, "torchrun", started=400)
    status = (proc.proc / "42/status").read_text().replace("TracerPid:\t0", "TracerPid:\t99")
    proc.write("42/status", status + "CapEff:\t00000000a80425fb\nCapBnd:\t000001ffffffffff\nSeccomp:\t2\n")
    overview = proc.detail(identity).overview
    assert overview is not None
    assert (overview.exe, overview.folder) == ("/usr/bin/python3", "/home/alice/llama")
    assert [(one.name, one.identity) for one in overview.parents] == [
        ("torchrun", Identity(41, 400)), ("systemd", Identity(1, 1)),
    ]  # fmt: skip
    assert overview.policy == "other"
    assert (overview.oom_score, overview.oom_adjust, overview.tracer_pid) == (667, -5, 99)
    assert (overview.own_namespaces, overview.capabilities, overview.seccomp) == (("mnt",), "some", "filter")


def test_io_is_since_it_started(proc: OpenProc) -> None:
    io = proc.detail(proc.whole(42)).io
    assert io is not None
    assert (io.read_chars_bytes, io.written_chars_bytes, io.read_calls, io.write_calls) == (9, 8, 7, 6)
    assert (io.read_bytes, io.written_bytes, io.cancelled_bytes) == (5, 4, 0)
