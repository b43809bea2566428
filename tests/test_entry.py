"""What lies in the job's PYTHONPATH or folder is not what gputop imports; who needs PYTHONPATH to find gputop may."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import gputop
from tests.process_watch import ROOT

COMMAND = "import sys\nfrom gputop.entry import main\nsys.exit(main())\n"  # as installers write it
SHADOWS = ("dataclasses", "argparse", "typing", "json", "threading", "psutil", "textual", "pynvml")


def ran(command: Sequence[str], path: str, folder: Path, *, python: str = sys.executable) -> str:
    environ = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run([python, *command], env=environ, cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """The folder of a job with modules that bear the names of ours, and end whoever imports them."""
    folder = tmp_path / "job"
    folder.mkdir()
    for name in SHADOWS:
        (folder / f"{name}.py").write_text(f"raise RuntimeError('{name} of the job')\n")
    return folder


@pytest.fixture
def command(tmp_path: Path) -> str:
    """The command in a folder of its own."""
    script = tmp_path / "bin" / "gputop"
    script.parent.mkdir()
    script.write_text(COMMAND)
    return str(script)


def test_the_installed_command_begins_there() -> None:
    assert 'gputop = "gputop.entry:main"' in (ROOT / "pyproject.toml").read_text()


@pytest.mark.parametrize(
    "arguments", [["--version"], ["demo", "--list"], ["--no-nvml", "--source", "demo:healthy", "--once"]]
)
def test_modules_of_the_job_are_not_imported(arguments: list[str], job: Path, command: str, tmp_path: Path) -> None:
    path = f"{job}{os.pathsep}{ROOT}"
    told = [ran([*start, *arguments], path, tmp_path) for start in ([command], ["-m", "gputop"])]
    told.append(ran(["-m", "gputop", *arguments], str(ROOT), job))  # the folder that it is started in
    assert all(told)


def test_a_job_is_started_with_its_own_path(job: Path, command: str) -> None:
    code = "import os; print(os.environ['PYTHONPATH'])"
    told = ran([command, "run", "--", sys.executable, "-S", "-c", code], f"{job}{os.pathsep}{ROOT}", job)
    assert told.strip().split(os.pathsep)[1:] == [str(job), str(ROOT)]


def test_gputop_that_pythonpath_alone_leads_to(job: Path, command: str) -> None:
    """As `pip install --target` leaves it, together with what the job put there."""
    (job / "gputop").symlink_to(Path(gputop.__file__).parent)
    python = os.path.realpath(sys.executable)  # which has nothing installed for this test
    for start in ([command], ["-m", "gputop"]):
        assert ran([*start, "--version"], str(job), job.parent, python=python) == f"gputop {gputop.__version__}\n"


def test_what_a_sitecustomize_imported_of_the_job_is_let_go(job: Path, command: str) -> None:
    (job / "dataclasses.py").write_text("")
    (job / "sitecustomize.py").write_text("import dataclasses\n")
    assert "gputop" in ran([command, "--version"], f"{job}{os.pathsep}{ROOT}", job)


def test_ctrl_c_while_modules_are_read_ends_it_without_a_traceback() -> None:
    """Also where Python ignores what is raised, as in the callbacks of its import machinery."""
    code = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # as in a terminal: scripts in the background ignore it
class Interrupted:
    def find_spec(self, name, *_):
        if name == "gputop.cli":
            try:
                os.kill(os.getpid(), signal.SIGINT)
            except KeyboardInterrupt:
                print("lost")
sys.meta_path.insert(0, Interrupted())
from gputop.entry import main
sys.exit(main())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")


def test_ctrl_c_that_is_ignored_stays_so_while_modules_are_read() -> None:
    code = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
sys.argv = ["gputop", "--version"]
class Interrupted:
    def find_spec(self, name, *_):
        if name == "gputop.cli":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupted())
from gputop.entry import main
sys.exit(main())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
