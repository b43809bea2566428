"""Whose pid it is that the driver names (N26 to N28, P07), and the limits over a process in any kind of cgroup tree."""

from __future__ import annotations

from pathlib import Path

import pytest

from gputop.collect.proc.gpu_processes import LIST_AGE_S, ProcessTable, with_shares
from gputop.model import GpuShare, Process
from tests.fakeproc import MOUNTINFO, FakeProc, find, named

COMPUTE = (GpuShare(uuid="GPU-0", vram_bytes=61 << 30),)


def test_n26_one_process_for_each_pid_with_each_kind_once() -> None:
    twice = (*COMPUTE, GpuShare(uuid="GPU-0", kind="graphics"), *COMPUTE, GpuShare(uuid="GPU-1"))
    table = ProcessTable(processes=(Process(pid=42, started_ticks=1), Process(pid=43, started_ticks=1)))
    joined = with_shares(table, {42: twice, 0: COMPUTE})
    assert [(share.uuid, share.kind) for share in find(joined, 42).gpus] == [
        ("GPU-0", "compute"),
        ("GPU-0", "graphics"),
        ("GPU-1", "compute"),
    ]
    assert find(joined, 43) is table.processes[1]
    nobody = find(joined, 0)
    assert (nobody.unseen, nobody.verified) == ("foreign", False)


def test_n26_pids_of_another_namespace_have_no_name_and_are_not_verified(tmp_path: Path) -> None:
    proc = FakeProc(tmp_path, private=True)
    table = with_shares(proc.look(918273, 918274), {918273: COMPUTE, 918274: COMPUTE})
    process = find(table, 918273)
    assert (process.unseen, process.verified, process.name, process.command, process.gpus) == (
        "foreign", False, "", (), COMPUTE,
    )  # fmt: skip
    (note,) = table.notes
    assert note.key == "foreign-pids"
    assert note.text.startswith("2 of 2 GPU processes are outside this container")
    assert "host pid 918273, 61.0G" in note.help[0]
    assert "--pid=host" in note.help[1]


def test_n27_a_pid_that_happens_to_exist_here_is_not_named(tmp_path: Path) -> None:
    proc = FakeProc(tmp_path, private=True)
    proc.add(42, "sleep")
    proc.more(42)
    table = with_shares(proc.look(42), {42: COMPUTE})
    local, foreign = (process for process in table.processes if process.pid == 42)
    assert (local.name, local.gpus, local.verified) == ("sleep", (), True)
    assert (foreign.name, foreign.gpus, foreign.unseen, foreign.verified) == ("", COMPUTE, "foreign", False)
    assert local.identity != foreign.identity


def test_n27_evidence_names_it(tmp_path: Path) -> None:
    proc = FakeProc(tmp_path, private=True)
    proc.names.start()
    proc.add(42, "python")
    proc.more(42)
    proc.write("42/maps", "7f0-7f1 rw-s 0 00:05 9 /dev/nvidia0\n")
    named(proc, 42, lambda process: "cuda" in process.libraries, 42)
    table = with_shares(proc.look(42), {42: COMPUTE})
    assert (find(table, 42).gpus, find(table, 42).verified, table.notes) == (COMPUTE, True, ())
    proc.names.stop()


def test_n28_a_dead_pid_has_exited_once_the_driver_was_asked_again(tmp_path: Path) -> None:
    proc = FakeProc(tmp_path)
    proc.add(42)
    alive = proc.look(42)
    assert find(with_shares(alive, {42: COMPUTE}, alive.taken_s), 42).unseen is None
    proc.remove(42)
    just = proc.look(42)
    assert with_shares(just, {42: COMPUTE}, just.taken_s).processes == just.processes, "an old list, not a wrong one"
    later = proc.look(42, after_s=LIST_AGE_S)
    process = find(with_shares(later, {42: COMPUTE}, later.taken_s), 42)
    assert (process.unseen, process.verified, process.started_ticks, process.gpus) == ("exited", True, 0, COMPUTE)


def test_n28_who_was_gone_before_the_first_look_has_exited_at_once(tmp_path: Path) -> None:
    proc = FakeProc(tmp_path)
    proc.add(1)
    first = proc.look(42)
    process = find(with_shares(first, {42: COMPUTE}, first.taken_s), 42)
    assert (process.unseen, process.gpus) == ("exited", COMPUTE)
    later = proc.look(42, 43)
    assert [one.pid for one in with_shares(later, {43: COMPUTE}, later.taken_s).processes if one.unseen] == []


