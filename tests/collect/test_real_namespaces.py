"""Real processes behind walls: other users, hidden pids, pid namespaces, pids that are used again."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from gputop.collect.proc.gpu_processes import ProcessTable, with_shares
from gputop.model import GpuShare, Missing, Process
from tests.process_watch import Watch, isolated, need_namespaces, one, root_only, running, watch

__all__ = ["watch"]

COMPUTE = (GpuShare(uuid="GPU-0", vram_bytes=1 << 30),)


@root_only
def test_p07_hidepid_as_another_user() -> None:
    need_namespaces("-m")
    code = """
import tempfile
from gputop.collect.proc.gpu_processes import with_shares
from gputop.model import GpuShare
folder = tempfile.mkdtemp()
os.chmod(folder, 0o755)
if subprocess.run(["mount", "-t", "proc", "-o", "hidepid=2", "proc", folder]).returncode:
    sys.exit("no proc mount")
parent = os.getppid()
os.setgroups([]); os.setgid(12345); os.setuid(12345)
names = MetadataLane(folder); names.start()
reader = ProcessReader(folder, names=names)
for _ in range(3):
    table = reader.read([parent, os.getpid()], Interest())
    time.sleep(1)
assert {process.uid for process in table.processes} == {12345}, table.processes
assert os.getpid() in {process.pid for process in table.processes}
share = {parent: (GpuShare(uuid="GPU-0"),), os.getpid(): (GpuShare(uuid="GPU-0"),)}
table = with_shares(table, share, table.taken_s)
assert one(table, parent).unseen == "hidden" and one(table, os.getpid()).unseen is None
assert [note.key for note in table.notes] == ["hidden-pids"]
"""
    isolated(code, "unshare", "-m")


@root_only
def test_p09_p13_what_others_may_not_read() -> None:
    code = """
