"""Processes that get no signal: of others, of the kernel, of nobody known, pid 1, gputop's own; and why."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from dataclasses import replace

import pytest

from gputop.actions import Rights
from gputop.actions.pyspy import PROFILE, STACK
from gputop.actions.renice import RENICE
from gputop.actions.signals import SIGNAL
from gputop.actions.torch_trace import TRACE
from gputop.model import Unseen
from gputop.safe.identity import read_stat
from tests.process_watch import isolated, root_only
from tests.real_processes import hold, program, row, send, state, unharmed, until

WAITS = "print(flush=True); signal.pause()"


@root_only
def test_a03_another_user() -> None:
    code = """
from tests.real_processes import *
from gputop.actions import Rights
from gputop.actions.signals import SIGNAL
from gputop.actions.renice import RENICE
from gputop.actions.renice import Niceness
victim = subprocess.Popen(["sleep", "15"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
nice = subprocess.Popen(["sleep", "15"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
os.setpriority(os.PRIO_PROCESS, nice.pid, 19)
os.setgroups([]); os.setgid(12345); os.setuid(12345)
seen = row(victim.pid, user="root")
why = "it belongs to root: only root can do that"
assert SIGNAL.why_not(seen, Rights()) == why, SIGNAL.why_not(seen, Rights())
held = hold(seen)
result = send(held, "KILL", confirmed=True)
assert (result.text, result.outcomes[0].kind) == (f"nothing sent to {victim.pid}: {why}", "denied"), result
result = finished(RENICE, held, Niceness(10))
assert result.text == f"no change to {victim.pid}: {why}", result
assert os.getpriority(os.PRIO_PROCESS, nice.pid) == 19
result = finished(RENICE, hold(row(nice.pid, user="root")), Niceness(19))
assert result.text == f"no change to {nice.pid}: {why}", "as if done, since it has nice 19 already: " + result.text
own = subprocess.Popen(["sleep", "60"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
mine = hold(row(own.pid))
assert finished(RENICE, mine, Niceness(5)).text == f"{own.pid} has nice 5"
result = finished(RENICE, mine, Niceness(0))
assert result.text == f"no change to {own.pid}: only root can lower its nice value", result
own.kill()
assert unharmed(victim.pid)
"""
    isolated(code)


@root_only
def test_a03_it_runs_as_another_user_since_the_row_was_drawn() -> None:
    becomes = (
        "signal.signal(signal.SIGUSR1, lambda *_: os.setuid(12345)); print(flush=True)\nwhile True: time.sleep(60)"
    )
    with program(becomes) as (pid, _):
        seen = row(pid)
        os.kill(pid, signal.SIGUSR1)
        until(lambda: row(pid).uid == 12345)
        assert SIGNAL.why_not(seen, Rights()) == "it now runs as another user (uid 12345): check it again"
        assert SIGNAL.why_not(row(pid), Rights()) is None


@pytest.mark.parametrize("pid", [1, 0, -1, -5])
def test_a03_never_pid_one_and_never_a_group(pid: int) -> None:
    seen = replace(row(1), pid=pid)
    why = SIGNAL.why_not(seen, Rights())
    assert why is not None
    assert f"PID {pid} " in why
    target = hold(seen)
    assert [outcome.kind for outcome in send(target, "TERM", insists=True).outcomes] == ["refused"]


def test_a03_a_thread_of_the_kernel() -> None:
    stat = read_stat(2)
    if stat is None or not stat.kernel_thread:
        pytest.skip("not covered: pid 2 is no kernel thread here")
    assert SIGNAL.why_not(row(2), Rights()) == "it is a kernel thread"
    assert send(hold(row(2)), "STOP", insists=True).text == "nothing sent to 2: it is a kernel thread"


def test_a03_gputop_itself_only_if_a_person_insists() -> None:
    code = """
from tests.real_processes import *
got = []
signal.signal(signal.SIGUSR1, lambda *_: got.append(1))
held = hold(row(os.getpid()))
assert held.cautions(Scope.PROCESS) == (f"{os.getpid()}: this is gputop itself",)
assert send(held, "USR1").text == f"nothing sent to {os.getpid()}: this is gputop itself"
assert not got
assert send(held, "USR1", insists=True, watch_s=0.2).text == f"USR1 sent to {os.getpid()}"
until(lambda: got)
parent = hold(row(os.getppid()))
assert send(parent, "STOP").text.endswith("gputop runs inside it and may exit with it")
"""
    isolated(code)


@pytest.mark.parametrize("unseen", ["foreign", "hidden", "exited"])
def test_a03_what_is_not_verified(unseen: Unseen) -> None:
    with program(WAITS) as (pid, _):
        seen = row(pid)
        for doubtful in (replace(seen, verified=False), replace(seen, unseen=unseen)):
            assert SIGNAL.why_not(doubtful, Rights())
            assert not send(hold(doubtful), "TERM", insists=True).good
        assert unharmed(pid)


def test_a03_read_only_or_not_of_this_machine() -> None:
    with program(WAITS) as (pid, _):
        for rights, why in (
            (Rights(readonly=True), "gputop was started with --readonly"),
            (Rights(elsewhere="a demo"), "these processes belong to a demo, not to this machine"),
        ):
            for action in (SIGNAL, RENICE, STACK, PROFILE, TRACE):
                looks = rights.readonly and action is STACK  # it changes nothing
                assert action.why_not(row(pid), rights) == (None if looks else why), action.id
            assert send(hold(row(pid), rights=rights), "KILL", confirmed=True, insists=True).text.endswith(why)
        assert unharmed(pid)


def test_a03_a_zombie_and_a_thread() -> None:
    ended = subprocess.Popen(["true"])
    until(lambda: state(ended.pid) == "Z")
    why = f"it is a zombie: its parent {os.getpid()} has not reaped it"
    assert SIGNAL.why_not(row(ended.pid), Rights()) == why
    ended.wait()
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    try:
        assert SIGNAL.why_not(row(thread.native_id or 0), Rights()) == "it is a thread, not a process"
    finally:
        stop.set()
        thread.join()