def test_n28_a_pid_nobody_has_looked_for_yet_is_nothing(tmp_path: Path) -> None:
    table = FakeProc(tmp_path).look()
    assert with_shares(table, {42: COMPUTE}, table.taken_s + 60).processes == table.processes


def test_p07_what_hidepid_hides_is_hidden_not_exited(tmp_path: Path) -> None:
    proc = FakeProc(tmp_path)
    proc.remove(1)
    proc.add(50)
    proc.look(42, 50)
    table = proc.look(42, 50, after_s=5.0)
    assert [note.text for note in table.notes] == [
        "Processes of other users are not listed: /proc is mounted with hidepid."
    ]
    table = with_shares(table, {42: COMPUTE, 50: COMPUTE}, table.taken_s)
    assert [(process.pid, process.unseen) for process in table.processes] == [(50, None), (42, "hidden")]
    assert [note.key for note in table.notes] == ["hidden-pids"]
    assert table.notes[0].text.startswith("1 of 2 GPU processes belong")


def test_without_shares_the_table_is_the_same_object(tmp_path: Path) -> None:
    table = FakeProc(tmp_path).look()
    assert with_shares(table, {}) is table


TREES = {  # mountinfo, cgroup file, files below /sys, CPUs allowed of the five by affinity, throttled
    "none": ("", "0::/a/b\n", {}, 5.0, None),
    "v2": (
        "35 31 0:30 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
        "0::/a/b\n",
        {"fs/cgroup/a/cpu.max": "250000 100000", "fs/cgroup/a/b/cpu.max": "max 100000"},
        2.5,
        50.0,
    ),
    "v2 without a quota": (
        "35 31 0:30 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
        "0::/a/b\n",
        {"fs/cgroup/a/b/cpu.max": "max 100000"},
        5.0,
        0.0,
    ),
    "v1": (
        "35 31 0:30 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n",
        "4:cpu,cpuacct:/a/b\n3:memory:/a\n",
        {
            "fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us": "150000",
            "fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us": "100000",
            "fs/cgroup/cpu,cpuacct/a/b/cpu.cfs_quota_us": "-1",
        },
        1.5,
        50.0,
    ),
    "v1 in a container that sees its own part": (
        "35 31 0:30 /docker/x /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n",
        "4:cpu:/docker/x/y\n",
        {"fs/cgroup/cpu/cpu.cfs_quota_us": "300000", "fs/cgroup/cpu/cpu.cfs_period_us": "100000"},
        3.0,
        50.0,
    ),
    "hybrid: the controller is in v1": (
        "35 31 0:30 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
        "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
        "1:cpu:/a\n0::/z\n",
        {"fs/cgroup/cpu/a/cpu.cfs_quota_us": "50000", "fs/cgroup/cpu/a/cpu.cfs_period_us": "100000"},
        0.5,
        50.0,
    ),
    "outside of the namespace": ("35 31 0:30 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", "0::/../..\n", {}, 5.0, None),
}  # fmt: skip


@pytest.mark.parametrize("kind", TREES)
def test_p12_allowed_cpus_under_every_kind_of_tree(tmp_path: Path, kind: str) -> None:
    mounts, cgroup, files, allowed, throttled = TREES[kind]
    proc = FakeProc(tmp_path)
    proc.names.start()
    proc.write("self/mountinfo", MOUNTINFO + mounts)
    proc.add(42)
    proc.more(42)
    proc.write("42/cgroup", cgroup)
    stats = []
    for name, text in files.items():
        path = proc.sys / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
        stats.append(path.parent / "cpu.stat")
    named(proc, 42, lambda process: process.cgroup, 42)
    for periods in range(0, 600, 100):
        for stat in stats:
            stat.write_text(f"usage_usec 1\nnr_periods {periods}\nnr_throttled {periods // 2}\nthrottled_usec 7\n")
        process = proc.process(42, 42, after_s=5.0, open_=42)
    assert (process.allowed_cpus, process.throttled_percent) == (allowed, throttled)
    proc.names.stop()
