"""The scripts for Slurm as slurmd runs them: a bare environment, the real gputop, and programs that hang."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gputop import docs
from gputop.model import Frame
from tests.diagnose_runs import FEW, Recorded
from tests.fakenvml import Fake

EPILOG = Path(docs.__file__).parent / "sites" / "slurm-epilog.sh"
PROLOG = Path(docs.__file__).parent / "sites" / "slurm-task-prolog.sh"
HOST = os.uname().nodename
SHELLS = [shell for shell in ("dash", "bash", "busybox") if shutil.which(shell)]


@pytest.fixture
def node() -> Iterator[Path]:
    """A folder that every user may enter."""
    folder = Path(tempfile.mkdtemp(prefix="gputop-slurm-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def program(place: Path, text: str) -> Path:
    place.write_text(f"#!/bin/sh\n{text}\n")
    place.chmod(0o755)
    return place


def real(place: Path, **env: str) -> Path:
    """The real gputop as a command of the node."""
    sets = "".join(f"{name}='{value}' " for name, value in env.items())
    return program(place, f'{sets}exec {sys.executable} -m gputop "$@"')


def slurm(script: Path, env: dict[str, str], shell: str = "sh") -> subprocess.CompletedProcess[str]:
    """Run a script as slurmd does: nothing but its variables; waits until nobody holds its output."""
    command = [shell, *(["sh"] if shell == "busybox" else []), str(script)]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)


def epilog_of(node: Path, job: str = "812", **more: str) -> dict[str, str]:
    """What slurmd sets for an epilog, and where the test has its parts."""
    for name in ("work", "recordings"):
        (node / name).mkdir(exist_ok=True)
    ours = {"GPUTOP_COMMAND": str(node / "gputop"), "GPUTOP_RECORDINGS": str(node / "recordings")}
    theirs = {
        "SLURM_JOB_ID": job,
        "SLURM_JOB_UID": str(os.getuid()),
        "SLURM_JOB_GID": str(os.getgid()),
        "SLURM_JOB_WORK_DIR": str(node / "work"),
    }
    return {**theirs, **ours, "GPUTOP_DEADLINE_S": "100", **more}


def of_job(t: float) -> Frame:
    """A training of Slurm job 812 that waits for its loaders."""
    seen = FEW.frame(t)
    processes = tuple(replace(process, slurm_job="812") for process in seen.processes)
    return replace(seen, processes=processes, jobs=tuple(replace(job, slurm_job="812") for job in seen.jobs))


def keep(node: Path, recorded: Recorded) -> None:
    """Two recordings, of which the first has the job."""
    (node / "recordings").mkdir()
    path = Path(recorded(of_job))
    subprocess.run(["gzip", "-k", str(path)], check=True)
    shutil.copy(f"{path}.gz", node / "recordings" / "20261127T100000.jsonl.gz")
    idle = [line for line in path.read_text().splitlines(keepends=True) if '"type":"header"' in line]
    (node / "idle").write_text("".join(idle))
    with (node / "recordings" / "20261127T103000.jsonl.gz").open("wb") as out:
        subprocess.run(["gzip", "-c", str(node / "idle")], stdout=out, check=True)


@pytest.mark.parametrize("shell", SHELLS)
def test_the_epilog_leaves_the_report_of_the_job_in_its_folder(node: Path, recorded: Recorded, shell: str) -> None:
    keep(node, recorded)
    real(node / "gputop")
    done = slurm(EPILOG, epilog_of(node), shell)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    (left,) = (node / "work").iterdir()
    assert left.name == f"gputop-812-{HOST}.md"
    assert left.stat().st_mode & 0o777 == 0o600
    text = left.read_text()
    assert text.startswith("# h: 1 warn\n")
    assert "about Slurm job 812" in text
    assert "starved-cpu-idle" in text
    other = slurm(EPILOG, epilog_of(node, "77"), shell)
    assert other.returncode == 0
    assert len(list((node / "work").iterdir())) == 1


def test_a_job_on_the_fake_driver_from_the_recorder_to_the_report(node: Path, fake: Fake) -> None:
    """A process with the variables of Slurm, the recorder of the unit, the epilog."""
    job = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], env={"SLURM_JOB_ID": "4711"})
    try:
        fake.add_process(gpu=0, pid=job.pid, vram_bytes=3 << 30, sm=57)
        (node / "recordings").mkdir()
        recording = node / "recordings" / "20261127T100000.jsonl.gz"
        command = [sys.executable, "-m", "gputop", "record", "--interval", "1", "--for", "5s", str(recording)]
        subprocess.run(command, env=fake.env(), check=True, capture_output=True, timeout=100)
    finally:
        job.kill()
        job.wait()
    real(node / "gputop")
    assert slurm(EPILOG, epilog_of(node, "4711")).returncode == 0
    text = (node / "work" / f"gputop-4711-{HOST}.md").read_text()
    assert "about Slurm job 4711" in text
    assert "too short to judge" in text


@pytest.mark.skipif(os.getuid() != 0, reason="not covered: only root writes as another user")
def test_the_report_is_written_by_the_user_of_the_job_and_never_over_a_file(node: Path, recorded: Recorded) -> None:
    keep(node, recorded)
    real(node / "gputop")
    env = epilog_of(node, SLURM_JOB_UID="12345", SLURM_JOB_GID="12345")
    target, name = node / "target", f"gputop-812-{HOST}.md"
    target.write_text("as it was")
    (node / "work" / name).symlink_to(target)
    os.chown(node / "work", 12345, 12345)
    assert slurm(EPILOG, env).returncode == 0
    assert target.read_text() == "as it was"
    (node / "work" / name).unlink()
    assert slurm(EPILOG, env).returncode == 0
    assert (node / "work" / name).stat().st_uid == 12345
    os.chown(node / "work", 0, 0)
    (node / "work" / name).unlink()
    assert slurm(EPILOG, env).returncode == 0
    assert list((node / "work").iterdir()) == [], "its user may not write there"


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("stubborn", [False, True], ids=["hangs", "ignores-signals"])
def test_a_gputop_that_hangs_does_not_hold_up_the_epilog(node: Path, shell: str, stubborn: bool) -> None:
    ignore = "trap '' TERM INT HUP\n" if stubborn else ""
    program(node / "gputop", f"{ignore}echo $$ > {node}/pid\nwhile :; do sleep 600; done")
    begun_s = time.monotonic()
    done = slurm(EPILOG, epilog_of(node, GPUTOP_DEADLINE_S="2"), shell)
    took_s = time.monotonic() - begun_s
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert took_s < 60, "the deadline is two seconds, and nobody holds its output longer"
    assert _gone(int((node / "pid").read_text()))
    assert list((node / "work").iterdir()) == []


def _gone(pid: int) -> bool:
    return _until(lambda: not Path(f"/proc/{pid}").exists() or " Z " in Path(f"/proc/{pid}/stat").read_text())


def _until(true: Callable[[], bool], seconds: float = 30.0) -> bool:
    end_s = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end_s:
            return False
        time.sleep(0.02)
    return True


@pytest.mark.parametrize(
    "wrong",
    [
        {"SLURM_JOB_ID": "1;touch OWNED"},
        {"SLURM_JOB_ID": ""},
        {"SLURM_JOB_UID": "root"},
        {"SLURM_JOB_WORK_DIR": "work"},
        {"SLURM_JOB_WORK_DIR": "/nowhere/at/all"},
        {"GPUTOP_RECORDINGS": "/nowhere/at/all"},
        {"GPUTOP_COMMAND": "/nowhere/gputop"},
        {"GPUTOP_DEADLINE_S": "soon"},
    ],
    ids=lambda wrong: "-".join(wrong),
)
def test_an_epilog_never_fails(node: Path, wrong: dict[str, str]) -> None:
    """A node whose epilog fails is drained."""
    program(node / "gputop", "echo report; exit 3")
    env = {**epilog_of(node), **wrong}
    done = slurm(EPILOG, env)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    bare = slurm(EPILOG, {})
    assert (bare.returncode, bare.stdout, bare.stderr) == (0, "", "")
    assert not any(path.name.startswith("OWNED") for path in node.rglob("*"))


@pytest.mark.parametrize("shell", SHELLS)
def test_the_task_prolog_puts_the_agent_into_a_training(node: Path, shell: str) -> None:
    real(node / "gputop")
    for before in ({}, {"PYTHONPATH": "/site/packages"}):
        done = slurm(PROLOG, {**before, "GPUTOP_COMMAND": str(node / "gputop")}, shell)
        assert (done.returncode, done.stderr) == (0, "")
        kind, _, rest = done.stdout.removesuffix("\n").partition(" ")
        name, _, value = rest.partition("=")
        assert (kind, name) == ("export", "PYTHONPATH")
        assert value.split(":")[1:] == list(before.values())
        code = "import sys; print(any('gputop' in (getattr(m, '__file__', '') or '') for m in sys.modules.values()))"
        task = subprocess.run(
            [sys.executable, "-c", code], env={name: value}, capture_output=True, text=True, check=True
        )
        assert task.stdout == "True\n"
        again = slurm(PROLOG, {name: value, "GPUTOP_COMMAND": str(node / "gputop")}, shell)
        assert (again.returncode, again.stdout) == (0, "")


@pytest.mark.parametrize(
    ("text", "env"),
    [
        ("exit 1", {}),
        ("sleep 600", {}),
        ("echo 'export PYTHONPATH=/x'", {"GPUTOP_TASK_PROLOG": "0"}),
        ("echo 'export PYTHONPATH=/x:$PYTHONPATH'", {"PYTHONPATH": "/two\n/lines"}),
        ("", {"GPUTOP_COMMAND": "/nowhere/gputop"}),
    ],
    ids=["fails", "hangs", "opted-out", "two-lines", "missing"],
)
def test_a_task_starts_as_it_would_without_the_prolog(node: Path, text: str, env: dict[str, str]) -> None:
    command = {"GPUTOP_COMMAND": str(program(node / "gputop", text))}
    done = slurm(PROLOG, {**command, **env})
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