sleep = dict(args=["sleep", "20"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
victim = subprocess.Popen(**sleep)
os.setgroups([]); os.setgid(12345); os.setuid(12345)
watch = Watch()
own = subprocess.Popen(**sleep)
def ready(table):
    process = one(table, victim.pid)
    return process and process.user == "root" and process.cpu_percent is not None and process.missing and table
table = watch.until(ready, victim.pid, own.pid, open_=(victim.pid,))
process = one(table, victim.pid)
assert (process.user, process.read_bytes_per_s, process.rank, process.libraries) == ("root", None, None, ())
missing = {missing.metric: (missing.reason, missing.unlock) for missing in process.missing}
for name in ("read_bytes_per_s", "write_calls_per_s", "mean_read_bytes", "libraries", "omp_threads"):
    assert missing[name] == ("denied", "sudo gputop"), (name, missing)
assert process.command == ("sleep", "20") and process.affinity and process.main_thread_percent is not None
note = next(note for note in table.notes if note.key == "denied-io")
assert note.text.startswith("I/O of ") and "owner only" in note.text
assert watch.until(lambda table: one(table, own.pid).read_bytes_per_s == 0.0, own.pid)
assert one(watch.look(own.pid), own.pid).user == "12345"
own.kill()
"""
    isolated(code)


@root_only
def test_p06_a_pid_that_is_used_again_by_another_user() -> None:
    need_namespaces("-p", "-f", "--mount-proc")
    code = """
def born(pid, uid, work):
    with open("/proc/sys/kernel/ns_last_pid", "w") as last: last.write(str(pid - 1))
    child = os.fork()
    if child == 0:
        os.setuid(uid)
        while work: pass
        signal.pause()
    assert child == pid, child
    return child
watch = Watch()
for attempt in range(20):
    pid = 5000 + attempt
    born(pid, 0, True)
    before = watch.until(lambda table: (seen := one(table, pid)) and seen.cpu_percent and seen, pid)
    os.kill(pid, 9); os.waitpid(pid, 0)
    born(pid, 12345, False)
    time.sleep(0.1)
    after = one(watch.look(pid), pid)
    assert before.identity != after.identity
    assert (after.cpu_percent, after.read_bytes_per_s, after.voluntary_switches_per_s) == (None, None, None)
    assert (before.uid, after.uid) == (0, 12345)
    os.kill(pid, 9); os.waitpid(pid, 0)
"""
    try:
        isolated(code, "unshare", "-p", "-f", "--mount-proc")
    except AssertionError as error:
        if "ns_last_pid" in str(error):
            pytest.skip("not covered: the kernel does not let us choose pids (CONFIG_CHECKPOINT_RESTORE)")
        raise


@root_only
def test_n26_n27_a_private_pid_namespace() -> None:
    need_namespaces("-p", "-f", "--mount-proc")
    code = """
from gputop.collect.proc.gpu_processes import with_shares
from gputop.model import GpuShare
sleep = subprocess.Popen(["sleep", "20"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
watch = Watch()
share = (GpuShare(uuid="GPU-0", vram_bytes=1 << 30),)
shares = {1: share, sleep.pid: share, 918273: share}
for _ in range(20):
    table = with_shares(watch.look(*shares), shares, time.monotonic())
    time.sleep(0.06)
foreign = {process.pid: process for process in table.processes if process.unseen == "foreign"}
assert foreign.keys() == shares.keys(), foreign
assert not any(process.name or process.command or process.verified for process in foreign.values())
assert not any(process.gpus for process in table.processes if not process.unseen)
assert [note.key for note in table.notes] == ["foreign-pids"]
assert table.notes[0].text.startswith("3 of 3 GPU processes are outside this container")
sleep.kill()
"""
    isolated(code, "unshare", "-p", "-f", "--mount-proc")


def test_n28_a_process_that_ended_while_the_driver_lists_it(watch: Watch) -> None:
    with running(sys.executable, "-c", "import signal; signal.pause()") as child:
        watch.until(lambda table: one(table, child.pid), child.pid)

    def gone(table: object) -> object:
        joined = with_shares(table, {child.pid: COMPUTE}, time.monotonic())
        process = one(joined, child.pid)
        return process if process is not None and process.unseen else None

    process = watch.until(gone, child.pid)
    assert (process.unseen, process.name, process.gpus) == ("exited", "", COMPUTE)


def test_p09_delay_accounting_that_is_off_is_named(watch: Watch) -> None:
    path = Path("/proc/sys/kernel/task_delayacct")
    if not path.exists() or path.read_text().strip() != "0":
        pytest.skip("not covered: delay accounting is on here, or the kernel has no switch for it")
    process = watch.until(lambda table: one(table, os.getpid()), os.getpid())
    missing = Missing(metric="io_wait_percent", reason="unsupported", unlock="sudo sysctl -w kernel.task_delayacct=1")
    assert process.io_wait_percent is None
    assert missing in process.missing


@root_only
def test_p23_without_proc() -> None:
    need_namespaces("-m")
    code = """
watch = Watch()
before = watch.look()
assert before.count
if subprocess.run(["umount", "-l", "/proc"]).returncode:
    sys.exit("umount")
time.sleep(0.1)
after = watch.look()
assert (after.taken_s, after.processes) == (before.taken_s, before.processes)
fresh = ProcessReader().read((), Interest())
assert fresh.processes == ()
for table in (after, fresh):
    (note,) = table.notes
    assert note.key == "processes-lost" and "/proc" in note.text
"""
    isolated(code, "unshare", "-m")


@root_only
def test_shared_memory_of_a_container_is_its_own(watch: Watch) -> None:
    need_namespaces("-m")
    fill = "mount -t tmpfs -o size=1m none /dev/shm && head -c 65536 /dev/zero > /dev/shm/batch"
    inside = f"{fill} && echo ready && exec sleep 60"
    with running("unshare", "-m", "sh", "-c", inside) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"

        def weighed(table: ProcessTable) -> Process | None:
            process = one(table, child.pid)
            return process if process and process.shm_total_bytes else None

        process = watch.until(weighed, child.pid, open_=(child.pid,))
    assert (process.shm_total_bytes, process.shm_used_bytes) == (1 << 20, 65536)
