"""Actions on real processes: runs and their ends, niceness of all threads, kernels without pidfds, few descriptors."""

from __future__ import annotations

import os
import subprocess
import threading

import pytest

from gputop.actions import ActionResult, ActionRun, Handles, Rights, Scope
from gputop.actions.renice import RENICE, Niceness, set_thread
from gputop.actions.signals import BY_NAME, SIGNAL, SignalOrder
from gputop.actions.target import TargetProcess, open_target
from gputop.safe import pidfd
from tests.process_watch import descriptors, isolated
from tests.real_processes import born_as, finished, hold, job, kill, moment, program, row, unharmed, until
from tests.seccomp import SECCOMP, filtered

THREADS = """
import threading
for _ in range(3): threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
print(flush=True)
signal.pause()
"""
STUBBORN = "signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True)\nwhile True: time.sleep(60)"


def nice_of_threads(pid: int) -> list[int]:
    return [os.getpriority(os.PRIO_PROCESS, int(name)) for name in os.listdir(f"/proc/{pid}/task")]


def test_niceness_of_all_threads_of_all_loaders() -> None:
    with program(THREADS) as (pid, _):
        target = hold(row(pid))
        result = finished(RENICE, target, Niceness(7))
        assert (result.text, result.good) == (f"{pid} has nice 7", True)
        assert nice_of_threads(pid) == [7] * 4
        assert finished(RENICE, target, Niceness(20)).text == "nothing changed: nice values range from -20 to 19"
        assert nice_of_threads(pid) == [7] * 4
        target.close()
    with job() as frame:
        target = hold(frame.processes[1], frame)
        assert finished(RENICE, target, Niceness(3, Scope.LOADERS)).text == "3 processes have nice 3"
        assert [os.getpriority(os.PRIO_PROCESS, process.pid) for process in frame.processes] == [0, 3, 3, 3, 0, 0, 0]
        target.close()


def test_a05_niceness_and_a_pid_that_is_used_again() -> None:
    victim = subprocess.Popen(["sleep", "60"])
    target = hold(row(victim.pid))
    kill(victim)
    other = born_as(victim.pid)
    try:
        result = finished(RENICE, target, Niceness(9))
        assert (result.text, result.good) == (f"no change to {other.pid}: it exited", False)
        assert os.getpriority(os.PRIO_PROCESS, other.pid) == 0
    finally:
        target.close()
        kill(other)


def test_a05_a_thread_whose_number_is_of_another_gets_its_niceness_back() -> None:
    if os.geteuid() != 0:
        pytest.skip("not covered: needs root to lower niceness")
    with program(THREADS) as (pid, _), program(THREADS) as (other, _):
        target = open_target(row(pid), Rights())
        assert isinstance(target, TargetProcess)
        assert set_thread(target, pid, 4)
        assert not set_thread(target, pid, 4)
        set_thread(target, other, 9)
        assert (os.getpriority(os.PRIO_PROCESS, pid), os.getpriority(os.PRIO_PROCESS, other)) == (4, 0)
        target.close()


@pytest.mark.parametrize(
    ("error", "calls"), [("ENOSYS", (434,)), ("EPERM", (434,)), ("EPERM", (424, 434)), ("EPERM", (424,))]
)
def test_a04_no_pidfds_only_if_a_person_insists(error: str, calls: tuple[int, ...]) -> None:
    code = f"""
import errno
from tests.real_processes import *
from gputop.actions import Rights
from gputop.actions.signals import SIGNAL
{SECCOMP}
victim = subprocess.Popen(["sleep", "60"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
without(errno.{error}, *{calls})
assert SIGNAL.why_not(row(victim.pid), Rights()) is None
held = hold(row(victim.pid))
(caution,) = held.cautions(Scope.PROCESS)
assert "no pidfd (" in caution, caution
result = send(held, "TERM")
assert result.text == f"nothing sent to {{caution}}", result
assert unharmed(victim.pid)
result = send(held, "TERM", insists=True)
assert result.text.startswith(f"{{victim.pid}} exited after "), result
assert any("no pidfd (" in line for line in result.lines), result
victim.wait()
assert send(held, "TERM", insists=True).text == f"nothing sent to {{victim.pid}}: it exited"
"""
    filtered(code)


