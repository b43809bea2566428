"""Signals to real processes: who ends, who is spared, and what a person reads of it."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from gputop.actions import Rights, Scope
from gputop.actions.signals import BY_NAME, CHOICES, SIGNAL, warnings
from gputop.actions.target import TargetProcess, open_target
from gputop.model import Role
from tests.process_watch import Watch, built, one, running, watch
from tests.real_processes import born_as, hold, job, kill, moment, program, row, send, state, unharmed, until

__all__ = ["watch"]

WAITS = "print(flush=True); signal.pause()"
STUBBORN = "signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True)\nwhile True: time.sleep(60)"
HANDLES = "signal.signal(signal.SIGUSR1, lambda *_: None); print(flush=True)\nwhile True: time.sleep(60)"


def test_what_ends_is_told_with_its_time() -> None:
    with program(WAITS) as (pid, _):
        target = hold(row(pid))
        result = send(target, "TERM")
        assert result.text.startswith(f"{pid} exited after 0."), result
        assert (result.good, result.lines, result.still) == (True, (), ())
        assert [outcome.kind for outcome in result.outcomes] == ["done"]
        target.close()


def test_what_stays_is_told_and_kill_needs_a_second_yes() -> None:
    with program(STUBBORN) as (pid, _):
        target = hold(row(pid))
        assert warnings(target, Scope.PROCESS, BY_NAME["TERM"]) == (f"{pid} ignores TERM",)
        result = send(target, "TERM", watch_s=0.3)
        assert (result.text, result.good, result.still) == (f"{pid} is still running after 0 s", False, (pid,))
        assert result.lines == (f"{pid} ignores TERM",)
        assert send(target, "KILL").text == "nothing sent: KILL needs a second confirmation"
        assert unharmed(pid)
        assert send(target, "KILL", confirmed=True).text.startswith(f"{pid} exited after ")
        target.close()
    assert [choice.name for choice in CHOICES if choice.confirm] == ["KILL"]


def test_frozen_and_thawed() -> None:
    with program(WAITS) as (pid, _):
        target = hold(row(pid))
        assert send(target, "STOP").text == f"{pid} is suspended"
        assert state(pid) == "T"
        assert warnings(target, Scope.PROCESS, BY_NAME["TERM"]) == (
            f"{pid} is suspended: TERM arrives when it is resumed (CONT)",
        )
        result = send(target, "TERM", watch_s=0.3)
        assert result.still == (pid,)
        assert result.lines == (f"{pid} is suspended: TERM arrives when it is resumed (CONT)",)
        send(target, "CONT")
        until(lambda: state(pid) in (None, "Z"))
        assert send(target, "CONT").text == f"nothing sent to {pid}: it exited"
        target.close()


def test_usr1_is_a_message_to_those_who_handle_it() -> None:
    with program(HANDLES) as (pid, _):
        target = hold(row(pid))
        assert warnings(target, Scope.PROCESS, BY_NAME["USR1"]) == ()
        result = send(target, "USR1", watch_s=0.3)
        assert (result.text, result.good) == (f"USR1 sent to {pid}", True)
        assert unharmed(pid)
        target.close()
    with program(WAITS) as (pid, _):
        target = hold(row(pid))
        assert warnings(target, Scope.PROCESS, BY_NAME["USR1"]) == (
            f"{pid} does not handle USR1 and will be killed by it",
        )
        assert send(target, "USR1").text.startswith(f"USR1 sent: {pid} exited within 0.")
        target.close()


def test_what_waits_in_the_kernel_is_said_to(tmp_path: Path) -> None:
    with running(built("workloads/blocked.c", tmp_path)) as child:
        until(lambda: state(child.pid) == "D")
        target = hold(row(child.pid))
        why = f"{child.pid} is blocked in the kernel (state D)"
        assert warnings(target, Scope.PROCESS, BY_NAME["TERM"]) == (f"{why}: it exits only after that",)
        result = send(target, "TERM", watch_s=0.3)
        assert result.still == (child.pid,)
        assert result.lines[0].startswith(f"{why}, often on storage or the driver")
        target.close()


def test_a01_it_ends_and_its_pid_is_used_again_before_the_yes() -> None:
    victim = subprocess.Popen(["sleep", "60"])
    seen = row(victim.pid)
    target = hold(seen)
    victim.kill()
    victim.wait()
    other = born_as(victim.pid)
    try:
        result = send(target, "KILL", confirmed=True)
        assert (result.text, result.good) == (f"nothing sent to {other.pid}: it exited", False)
        assert [outcome.kind for outcome in result.outcomes] == ["gone"]
        assert unharmed(other.pid)
    finally:
        target.close()
        kill(other)


def test_a01_the_handle_alone_tells_them_apart() -> None:
    victim = subprocess.Popen(["sleep", "60"])
    target = open_target(row(victim.pid), Rights())
    assert isinstance(target, TargetProcess)
    victim.kill()
    victim.wait()
    other = born_as(victim.pid)
    try:
        target.process = row(other.pid)  # as if it had begun in the same tick of the clock
        with pytest.raises(ProcessLookupError):
            target.signal(signal.SIGKILL)
        assert unharmed(other.pid)
    finally:
        target.close()
        kill(other)


def test_a01_the_row_is_older_than_the_dialog() -> None:
    victim = subprocess.Popen(["sleep", "60"])
    seen = row(victim.pid)
    victim.kill()
    victim.wait()
    assert SIGNAL.why_not(seen, Rights()) == "it exited"
    time.sleep(2 / os.sysconf("SC_CLK_TCK"))
    other = born_as(victim.pid)
    try:
        target = hold(seen)
        assert target.refusal == "it exited; another process has its PID now"
        assert send(target, "TERM").text == f"nothing sent to {other.pid}: {target.refusal}"
        assert unharmed(other.pid)
        target.close()
    finally:
        kill(other)


def test_a02_the_list_changes_under_the_dialog(tmp_path: Path, watch: Watch) -> None:
    births = subprocess.Popen([built("workloads/births.c", tmp_path), "2000", "1"], stdout=subprocess.PIPE)
    with program(WAITS) as (pid, _), program(WAITS) as (other, _):
        before = watch.until(lambda table: one(table, pid) and table)
        process = one(before, pid)
        assert process is not None
        target = hold(process, moment(*before.processes))
        after = watch.until(lambda table: len({p.pid for p in table.processes} ^ {p.pid for p in before.processes}) > 5)
        assert after
        assert target.process.pid == pid
        assert send(target, "TERM").text.startswith(f"{pid} exited after ")
        assert unharmed(other)
        target.close()
    out, _ = births.communicate(timeout=30)
    assert births.returncode == 0
    assert int(out) > 100


def test_a_whole_job_its_loaders_and_their_titles() -> None:
    with job() as frame:
        first = next(process for process in frame.processes if process.role is Role.TRAINER)
        target = hold(first, frame)
        assert [reach.title for reach in target.reaches] == [
            "its 2 workers", "the whole job: 2 ranks, 4 workers, torchrun",
        ]  # fmt: skip
        assert [len(target.processes(scope)) for scope in Scope] == [1, 3, 7, 0]
        assert send(target, "STOP", scope=Scope.LOADERS).text == "3 processes are suspended"
        frozen = {process.pid for process in frame.processes if state(process.pid) == "T"}
        assert frozen == {process.pid for process in target.processes(Scope.LOADERS)}
        result = send(target, "CONT", scope=Scope.LOADERS)
        assert result.text == "3 processes are running again"
        assert [outcome.pid for outcome in result.outcomes][-1] == first.pid  # a trainer wakes after its loaders
        assert warnings(target, Scope.JOB, BY_NAME["USR1"]) == (
            "each of 7 processes does not handle USR1 and will be killed by it",
        )
        result = send(target, "KILL", scope=Scope.JOB, confirmed=True)
        assert result.text.startswith("7 processes exited after ")
        assert [outcome.pid for outcome in result.outcomes] == [process.pid for process in frame.processes]
        target.close()
        assert send(target, "TERM").text == f"nothing sent to {first.pid}: it exited"


def test_some_of_a_job_have_ended_before() -> None:
    with job() as frame:
        target = hold(frame.processes[0], frame)
        loader = next(process for process in frame.processes if process.role is Role.LOADER)
        os.kill(loader.pid, signal.SIGKILL)
        until(lambda: state(loader.pid) in ("Z", None))
        result = send(target, "KILL", scope=Scope.JOB, confirmed=True)
        assert result.text.startswith("6 processes exited after ")
        assert result.text.endswith("; 1 process skipped")
        assert result.lines == (f"nothing sent to {loader.pid}: it exited",)
        target.close()
