"""Real processes: trees with threads, hostile names, zombies, births and ends, agreement with psutil."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from gputop.collect.proc.gpu_processes import ProcessTable
from gputop.model import Process
from gputop.safe.text import decode
from tests import hostile
from tests.process_watch import Watch, built, isolated, one, python, running, watch

__all__ = ["watch"]

TREE = """
import os, signal, threading, time
def child(threads):
    if os.fork() == 0:
        for _ in range(threads):
            threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
        signal.pause()
for threads in (0, 1, 2):
    child(threads)
print("ready", flush=True)
signal.pause()
"""
NAMED = """
import ctypes, sys, signal, binascii
ctypes.CDLL(None).prctl(15, binascii.unhexlify(sys.argv[1]) + b"\\0")
print("ready", flush=True)
signal.pause()
"""
ZOMBIES = """
import ctypes, os, signal, threading, time
if os.fork() == 0:
    os._exit(0)
if os.fork() == 0:
    def burn():
        while True: pass
    threading.Thread(target=burn, daemon=True).start()
    ctypes.CDLL(None).pthread_exit(None)
stopped = os.fork()
if stopped == 0:
    signal.pause()
os.kill(stopped, signal.SIGSTOP)
time.sleep(0.3)
print("ready", flush=True)
signal.pause()
"""
BURN = """
import os, tempfile, time
file = tempfile.TemporaryFile()
data = os.urandom(1 << 16)
print("ready", flush=True)
while True:
    end = time.process_time() + 0.01
    while time.process_time() < end: pass
    os.pwrite(file.fileno(), data, 0)
    os.pread(file.fileno(), 1 << 16, 0)
    time.sleep(0.02)