def test_signals_go_through_the_handle_and_no_other_way() -> None:
    kill_call = {"x86_64": 62, "aarch64": 129}.get(os.uname().machine)
    if kill_call is None:
        pytest.skip("not covered: the number of kill(2) is not known here")
    code = f"""
import errno
from tests.real_processes import *
{SECCOMP}
victim = subprocess.Popen(["sleep", "60"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
without(errno.EPERM, {kill_call})
held = hold(row(victim.pid))
assert held.cautions(Scope.PROCESS) == ()
assert send(held, "TERM").text.startswith(f"{{victim.pid}} exited after ")
try: os.kill(victim.pid, 0)
except PermissionError: pass
else: sys.exit("kill was not denied")
victim.wait()
"""
    filtered(code)


def test_more_than_may_be_open() -> None:
    code = """
import resource
from tests.real_processes import *
with job() as frame:
    resource.setrlimit(resource.RLIMIT_NOFILE, (260, 260))
    held = hold(frame.processes[1], frame)
    why_not = "7 processes exceed the file descriptor limit (ulimit -n)"
    assert [reach.why_not for reach in held.reaches] == [None, why_not]
    why = "nothing sent: 7 processes exceed the file descriptor limit (ulimit -n)"
    assert send(held, "STOP", scope=Scope.JOB).text == why
    assert all(unharmed(process.pid) for process in frame.processes)
    held.close()
"""
    isolated(code)


def test_a_run_tells_can_be_given_up_and_keeps_what_it_needs() -> None:
    before = len(os.listdir("/proc/self/fd"))
    with program(STUBBORN) as (pid, _):
        target = hold(row(pid))
        lines, done = [], threading.Event()

        def tell(run: ActionRun) -> None:
            lines.append(run.line)
            if run.result is not None:
                done.set()

        run = SIGNAL.run(target, SignalOrder(BY_NAME["TERM"], watch_s=60), tell)
        until(lambda: lines)
        assert lines[0] == f"TERM sent · {pid} · 0 s"
        target.close()  # the dialog is gone, the run goes on
        assert not done.wait(0.5)
        run.cancel()
        assert done.wait(5)
        assert run.result is not None
        assert run.result.text == f"TERM sent to {pid}; stopped watching before the end"
        assert unharmed(pid)
    # the pipe of the program is closed too
    until(lambda: len(os.listdir("/proc/self/fd")) <= before)


def test_a_run_that_fails_still_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    def work(run: ActionRun) -> ActionResult:
        raise ValueError("\x1b[31m")

    reported, told = threading.Event(), []
    monkeypatch.setattr(threading, "excepthook", lambda args: reported.set())  # where a crash report is written
    run = ActionRun("Signal", work, lambda run: told.append(run.result)).start()
    assert reported.wait(10)
    assert told == [run.result] == [ActionResult(text="Signal: internal error (ValueError)", good=False)]


def pidfds() -> set[int]:
    """Descriptors of processes that this process holds."""
    return {descriptor for descriptor, opened in descriptors().items() if "pidfd" in opened}


def test_handles_are_closed_and_never_inherited() -> None:
    before = pidfds()
    with job() as frame:
        held = Handles(frame, frame.processes[1], Rights())
        ours = pidfds() - before
        assert len(ours) == len(frame.processes)
        assert not any(os.get_inheritable(descriptor) for descriptor in ours)
        held.close()
        assert not ours & pidfds()
    assert moment().processes == ()


def test_a_handle_says_when_its_process_ends() -> None:
    child = subprocess.Popen(["sleep", "60"])
    fd = pidfd.open_pidfd(child.pid)
    try:
        assert pidfd.ended([fd], 0.05) == set()
        pidfd.send(fd, 9)
        assert pidfd.ended([fd], 10) == {fd}
        child.wait()
        with pytest.raises(ProcessLookupError):
            pidfd.send(fd, 0)
        with pytest.raises(ProcessLookupError):
            pidfd.open_pidfd(child.pid)
    finally:
        os.close(fd)
