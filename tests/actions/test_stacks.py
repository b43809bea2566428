"""Stacks of real processes by the real py-spy: threads named, main first; ranks side by side; the process untouched."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from gputop.actions import Rights, Scope
from gputop.actions.pyspy import STACK, Asked, StackResult
from gputop.actions.pyspy.stacks import Shown, Task, kernel_refusal, with_kernel_states
from gputop.cli.attach import _text
from gputop.model import Process, Role
from gputop.profile.code import Call
from gputop.profile.dump import ThreadStack, lines
from gputop.profile.ranks import ThreadCounters, compare
from gputop.safe import ptrace_access
from tests.hostile import SECRETS, STRINGS
from tests.process_watch import isolated, need_namespaces, open_folder, root_only, running
from tests.real_processes import finished, hold, moment, program, row, state, unharmed, until
from tests.traced_jobs import interpreter

__all__ = ["open_folder"]

# says that it is ready when its main thread sleeps: whoever works would keep it from getting there
WORKS = """
import threading
def load():
    while sys._current_frames()[threading.main_thread().ident].f_code.co_name != "train":
        time.sleep(0.001)
    print(flush=True)
    while True: sum(range(1000))
def wait(): threading.Event().wait()
threading.Thread(target=load, name="feeder", daemon=True).start()
for number in range(3): threading.Thread(target=wait, name=f"idle-{number}", daemon=True).start()
def train():
    time.sleep(60)
