"""The details of real processes: a training run with loaders, threads with names, secrets, what others may not see."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import DEVNULL
from threading import Event, Thread
from typing import Any

import psutil
import pytest

from gputop.collect.live import Live
from gputop.model import Detail, Identity, Missing
from gputop.safe.identity import identity
from gputop.safe.text import MASK
from gputop.source import DetailWish
from tests.process_watch import ROOT, isolated, python, root_only, running

pytestmark = pytest.mark.jobs
SCRIPT = ROOT / "tests/workloads/train.py"
WORKERS = 2


@pytest.fixture
def live() -> Iterator[Live]:
    """A live source whose frames nobody looks at."""
    source, stop = Live(nvml=False), Event()

    def run() -> None:
        for _ in source.frames(stop):
            pass

    thread = Thread(target=run, daemon=True)
    thread.start()
    yield source
    stop.set()
    thread.join(10)


def until(live: Live, who: Identity, ready: Callable[[Detail], Any], wish: DetailWish | None = None) -> Any:
    """Ask again and again until `ready` gives something that is true; that is returned."""
    deadline = time.monotonic() + 30
    while True:
        detail = live.inspect(who, wish) if wish else live.inspect(who)
        if isinstance(detail, Detail) and (found := ready(detail)):
            return found
        assert time.monotonic() < deadline, detail
        time.sleep(0.05)


def of(pid: int) -> Identity:
    found = identity(pid)
    assert found is not None
    return Identity(*found)


def test_a_training_run_shows_its_threads_its_loaders_and_the_files_they_read(live: Live, tmp_path: Path) -> None:
    environment = {**os.environ, "HF_TOKEN": "hunter2", "RANK": "3"}
    options = f"--seconds 60 --num-workers {WORKERS} --read-mb 4".split()
    command = (sys.executable, str(SCRIPT), *options, "--data", str(tmp_path))
    with running(*command, cwd=tmp_path, env=environment, stderr=DEVNULL) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        psutil.Process(child.pid).ionice(psutil.IOPRIO_CLASS_BE, 6)
        who, seen = of(child.pid), dict[Identity, str]()

        def reading(detail: Detail) -> bool:
            """Files are open for a moment only: the looks are many."""
            for one in detail.children or ():
                if one.name == "pt_data_worker" and one.file is not None:
                    seen[one.identity] = one.file.path
            return len(seen) == WORKERS and bool(detail.threads) and bool(detail.overview) and bool(detail.environment)

        until(live, who, reading)
        assert all(Path(path).is_relative_to(tmp_path) and "/shard-" in path for path in seen.values()), seen
        real = psutil.Process(child.pid)
        assert {one.pid for one in seen} <= {one.pid for one in real.children()}
        detail = until(live, who, lambda detail: (detail.threads or ())[0].cpu_percent is not None and detail)
        assert {thread.tid for thread in detail.threads} == {thread.id for thread in real.threads()}
        real_names = {(task / "comm").read_text().strip() for task in Path(f"/proc/{child.pid}/task").iterdir()}
        assert {thread.name for thread in detail.threads} == real_names
        assert detail.overview.folder == str(tmp_path)
        assert detail.overview.exe == os.path.realpath(sys.executable)
        assert detail.overview.io_priority == "best effort 6 of 0-7"
        assert detail.overview.parents[0].identity == of(os.getpid())
        values = {one.name: one.value for one in detail.environment}
        assert (values["RANK"], values["HF_TOKEN"]) == ("3", MASK)
        assert detail.memory.uss_bytes > 1 << 20
        limits = {limit.name: limit for limit in detail.limits}
        assert limits["open files"].soft == real.rlimit(psutil.RLIMIT_NOFILE)[0]


THREADS = """
import ctypes, threading, time
libc = ctypes.CDLL(None)
def named(name, work):
    def run():
        libc.prctl(15, name, 0, 0, 0)
        work()
    threading.Thread(target=run, daemon=True).start()
def burn():
    while True:
        pass