"""


def kin(table: ProcessTable, pid: int) -> list[Process]:
    return sorted((process for process in table.processes if process.parent_pid == pid), key=lambda p: p.pid)


def test_a_forked_tree_with_threads(watch: Watch) -> None:
    with python(TREE) as root:

        def ready(table: ProcessTable) -> list[Process]:
            children = kin(table, root.pid)
            known = len(children) == 3 and all(child.allowed_cpus and child.command for child in children)
            return children if known and [child.threads for child in children] == [1, 2, 3] else []

        children = watch.until(ready, root.pid)
        for child in children:
            real = psutil.Process(child.pid)
            assert child.user == real.username()
            assert list(child.command) == [decode(os.fsencode(word)) for word in real.cmdline()]
            assert child.affinity is not None
            assert child.allowed_cpus is not None
            assert child.allowed_cpus <= len(real.cpu_affinity())
            assert child.rss_bytes == pytest.approx(real.memory_info().rss, rel=0.3)
            assert child.nice == real.nice()
            assert child.age_s == pytest.approx(time.time() - real.create_time(), abs=2.0)


@pytest.mark.parametrize("comm", hostile.COMMS, ids=repr)
def test_p01_a_hostile_name(watch: Watch, comm: bytes) -> None:
    with python(NAMED, comm.hex()) as child:
        process = one(watch.look(), child.pid)
        assert process is not None
        assert (process.name, process.parent_pid) == (decode(comm), os.getpid())


def test_p02_p03_hostile_arguments(watch: Watch) -> None:
    sleep = shutil.which("sleep")
    for first in hostile.COMMS[:8]:
        with running(b"sleep" + first, b"60", program=sleep) as child:
            process = watch.until(lambda table, pid=child.pid: (p := one(table, pid)) and p.command and p, child.pid)
            assert process.command == (decode(b"sleep" + first), "60")
    with running(b"", b"60", program=sleep) as child:
        process = watch.until(lambda table: (p := one(table, child.pid)) and p.command and p, child.pid)
        assert process.command == ("", "60")
    with python("print('ready', flush=True)\nimport signal; signal.pause()", "x" * (120 * 1024)) as child:
        process = watch.until(lambda table: (p := one(table, child.pid)) and p.command and p, child.pid)
        assert len(process.command[-1]) == 4096
        assert process.command[-1].endswith("…")


def test_p04_zombies_and_a_stopped_process(watch: Watch) -> None:
    with python(ZOMBIES) as root:

        def ready(table: ProcessTable) -> list[Process]:
            children = kin(table, root.pid)
            return children if len(children) == 3 and (children[1].cpu_percent or 0) > 1 else []

        zombie, leader, stopped = watch.until(ready, root.pid)
        assert (zombie.state, zombie.command, zombie.name) == ("Z", (), "python")
        assert (leader.state, leader.threads) == ("Z", 2)
        assert stopped.state == "T"


def test_cpu_and_io_agree_with_psutil(watch: Watch) -> None:
    with python(BURN) as child:
        real = psutil.Process(child.pid)
        cpu_s = read = wrote = 0.0
        watch.look(child.pid)
        before, before_io, last = real.cpu_times(), real.io_counters(), time.monotonic()
        for _ in range(6):
            time.sleep(0.4)
            process, now = one(watch.look(child.pid), child.pid), time.monotonic()
            assert process is not None
            cpu_s += process.cpu_percent / 100 * (now - last)
            read += process.read_chars_per_s * (now - last)
            wrote += process.write_chars_per_s * (now - last)
            last = now
        after, after_io = real.cpu_times(), real.io_counters()
        assert cpu_s == pytest.approx(after.user + after.system - before.user - before.system, abs=0.1, rel=0.1)
        assert read == pytest.approx(after_io.read_chars - before_io.read_chars, rel=0.15)
        assert wrote == pytest.approx(after_io.write_chars - before_io.write_chars, rel=0.15)
        assert process.mean_read_bytes == pytest.approx(1 << 16, rel=0.1)


def test_p05_two_thousand_births_a_second(watch: Watch, tmp_path: Path) -> None:
    program = built("workloads/births.c", tmp_path)
    with running(program, "2000", "4") as births:
        brief = 0
        while births.poll() is None:
            table = watch.look(births.pid)
            assert {process.pid for process in table.processes} >= {
                births.pid,
                os.getpid(),
            } or births.poll() is not None
            brief += sum(process.name.startswith("brief") for process in table.processes)
            time.sleep(0.06)
        assert births.stdout is not None
        born = int(births.stdout.read())
    assert brief > 0
    assert born > 1000
    time.sleep(0.06)
    assert not [process for process in watch.look().processes if process.name.startswith("brief")]


def test_p14_a_wall_clock_that_jumps(tmp_path: Path) -> None:
    source = tmp_path / "jump.c"
    source.write_text(
        "#define _GNU_SOURCE\n#include <time.h>\n#include <sys/syscall.h>\n#include <unistd.h>\n"
        "int clock_gettime(clockid_t id, struct timespec *t) {\n"
        "    static long sign = 1;\n    int rc = syscall(SYS_clock_gettime, id, t);\n"
        "    if (id == CLOCK_REALTIME) t->tv_sec = (sign = -sign) > 0 ? t->tv_sec + 3600 : 0;\n"
        "    return rc;\n}\n"
    )
    shim = tmp_path / "jump.so"
    if shutil.which("cc") is None:
        pytest.skip("not covered: needs a C compiler")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(shim), str(source)], check=True)
    code = """
assert abs(time.time() - time.time()) > 1e9, "the shim is not in"
watch = Watch()
with python("print('ready', flush=True)\\nwhile True: pass") as child:
    watch.look(child.pid)
    shares = []
    for _ in range(4):
        time.sleep(0.3)
        process = one(watch.look(child.pid), child.pid)
        shares.append(process.cpu_percent)
        assert process.age_s < 60, process.age_s
    assert min(shares) >= 0 and 0 < max(shares) < 150, shares
"""
    isolated(code, env={**os.environ, "LD_PRELOAD": str(shim)})


def test_p21_with_few_files_it_goes_on_and_says_so() -> None:
    code = """
import resource
watch = Watch()
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
before = watch.look(os.getpid())
held = []
def exhausted(table):
    try:
        while True: held.append(os.open("/dev/null", os.O_RDONLY))
    except OSError: pass
    return table.notes and table
table = watch.until(exhausted, os.getpid())
for file in held: os.close(file)
assert one(table, os.getpid()).identity == one(before, os.getpid()).identity
assert [note.key for note in table.notes] == ["processes-lost"], table.notes
assert "Too many open files" in table.notes[0].text
table = watch.until(lambda table: not table.notes and table, os.getpid())
assert table.taken_s > before.taken_s
"""
    isolated(code)
