"""py-spy that is missing, broken, or ended in the middle; a disk that is full: one line each, the target runs on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from gputop.actions import Rights
from gputop.actions.pyspy import PROFILE, Sampling, runner
from gputop.actions.pyspy.cost import CostMeter, CostReading
from gputop.actions.pyspy.record import ProfileResult, arguments
from gputop.actions.pyspy.runner import Child, find
from gputop.profile import store
from gputop.safe import ptrace_access
from gputop.safe.files import Refused
from gputop.safe.ptrace_access import Barred
from tests.actions.test_stacks import in_a_pid_namespace
from tests.process_watch import ROOT, isolated, need_namespaces, running
from tests.real_processes import finished, hold, program, row, state, until
from tests.traced_jobs import interpreter

TOO_MUCH = "py-spy wrote more than is read of it"
SPINS = "print(flush=True)\ndef train():\n while True: sum(range(1000))\ntrain()"


def spy() -> str:
    found = find()
    assert isinstance(found, str)
    return found


def end_of(tmp_path: Path, script: str | bytes, seconds: float = 10.0, pid: int | None = None) -> str:
    """How a program that stands for py-spy ends, in words; it looks at us or at another process."""
    stub = tmp_path / "py-spy"
    stub.write_bytes(script if isinstance(script, bytes) else f"#!/bin/sh\n{script}\n".encode())
    stub.chmod(0o755)
    started = runner.start(str(stub), pid or os.getpid(), ["dump"], seconds=seconds, to_file=False)
    if isinstance(started, Barred):
        return started.text
    try:
        started.wait()
        trouble = started.trouble()
        return trouble.text if trouble else ""
    finally:
        started.close()


@pytest.mark.parametrize(
    ("script", "text"),
    [
        (b"\x7fELF of another machine", "{stub} does not run here: Exec format error"),
        ("kill -SEGV $$", "py-spy was killed by signal 11 (Segmentation fault)"),
        (
            "exec head -c 40000000 /dev/zero",
            "the output of py-spy is too large: use a shorter --for or a lower --rate",
        ),
        ("echo 'Error: strange \033[2J' >&2; exit 1", "py-spy: strange ␛[2J"),
        ("exit 3", "py-spy: exit code 3"),
        ("exit 0", ""),
    ],
)
def test_a06_a_broken_py_spy_is_one_line(tmp_path: Path, script: str | bytes, text: str) -> None:
    assert end_of(tmp_path, script) == text.format(stub=tmp_path / "py-spy")


def test_a07_who_ends_while_py_spy_begins_is_not_called_a_stranger(tmp_path: Path) -> None:
    says = "echo 'Error: Failed to find python version from target process' >&2; exit 1"
    ended = os.fork()
    if not ended:
        os._exit(0)
    until(lambda: state(ended) == "Z")
    assert end_of(tmp_path, says, pid=ended) == f"process {ended} exited"
    os.waitpid(ended, 0)
    assert end_of(tmp_path, says).endswith("is not a Python program that py-spy can read")


def test_a06_a_py_spy_that_hangs_is_ended_with_all_it_started(tmp_path: Path) -> None:
    text = end_of(tmp_path, f"trap '' INT TERM; sleep 61.5 & echo $! > {tmp_path}/pid; wait; sleep 61.5", seconds=0.3)
    assert text.startswith("py-spy timed out and was killed: ")
    left = int((tmp_path / "pid").read_text())
    until(lambda: state(left) in (None, "Z"))


def test_a06_no_py_spy_at_all_says_how_to_get_it(tmp_path: Path) -> None:
    (tmp_path / "python").symlink_to(sys.executable)
    packages = sysconfig.get_paths()["purelib"]
    done = subprocess.run(
        [str(tmp_path / "python"), "-c", "from gputop.actions.pyspy.runner import find; print(find().line)"],
        env={"PATH": str(tmp_path), "PYTHONPATH": f"{ROOT}:{packages}"}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == f"py-spy is not installed: {tmp_path}/python -m pip install py-spy\n"


def test_a08_gputop_is_killed_in_the_middle_and_the_target_runs_on(tmp_path: Path) -> None:
    code = f"""
import os, sys, time
from tests.real_processes import *
from gputop.actions.pyspy import PROFILE
from gputop.actions.pyspy import Sampling
os.environ["XDG_STATE_HOME"] = {str(tmp_path)!r}
def tell(run):
    if " of 2 s" in run.line: os.kill(os.getpid(), 9)
    assert run.result is None, run.result
