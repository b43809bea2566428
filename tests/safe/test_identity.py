"""Who a process is: names that try to break the parser, namespaces, borrowed rights."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputop.safe.identity import borrowed_rights, identity, initial_pid_namespace, parse_stat, read_stat
from gputop.safe.text import decode
from tests import hostile

ROOT = Path(__file__).parents[2]
KERNEL_6 = (
    "4243 (cat) R 4238 4239 2457 34816 -1 4194304 99 0 7 0 11 12 0 0 20 -5 3 0 73593 3133440 381 18446744073709551615 "
    "94601692438528 94601692458409 140733689145968 0 0 0 0 0 0 0 0 0 17 1 0 0 55 0 0 94601692474416 94601692476032 "
    "94601827942400 140733689150165 140733689150185 140733689150185 140733689151467 0\n"
)


def test_fields_of_a_real_line() -> None:
    stat = parse_stat(KERNEL_6.encode())
    assert stat is not None
    assert stat._asdict() == {
        "comm": "cat",
        "state": "R",
        "parent_pid": 4238,
        "group": 4239,
        "session": 2457,
        "terminal": 34816,
        "kernel_thread": False,
        "major_faults": 7,
        "user_ticks": 11,
        "system_ticks": 12,
        "nice": -5,
        "threads": 3,
        "started_ticks": 73593,
        "rss_pages": 381,
        "cpu": 1,
        "io_wait_ticks": 55,
    }


def test_p04_kernel_thread_is_told_from_its_flags() -> None:
    stat = parse_stat(KERNEL_6.replace("4194304", "2129984").replace("(cat)", "(kworker/0:1)").encode())
    assert stat is not None
    assert stat.kernel_thread


@given(st.binary(max_size=15).filter(lambda raw: b"\x00" not in raw))
def test_p01_any_name_leaves_the_numbers_alone(name: bytes) -> None:
    stat = parse_stat(KERNEL_6.encode().replace(b"(cat)", b"(" + name + b")"))
    assert stat is not None
    assert (stat.comm, stat.state, stat.parent_pid, stat.started_ticks) == (decode(name), "R", 4238, 73593)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_record_or_none(raw: bytes) -> None:
    stat = parse_stat(raw)
    assert stat is None or stat.state.isprintable()


@pytest.mark.parametrize("kept", range(3, 42))
def test_p10_a_shorter_line_has_none_for_what_it_lacks(kept: int) -> None:
    stat = parse_stat(" ".join(KERNEL_6.split()[:kept]).encode())
    assert stat is not None
    assert stat.state == "R"
    assert (stat.parent_pid is None) == (kept < 4)
    assert (stat.started_ticks is None) == (kept < 22)
    assert stat.io_wait_ticks is None


def named_child(name: bytes) -> subprocess.Popen[bytes]:
    """A real process that has given itself this name and then said so."""
    code = (
        "import ctypes,sys,time;ctypes.CDLL(None).prctl(15,bytes.fromhex(sys.argv[1]));print(flush=True);time.sleep(99)"
    )
    child = subprocess.Popen([sys.executable, "-c", code, name.hex()], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    return child


@pytest.mark.parametrize("name", hostile.COMMS, ids=ascii)
def test_p01_real_process_with_a_hostile_name(name: bytes) -> None:
    with named_child(name) as child:
        try:
            stat = read_stat(child.pid)
            assert stat is not None
            assert stat.comm == decode(name[:15])
            assert stat.parent_pid == os.getpid()
            assert stat.state in "RS"
        finally:
            child.kill()


def test_p05_a_vanished_process_is_none() -> None:
    child = subprocess.Popen(["sleep", "99"])
    pid = child.pid
    assert identity(pid) == identity(pid) is not None
    child.kill()
    child.wait()
    assert read_stat(pid) is None
    assert identity(pid) is None


def test_p04_zombie_keeps_its_identity() -> None:
    child = subprocess.Popen(["sleep", "99"])
    before = identity(child.pid)
    os.kill(child.pid, signal.SIGKILL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    stat = read_stat(child.pid)
    assert stat is not None
    assert stat.state == "Z"
    assert identity(child.pid) == before
    child.wait()


def test_p06_reused_pid_is_another_identity() -> None:
    if os.geteuid() != 0 or not os.access("/proc/sys/kernel/ns_last_pid", os.W_OK):
        pytest.skip("not covered: needs root to set ns_last_pid")
    ticks = os.sysconf("SC_CLK_TCK")
    first = subprocess.Popen(["sleep", "99"])
    before = identity(first.pid)
    # within one tick a reused pid has the same identity, which is why signals go through a pidfd
    time.sleep(2 / ticks)
    first.kill()
    first.wait()
    for _ in range(50):
        Path("/proc/sys/kernel/ns_last_pid").write_text(str(first.pid - 1))
        second = subprocess.Popen(["sleep", str(2 / ticks)])
        after = identity(second.pid)
        second.wait()
        if second.pid == first.pid:
            break
    else:
        pytest.fail("the pid was never reused")
    assert before is not None
    assert after is not None
    assert after[0] == before[0]
    assert after[1] > before[1]


@pytest.mark.parametrize(
    ("link", "initial"), [("pid:[4026531836]", True), ("pid:[4026532281]", False), ("", False), (None, False)]
)
def test_n27_only_the_initial_namespace_has_the_drivers_pids(tmp_path: Path, link: str | None, initial: bool) -> None:
    (tmp_path / "self/ns").mkdir(parents=True)
    if link:
        (tmp_path / "self/ns/pid").symlink_to(link)
    assert initial_pid_namespace(str(tmp_path)) is initial


CHECK = "from gputop.safe.identity import *; print(initial_pid_namespace())"


def test_n27_private_namespace_is_told() -> None:
    run = subprocess.run(
        ["unshare", "-pf", "--mount-proc", sys.executable, "-c", CHECK], cwd=ROOT, capture_output=True, text=True
    )
    if run.returncode != 0 and "Operation not permitted" in run.stderr:
        pytest.skip("not covered: needs the right to make a pid namespace")
    assert run.stdout.strip() == "False", run.stderr


def test_a_normal_start_has_no_borrowed_rights() -> None:
    assert borrowed_rights() is None


# after exec as uid 12345 on a setuid-root file; then with the ids made equal, so that only the kernel's flag is left
BORROWED = "import os; {}; from gputop.safe.identity import *; print(borrowed_rights())"


@pytest.mark.parametrize(
    ("ids", "then", "word"),
    [
        ("setresuid", "pass", "setuid"),
        ("setresgid", "pass", "setgid"),
        ("setresuid", "os.setresuid(0, 0, 0)", "capabilities"),
    ],
)
def test_a20_borrowed_rights_refuse(ids: str, then: str, word: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("not covered: needs root to start a setuid child")
    run = subprocess.run(
        [sys.executable, "-c", BORROWED.format(then)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        preexec_fn=lambda: getattr(os, ids)(12345, 0, 0),
    )
    assert word in run.stdout, run.stderr