train()
"""


def stacks(*processes: Process, asked: Asked | None = None) -> StackResult:
    held = hold(processes[0], moment(*processes, launcher="torchrun") if len(processes) > 1 else None)
    result = finished(STACK, held, asked or Asked())
    assert isinstance(result, StackResult)
    return result


def untouched(pid: int) -> bool:
    """Whether it runs on, and nobody holds it."""
    return ptrace_access.tracer(pid) is None and state(pid) in ("S", "R")


def test_the_command_line_is_printed_without_its_secrets() -> None:
    found = [replace(row(os.getpid()), command=argv) for argv in SECRETS.values()]
    printed = _text(
        StackResult(text="", good=True, processes=tuple(Shown(process=process) for process in found)), plain=False
    )
    assert [secret for secret in SECRETS if secret in "\n".join(printed)] == []
    assert any("--password=***" in each for each in printed)


def test_every_thread_is_named_and_the_main_one_is_first() -> None:
    with program(WORKS) as (pid, _):
        assert STACK.why_not(row(pid), Rights(readonly=True)) is None
        result = stacks(row(pid))
        (shown,) = result.processes
        assert (result.good, result.text) == (True, "stacks of 1 process")
        main, *others = shown.threads
        assert (main.main, main.tid, main.calls[0].name, main.doing) == (True, pid, "train", "waits")
        assert sorted(thread.name for thread in others) == ["feeder", "idle-0", "idle-1", "idle-2"]
        feeder = next(thread for thread in others if thread.name == "feeder")
        assert any(call.name == "load" for call in feeder.calls)
        said = [*lines(shown.threads)]
        assert said[0] == f"  MainThread {pid}: waits"
        assert sum("3 threads in the same place (idle-0, idle-1, idle-2)" in line for line in said) == 1
        assert untouched(pid)


@pytest.mark.parametrize("python", ["python3.10", "python3.12"])
def test_whether_a_thread_runs_is_what_the_kernel_says(python: str) -> None:
    """Up to Python 3.10 py-spy knows no thread by its number, and calls each of them active."""
    found = interpreter(python)
    if found is None:
        pytest.skip(f"not covered: needs {python}")
    with running(found, "-S", "-c", f"import os, sys, time\n{WORKS}") as child:
        assert child.stdout is not None
        child.stdout.readline()
        (shown,) = stacks(row(child.pid)).processes
        main, *others = shown.threads
        assert (main.tid, main.name, main.state, main.doing) == (child.pid, "MainThread", "S", "waits")
        states = {thread.name: (thread.active, thread.state) for thread in others}
        assert states == {"feeder": (True, "R"), **{f"idle-{number}": (False, "S") for number in range(3)}}
        assert {thread.tid for thread in shown.threads} <= set(map(int, os.listdir(f"/proc/{child.pid}/task")))


@contextmanager
def in_a_pid_namespace() -> Iterator[int]:
    """A program with threads in a pid namespace of its own, by the pid that it has for us."""
    flags = ("--pid", "--fork", "--mount-proc")
    need_namespaces(*flags)
    with running("unshare", *flags, sys.executable, "-S", "-c", f"import os, sys, time\n{WORKS}") as child:
        assert child.stdout is not None
        child.stdout.readline()
        yield int(Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text())


def test_threads_of_a_pid_namespace_bear_the_numbers_that_we_see() -> None:
    with in_a_pid_namespace() as pid:
        (shown,) = stacks(row(pid)).processes
        assert (shown.threads[0].tid, shown.threads[0].main, shown.threads[0].doing) == (pid, True, "waits")
        assert [thread.main for thread in shown.threads] == [True, False, False, False, False]
        assert {thread.tid for thread in shown.threads} <= set(map(int, os.listdir(f"/proc/{pid}/task")))


def test_where_py_spy_fails_on_native_frames_python_ones_are_shown() -> None:
    with in_a_pid_namespace() as pid:
        result = stacks(row(pid), asked=Asked(native=True))
        (shown,) = result.processes
        assert shown.barred is None
        assert shown.threads[0].main
        said = f"{pid}: no native frames (py-spy: Failed to get stack traces), only Python frames"
        native = any("::" in call.name or ".so" in call.file for thread in shown.threads for call in thread.calls)
        assert native or said in result.lines


def test_what_the_kernel_does_not_say_of_a_thread_is_unknown() -> None:
    known = ThreadStack(tid=7, name="MainThread", main=True)
    lost = ThreadStack(tid=None, name="worker", handle=1)
    found = with_kernel_states((lost, known), 7, {}, {7: Task(7, "D", "python")})
    assert [(thread.name, thread.doing) for thread in found] == [
        ("MainThread", "waits in the kernel"),
        ("worker", "state unknown"),
    ]


def test_native_frames_pause_it_for_a_moment_only() -> None:
    with program(WORKS) as (pid, _):
        (shown,) = stacks(row(pid), asked=Asked(native=True)).processes
        assert shown.barred is None
        assert any("nanosleep" in call.name for call in shown.threads[0].calls), shown.threads[0].calls
        assert unharmed(pid)
        assert untouched(pid)


def test_the_odd_rank_of_a_job_that_hangs_is_found() -> None:
    # ready only in the line where it hangs: between a print before it and the call it stands elsewhere
    stop = "print(flush=True); signal.pause()"
    hang = f"def all_reduce(): {stop}\ndef read_shard(): {stop}\n"
    together, apart = f"{hang}all_reduce()", f"{hang}read_shard()"
    with program(together) as (first, _), program(apart) as (second, _), program(together) as (third, _):
        ranks = [row(pid, role=Role.TRAINER, rank=rank) for rank, pid in enumerate((first, second, third))]
        result = stacks(*ranks, asked=Asked(Scope.JOB))
        assert result.ranks is not None
        assert [place.label for place in result.ranks.odd] == ["rank 1"]
        assert result.ranks.text == (
            "ranks 0, 2 are in all_reduce (<string>:2); rank 1 is in read_shard (<string>:3). "
            "No rank moved within 1 s: the job probably hangs."
        )


def rank(*calls: Call, runs: bool = False) -> list[ThreadStack]:
    """What is seen of a rank whose main thread is there."""
    return [ThreadStack(tid=1, name="MainThread", main=True, active=runs, calls=calls)]


def call(name: str) -> Call:
    return Call(name=name, file="/a.py")


def test_ranks_that_stand_still_do_not_hang_while_one_of_them_computes() -> None:
    slow, waits = rank(call("mix"), runs=True), rank(call("backward"))
    found = compare(["rank 0", "rank 1"], [waits, slow], [waits, slow])
    assert found.text.endswith(
        "No rank moved within 1 s, but rank 1 computes all the time, and the others may wait for it."
    )
    assert compare(["rank 0", "rank 1"], [waits, rank(call("mix"))], [waits, slow]).text.endswith(
        "the job probably hangs."
    )


def test_ranks_that_wake_in_one_line_are_not_said_to_hang() -> None:
    """A step that mostly sleeps in one line is caught there at each look."""

    sleeps = [rank(call("sleep")), rank(call("sleep"))]
    polls = [ThreadCounters(0, 0.0), ThreadCounters(4, 0.0001)]
    found = compare(["rank 0", "rank 1"], sleeps, sleeps, ran=polls)
    assert "hang" not in found.text
    assert found.text.endswith("within 1 s, but rank 1 ran 4 times: the job makes progress, or polls.")
    for still in ([ThreadCounters(0, 0.0), ThreadCounters(1, 0.001)], [None, None]):
        assert "probably hangs" in compare(["rank 0", "rank 1"], sleeps, sleeps, ran=still).text


def test_ranks_that_leave_their_waits_to_work_move_wherever_they_are_seen() -> None:
    """Each step ends in the same wait, also in a collective: what the kernel counts tells that steps are made."""
    reduces = rank(Call(name="c10d::Reducer::finalize_backward", file="libtorch_cpu.so"), call("step"))
    look, labels = [reduces, reduces], ["rank 0", "rank 1"]
    found = compare(labels, look, look, ran=[ThreadCounters(12, 0.02), ThreadCounters(6, 0.01)])
    assert [place.moves for place in found.places] == [True, True]
    assert found.text.endswith("All ranks moved within 1 s: the job makes progress.")
    # NCCL polls in a blocking wait a hundred times a second; preempted while it spins, it leaves no wait
    for counts in (ThreadCounters(100, 0.004), ThreadCounters(0, 1.0), ThreadCounters(1, 0.9)):
        assert compare(labels, look, look, ran=[counts, counts]).text.endswith("the job probably hangs.")


def test_a_rank_that_passes_another_is_not_odd() -> None:
    first, second = rank(call("forward")), rank(call("read"))
    labels = ["rank 0", "rank 1", "rank 2"]
    passes = ([first, first, second], [second, first, first], [first, first, second])
    assert compare(labels, *passes, ran=[ThreadCounters(9, 0.1)] * 3).odd == ()
    assert [one.label for one in compare(labels, *passes[::2], passes[0], ran=[ThreadCounters(9, 0.1)] * 3).odd] == [
        "rank 2"
    ]
    assert compare(labels, *passes[::2], ran=[ThreadCounters(9, 0.1)] * 3).odd == (), "twice may be by chance"


def test_a_spin_in_a_wait_for_the_gpu_is_no_work() -> None:
    spins = rank(Call(name="cudaStreamSynchronize", file="libcudart.so.12"), call("step"), runs=True)
    look = [spins, spins]
    assert compare(["a", "b"], look, look, ran=[ThreadCounters(0, 1.0)] * 2).text.endswith("the job probably hangs.")
    unseen = [rank(call("step"), runs=True)] * 2
    assert compare(["a", "b"], unseen, unseen).text.endswith("but a, b compute or spin in a wait all the time.")


def test_of_two_ranks_the_one_is_odd_for_which_the_other_waits_in_its_backward_pass() -> None:
    held, elsewhere = rank(call("_engine_run_backward")), rank(call("read_shard"))
    found = compare(["rank 0", "rank 1"], [held, elsewhere], [held, elsewhere])
    assert [place.label for place in found.odd] == ["rank 1"]
    assert found.text.startswith("rank 0 is in _engine_run_backward (a.py); rank 1 is in read_shard (a.py).")
    assert compare(["rank 0", "rank 1"], [held, held], [held, held]).odd == ()
    assert compare(["rank 0", "rank 1"], [rank(call("forward")), elsewhere], [held, elsewhere]).odd == ()


def test_a_wait_inside_backward_may_be_one_for_other_ranks() -> None:
    """DDP waits for them there, for which Python has no frame: a guess is called one, and named as long as it is."""
    script = Call(name="step", file="/home/alice/train.py", line=41)
    held, fed = rank(call("_engine_run_backward"), script), rank(call("fetch"), script)
    names = ["rank 0", "rank 1"]
    assert compare(names, [held, held], [held, held]).text == (
        "All 2 ranks are in _engine_run_backward (a.py). No rank moved within 1 s: the job probably hangs,"
        " or its backward pass takes longer. All 2 ranks may wait in a collective inside backward: --native shows it."
    )
    assert compare(names, [fed, fed], [held, held]).text.endswith(
        "the job makes progress. All 2 ranks may wait in a collective inside backward: --native shows it."
    )
    assert "rank 0 may wait in a collective inside" in compare(names, [held, fed], [held, fed]).text
    runs = rank(call("_engine_run_backward"), script, runs=True)
    for other in (fed, runs):
        assert "collective" not in compare(names, [other, other], [other, other]).text


def test_native_frames_tell_a_collective_inside_backward_from_a_wait_for_the_gpu() -> None:
    backward, script = call("_engine_run_backward"), Call(name="step", file="/home/alice/train.py", line=41)
    reduces = rank(Call(name="c10d::Reducer::finalize_backward", file="libtorch_cpu.so"), backward, script)
    computes = rank(Call(name="torch::autograd::Engine::execute", file="libtorch_cpu.so"), backward, script)
    places = compare(["rank 0", "rank 1"], [reduces, computes], [reduces, computes]).places
    assert [place.collective is not None for place in places] == [True, False]
    assert [place.odd for place in places] == [False, True]
    assert not any(place.held for place in places)
    assert "may wait" not in compare(["rank 0", "rank 1"], [computes, computes], [computes, computes]).text


def test_one_rank_in_backward_is_not_said_to_be_in_a_phase() -> None:
    with program("def _engine_run_backward(): signal.pause()\nprint(flush=True)\n_engine_run_backward()") as (pid, _):
        alone = stacks(row(pid, role=Role.TRAINER, rank=0))
        assert not any("collective" in line for line in alone.lines), "it has no other ranks"
        several = stacks(row(pid, role=Role.TRAINER, rank=0, world_size=2))
        assert several.lines == (f"{pid} may wait in a collective inside backward: --native shows it",)


def test_who_is_outside_of_the_collective_is_the_odd_one_even_of_two() -> None:
    script = Call(name="step", file="/home/alice/train.py", line=41)
    inside = rank(
        Call(name="wrapper", file="/usr/lib/python3.11/site-packages/torch/distributed/c10d_logger.py", line=81),
        Call(name="all_reduce", file="/usr/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", line=9),
        script,
    )
    outside = rank(Call(name="sleep", file="/home/alice/data.py", line=7), script)
    found = compare(["rank 0", "rank 1"], [inside, outside], [inside, rank(*outside[0].calls[1:])])
    assert [place.label for place in found.odd] == ["rank 1"]
    assert found.text == (
        "rank 0 waits in all_reduce; rank 1 is in step (train.py:41). rank 0 did not move within 1 s, the others did."
    )
    assert not compare(["a", "b"], [inside, inside], [inside, inside]).odd
    assert compare(["a"], [inside], [outside], [inside]).places[0].moves, "it was elsewhere meanwhile"
    assert compare(["a", "b"], [[], []], [[], []]).text == ""


def test_a07_a_stopped_process_shows_its_stacks_and_stays_stopped() -> None:
    with program(WORKS) as (pid, _):
        os.kill(pid, signal.SIGSTOP)
        until(lambda: state(pid) == "T")
        result = stacks(row(pid))
        assert result.processes[0].threads
        assert result.lines == (f"{pid} is suspended: kill -CONT {pid} resumes it",)
        assert state(pid) == "T"


def test_a07_what_is_no_python_or_has_ended_is_said_in_words() -> None:
    forks = "pid = os.fork()\nif pid == 0: os.execvp('sleep', ['sleep', '60'])\nprint(pid, flush=True); signal.pause()"
    with program(forks) as (parent, (sleeper,)):
        until(lambda: row(sleeper).name == "sleep")
        result = stacks(row(sleeper))
        assert result.text == f"process {sleeper} is not a Python program that py-spy can read"
        seen = row(sleeper)
        os.kill(sleeper, signal.SIGKILL)
        until(lambda: state(sleeper) == "Z")
        why = STACK.why_not(seen, Rights())
        assert why == f"it is a zombie: its parent {parent} has not reaped it"


@pytest.mark.parametrize(
    ("scope", "text"),
    [
        ("1", "process {pid} cannot be read (ptrace_scope=1)"),
        ("2", "process {pid} cannot be read (ptrace_scope=2)"),
        ("3", "process {pid} cannot be read by any user until a reboot (ptrace_scope=3)"),
    ],
)
def test_a07_what_yama_forbids_is_said_with_what_unlocks_it(tmp_path: Path, scope: str, text: str) -> None:
    place = tmp_path / "sys/kernel/yama"
    place.mkdir(parents=True)
    (place / "ptrace_scope").write_text(f"{scope}\n")
    uid, pid = 1000, 41207
    process = tmp_path / str(pid)
    process.mkdir()
    (process / "status").write_text(f"Uid:\t{os.geteuid()}\t{os.geteuid()}\t0\t0\n")
    (process / "mem").write_text("")
    barred = ptrace_access.refusal(pid, "sudo gputop stack 41207", uid=0, confined=False, proc=str(tmp_path))
    assert barred.text == text.format(pid=pid)
    assert (barred.unlock is None) == (scope == "3")
    other = ptrace_access.refusal(pid, "sudo gputop stack 41207", uid=uid, confined=False, proc=str(tmp_path))
    if os.geteuid() != uid and scope != "3":
        assert other == (f"process {pid} belongs to another user (uid {os.geteuid()})", "sudo gputop stack 41207")


@root_only
def test_a07_another_users_process_and_one_that_hides(open_folder: str) -> None:
    code = """