PROFILE.run(hold(row(int(sys.argv[1]))), Sampling(seconds=2, native=True), tell)
time.sleep(60)
"""
    with program(SPINS) as (pid, _):
        done = subprocess.run([sys.executable, "-c", code, str(pid)], cwd=ROOT, check=False, timeout=60)
        assert done.returncode == -signal.SIGKILL
        assert PROFILE.why_not(row(pid), Rights()) is None
        until(lambda: ptrace_access.tracer(pid) is None)
        until(lambda: not children_named("py-spy"))
        assert state(pid) == "R"
        assert ptrace_access.tracer(pid) is None


def children_named(name: str) -> list[int]:
    found = []
    for place in Path("/proc").glob("[0-9]*/comm"):
        try:
            if place.read_bytes().strip() == name.encode() and str(os.getpid()) not in place.parts:
                found.append(int(place.parts[2]))
        except OSError:
            continue
    return found


def _killed(tracer: tuple[int, str] | None) -> bool:
    """Whether who holds the target now is killed; a moment later it may have let go and be nobody's group."""
    if tracer is None:
        return False
    try:
        os.killpg(tracer[0], signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def test_a08_py_spy_is_killed_while_it_holds_the_target_again_and_again() -> None:
    with program(SPINS) as (pid, _):
        for _ in range(8):
            options = ["record", "--format", "speedscope", "--rate", "500", "--duration", "20"]
            started = runner.start(spy(), pid, options, seconds=30, to_file=True)
            assert isinstance(started, Child)
            until(lambda: _killed(ptrace_access.tracer(pid)))
            until(lambda started=started: not started.running())
            assert started.trouble() == Barred("py-spy was killed by signal 9 (Killed)")
            started.close()
            assert ptrace_access.tracer(pid) is None
            until(lambda: state(pid) == "R")


def test_a15_a_full_disk_is_said_before_anything_is_recorded_and_leaves_nothing(tmp_path: Path) -> None:
    need_namespaces("-m")
    code = f"""
from tests.real_processes import *
from gputop.actions.pyspy import PROFILE
from gputop.actions.pyspy import Sampling
from gputop.profile import store
from gputop.safe.files import Refused
place = {str(tmp_path)!r}
if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", place]).returncode: sys.exit(print("no mount"))
os.environ["XDG_STATE_HOME"] = place
with program("print(flush=True); time.sleep(60)") as (pid, _):
    result = finished(PROFILE, hold(row(pid)), Sampling(seconds=1))
    assert not result.good
    assert result.text.startswith(f"nothing profiled: {{place}}/gputop/profiles: 1 MB free on its disk: "), result
    try:
        store.keep({{"at_s": 0.0, "pid": 1}}, {{"flame.svg": b"x", "stacks.txt": bytes(2 << 20)}})
        raise SystemExit("kept")
    except Refused as why:
        assert "No space left" in str(why), why
    assert os.listdir(place + "/gputop/profiles") == []
"""
    if "no mount" in isolated(code, "unshare", "-m"):
        pytest.skip("not covered: needs the right to mount a tmpfs")


def test_a16_a_folder_that_is_a_link_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    (tmp_path / "gputop").mkdir(mode=0o700)
    (tmp_path / "gputop/profiles").symlink_to("/etc")
    with pytest.raises(Refused, match="is a link or not a folder"):
        store.check_space()
    with program(SPINS) as (pid, _):
        result = finished(PROFILE, hold(row(pid)), Sampling(seconds=1))
        assert not result.good
        assert "is a link or not a folder" in result.text


def test_who_is_sampled_and_how_is_as_chosen() -> None:
    usual, gil, native = (
        set(arguments(chosen, 20)) & {"--idle", "--gil", "--nonblocking", "--native", "--subprocesses"}
        for chosen in (Sampling(), Sampling(gil=True, children=False), Sampling(native=True))
    )
    assert usual == {"--idle", "--nonblocking", "--subprocesses"}
    assert gil == {"--gil", "--nonblocking"}
    assert native == {"--idle", "--native", "--subprocesses"}, "py-spy does the one or the other"


def test_what_is_asked_too_much_of_a_process_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    threads = "import threading\nfor _ in range(401): threading.Thread(target=signal.pause, daemon=True).start()\n"
    with program(f"{threads}print(flush=True); signal.pause()") as (pid, _):
        for sampling, text in (
            (Sampling(seconds=0), "a profile takes 0.5 s to 10 minutes"),
            (Sampling(rate=5000), "the rate is 1 to 1000 samples a second"),
            (
                Sampling(native=True),
                "402 threads are too many to sample at an acceptable overhead (at most 400)",
            ),
        ):
            result = finished(PROFILE, hold(row(pid)), sampling)
            assert result.text.startswith(text), result
        assert not (tmp_path / "gputop").exists()


def metered(
    before: Sequence[CostReading], during: Sequence[CostReading], after: Sequence[CostReading] = (), cpu: float = 1.0
) -> CostMeter:
    """A meter that has seen these, while py-spy took so much of a CPU."""
    readings = iter((*before, *during, *after))
    meter = CostMeter(lambda: next(readings))
    for _ in before:
        meter.before()
    for look in during:
        meter.during(cpu * look.at_s)
    for _ in after:
        meter.after()
    return meter


def looks(
    from_s: float, to_s: float, *, cpu: float = 1.0, waits: float = 0.0, paused: bool = False
) -> list[CostReading]:
    """Fifty looks a second at a process that runs like this."""
    times = [from_s + number / 50 for number in range(int((to_s - from_s) * 50) + 1)]
    return [
        CostReading(at_s, cpu * at_s, int(100 * cpu * at_s), waits * at_s, paused and at_s % 0.1 < 0.05)
        for at_s in times
    ]


def test_the_guard_ends_what_costs_too_much_and_nothing_else() -> None:
    before, after = looks(0, 1), looks(5, 6)
    assert metered(before, looks(1, 2, paused=True)).excess() is None  # too short to be sure
    paused = metered(before, looks(1, 5, paused=True)).excess()
    assert paused is not None
    assert paused.startswith("it was paused ")
    assert metered(before, looks(1, 5, waits=0.5)).excess() == "it waited 50 % of the time longer for a CPU"
    assert metered(before, looks(1, 5, waits=0.5), cpu=0.1).excess() is None  # somebody else has come
    assert metered(before, looks(1, 5, cpu=0.2)).excess() is None  # a job has phases of its own
    assert metered(before, looks(1, 5), after).cost().text == "cost 0 %"
    slower = metered(before, [CostReading(1, 1.0, 100, 0.0, False), CostReading(5, 4.6, 460, 0.0, False)], after).cost()
    assert slower.slowed == pytest.approx(0.1)
    assert metered(before, looks(1, 5), looks(5, 6, cpu=3.0)).cost().slowed is None


@pytest.mark.parametrize(("native", "left"), [(False, "T"), (True, "R")])
def test_a07_who_is_stopped_by_somebody_else_meanwhile_stays_so(
    native: bool, left: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But where py-spy stops it for each sample it cannot be told who did."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with program(SPINS) as (pid, _):
        stop = threading.Timer(1.5, os.kill, (pid, signal.SIGSTOP))
        stop.start()
        finished(PROFILE, hold(row(pid)), Sampling(seconds=2, native=native, children=False), seconds=60)
        assert state(pid) == left


@pytest.mark.parametrize("children", [False, True])
def test_where_py_spy_fails_on_native_frames_those_of_python_are_recorded(
    children: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a PID namespace of its own, where it calls the target no Python program, or knows no register."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with in_a_pid_namespace() as pid:
        result = finished(PROFILE, hold(row(pid)), Sampling(seconds=1, native=True, children=children), seconds=120)
        assert isinstance(result, ProfileResult)
        assert result.good, result.text
        assert result.page is not None
        without = [line for line in result.lines if line.startswith("no native frames (")]
        assert without == [note for note in result.page.notes if note.startswith("no native frames (")]
        assert result.profile is not None
        assert without or any("::" in frame or ".so" in frame for stack in result.profile.stacks for frame in stack)


@pytest.mark.parametrize(("python", "said"), [("python3.10", True), ("python3.12", False)])
def test_threads_that_wait_are_not_left_out_of_an_old_python_and_that_is_said(
    python: str, said: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = interpreter(python)
    if found is None:
        pytest.skip(f"not covered: needs {python}")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with running(found, "-S", "-c", SPINS) as target:
        assert target.stdout is not None
        target.stdout.readline()
        result = finished(PROFILE, hold(row(target.pid)), Sampling(seconds=0.5, waiting=False), seconds=60)
        assert any("py-spy cannot exclude idle threads" in line for line in result.lines) is said, result.lines