named(b"pt_data_pin", lambda: time.sleep(600))
named(b"pt_nccl_watchdg", burn)
time.sleep(0.2)
print("ready", flush=True)
time.sleep(600)
"""


def test_threads_with_names_what_they_use_and_where_they_sleep(live: Live) -> None:
    with python(THREADS) as child:

        def measured(detail: Detail) -> Detail | None:
            threads = detail.threads or ()
            return detail if len(threads) == 3 and all(one.cpu_percent is not None for one in threads) else None

        detail: Detail = until(live, of(child.pid), measured, DetailWish(parts=("threads",)))
        threads = {thread.name: thread for thread in detail.threads or ()}
        pin, busy = threads["pt_data_pin"], threads["pt_nccl_watchdg"]
        assert (pin.cpu_percent or 0.0) < 5 < (busy.cpu_percent or 0.0) <= 100
        assert pin.state == "S"
        assert "nanosleep" in (pin.blocked_on or "") or any(one.metric == "system_call" for one in detail.missing)
        assert busy.state == "R"


def test_a_process_that_ends_while_it_is_open(live: Live) -> None:
    with python("print('ready', flush=True)\nimport time\ntime.sleep(600)") as child:
        who = of(child.pid)
        until(live, who, lambda detail: detail.threads)
        child.kill()
        child.wait()
        deadline = time.monotonic() + 10
        while live.inspect(who) != Missing(metric="details", reason="lost"):
            assert time.monotonic() < deadline
            time.sleep(0.05)


@root_only
def test_p09_what_others_may_not_see_is_denied_with_what_unlocks_it() -> None:
    code = """
from gputop.collect.details.inspector import Inspector
from gputop.model import Identity
from gputop.safe.identity import identity
victim = subprocess.Popen(["sleep", "60"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
who = Identity(*identity(victim.pid))
deadline = time.monotonic() + 30  # what runs is in no system call
while open(f"/proc/{victim.pid}/stat").read().rpartition(")")[2].split()[0] != "S":
    assert time.monotonic() < deadline
    time.sleep(0.01)
inspector = Inspector(lambda: [])
inspector.inspect(Identity(*identity(os.getpid())))  # loads what others may not: this folder may be root's alone
assert inspector.settled(time.monotonic() + 20)
os.setgroups([]); os.setgid(12345); os.setuid(12345)
inspector = Inspector(lambda: [])
inspector.inspect(who)
assert inspector.settled(time.monotonic() + 20)
detail = inspector.inspect(who)
missing = {one.metric: (one.reason, one.unlock) for one in detail.missing}
denied = ("files", "io", "environment", "exe", "folder", "own_namespaces", "pss_bytes", "nodes", "system_call")
for name in denied:
    assert missing.get(name) == ("denied", "sudo gputop"), (name, missing)
assert detail.files is detail.io is detail.environment is None
assert detail.limits and detail.threads[0].name == "sleep" and detail.threads[0].waiting_in is None
assert detail.memory.anonymous_bytes and detail.memory.pss_bytes is None
assert detail.overview.exe is None and detail.overview.policy == "other"
"""
    isolated(code)


@root_only
def test_root_without_the_capability_is_not_told_to_use_sudo() -> None:
    code = """
from gputop.collect.details.inspector import Inspector
from gputop.collect.proc.gpu_processes import denied_io
from gputop.model import Identity
from gputop.safe.ptrace_access import CAPABILITY
from gputop.safe.identity import identity, in_container
victim = subprocess.Popen(["setpriv", "--reuid", "12345", "--regid", "12345", "--clear-groups", "sleep", "60"])
deadline = time.monotonic() + 30
while os.stat(f"/proc/{victim.pid}").st_uid != 12345:
    assert time.monotonic() < deadline
    time.sleep(0.01)
who, inspector = Identity(*identity(victim.pid)), Inspector(lambda: [])
inspector.inspect(who)
assert inspector.settled(time.monotonic() + 20)
missing = {one.metric: one.unlock for one in inspector.inspect(who).missing if one.reason == "denied"}
unlock = CAPABILITY if in_container() else None
victim.kill()
for name in ("io", "exe", "folder", "system_call"):  # what may be opened is refused when it is read, too
    assert missing.get(name, "readable") == unlock, (name, missing)
assert "sudo" not in " ".join(denied_io(1).help)
"""
    isolated(code, "setpriv", "--bounding-set", "-sys_ptrace,-sys_admin", "--inh-caps", "-all")