from tests.real_processes import *
from gputop.actions import Rights
from gputop.actions.pyspy import STACK
victim = subprocess.Popen(["sleep", "15"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
with program("os.setgid(12345); os.setuid(12345); print(flush=True); signal.pause()") as (pid, _):
    os.setgroups([]); os.setgid(12345); os.setuid(12345)
    why = STACK.why_not(row(victim.pid, user="root"), Rights())
    assert why == f"process {victim.pid} belongs to another user (uid 0): sudo gputop stack {victim.pid}", why
    why = STACK.why_not(row(pid), Rights())
    text = f"process {pid} has made itself unreadable (not dumpable): sudo gputop stack {pid}"
    assert why == text, why
"""
    isolated(code, env={**os.environ, "PATH": f"{open_folder}:{os.environ['PATH']}"})


def test_a07_one_that_a_debugger_holds_is_not_paused_as_well() -> None:
    seize = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
if libc.ptrace(0x4206, int(sys.argv[1]), 0, 0): sys.exit(print(0))
print(1, flush=True); time.sleep(60)
"""
    with program(WORKS) as (pid, _), program(seize, str(pid)) as (debugger, (held,)):
        if not held:
            pytest.skip("not covered: this kernel lets nobody trace")
        barred = kernel_refusal(pid, "stack", pausing=True)
        assert barred is not None
        assert barred.text.startswith(f"process {pid} is traced by python")
        assert f"({debugger})" in barred.text
        assert stacks(row(pid)).processes[0].threads  # without a pause it can be read all the same
    assert ptrace_access.tracer(os.getpid()) is None


def test_a07_a_pid_of_the_host_is_not_taken_for_a_local_one() -> None:
    with program(WORKS) as (pid, _):
        for doubtful in (replace(row(pid), verified=False), replace(row(pid), unseen="foreign")):
            why = STACK.why_not(doubtful, Rights())
            assert why is not None
            assert why.endswith("with no known process here; run gputop on the host")
            assert not finished(STACK, hold(doubtful), Asked()).good


def test_a09_names_made_to_attack_a_terminal_and_very_deep_stacks(tmp_path: Path) -> None:
    names = [name for name in STRINGS if name and "\0" not in name and name.isprintable() is False][:8]
    code = f"""
import threading
sys.setrecursionlimit(10000)
names = {names!r}
for name in names:
    threading.Thread(target=signal.pause, name=name, daemon=True).start()
space = {{}}
exec(compile("def deep(left):\\n    import time\\n    return deep(left - 1) if left else time.sleep(60)",
             "/home/\\x1b]0;x\\x07.py", "exec"), space)
print(flush=True)
space["deep"](700)
"""
    with program(code) as (pid, _):
        until(lambda: state(pid) == "S")
        (shown,) = stacks(row(pid)).processes
        assert shown.barred is None
        main, *others = shown.threads
        assert (len(main.calls), main.cut > 200) == (500, True)
        assert len(others) == len(names)
        said = "\n".join(lines(shown.threads))
        assert "\x1b" not in said
        assert all(ch.isprintable() or ch == "\n" for ch in said)


def test_ranks_that_were_not_seen_twice_are_not_said_to_go_on() -> None:
    """The first look of a rank may fail: then nothing is known of its movement."""
    here, there = rank(call("step")), rank(call("load"))
    found = compare(["rank 0", "rank 1"], [[], []], [here, there])
    assert "makes progress" not in found.text
    assert "is unknown" in found.text
    partly = compare(["rank 0", "rank 1"], [there, []], [here, there])
    assert "makes progress" not in partly.text
