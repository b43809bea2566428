"""Reports of what went wrong: private, cleaned, without secrets, bounded."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gputop.safe.crash import Crashes
from gputop.safe.files import Folder, state_folder

ROOT = Path(__file__).parents[2]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    folder = state_folder({"XDG_STATE_HOME": str(tmp_path)})
    yield folder
    folder.close()


def failure(text: str) -> BaseException:
    try:
        raise ValueError(text)
    except ValueError as error:
        return error


def test_t14_a_report_is_clean_and_without_secrets(folder: Folder) -> None:
    told: list[str] = []
    crashes = Crashes(folder)
    crashes.tell = told.append
    line = crashes.report(failure("bad \x1b[2J name, --token=hunter2\nsecond line"), "lane \x07")
    assert told == crashes.lines == [line]
    assert line.isprintable()
    assert "details in" in line
    (name,) = folder.sizes()
    text = Path(folder.path, name).read_text()
    assert "in failure" in text
    assert "second line" in text
    assert all(part.isprintable() for part in text.splitlines())
    assert "hunter2" not in text + line


def test_t14_a_flood_of_failures_is_bounded(folder: Folder) -> None:
    crashes = Crashes(folder)
    for number in range(30):
        crashes.report(failure(str(number)), "a lane")
    (name,) = folder.sizes()
    assert Path(folder.path, name).read_text().count("Traceback") == 20
    assert len(crashes.lines) == 20


def test_p23_without_a_folder_the_line_says_why() -> None:
    assert "details not saved (HOME is not set)" in Crashes(None, "HOME is not set").report(failure("x"), "a lane")


CHILD = """
import sys, threading
from gputop.safe.crash import Crashes
from gputop.safe.files import state_folder
crashes = Crashes(state_folder({"XDG_STATE_HOME": sys.argv[1]}))
crashes.install()
def fail(): raise ValueError("in a thread")
thread = threading.Thread(target=fail, name="lane"); thread.start(); thread.join()
class Late:
    def __del__(self): raise ValueError("in a finaliser")
del (late := [Late()])[0]
print(*crashes.lines, sep="\\n")
crashes.close()
"""


def test_t14_threads_and_finalisers_do_not_write_on_the_screen(tmp_path: Path) -> None:
    run = subprocess.run([sys.executable, "-c", CHILD, str(tmp_path)], cwd=ROOT, capture_output=True, text=True)
    assert run.stderr == ""
    assert "internal error in lane: ValueError: in a thread" in run.stdout
    assert "ValueError: in a finaliser" in run.stdout
    assert [path.name.partition("-")[0] for path in tmp_path.glob("gputop/*")] == ["crash"]


def test_old_files_are_swept_and_those_of_the_living_kept(tmp_path: Path) -> None:
    there = tmp_path / "gputop"
    there.mkdir(mode=0o700)
    dead = subprocess.Popen(["true"])
    dead.wait()
    (there / f"fault-20250101-000000-{dead.pid}.txt").touch()
    (there / f"fault-20250101-000000-{os.getpid()}.txt").touch()
    (there / f"fault-20250102-000000-{dead.pid}.txt").write_text("stacks")
    for day in range(30):
        (there / f"crash-202502{day:02}-000000-1.txt").write_text("trace")
    subprocess.run([sys.executable, "-c", CHILD, str(tmp_path)], cwd=ROOT, capture_output=True, check=True)
    names = sorted(path.name for path in there.iterdir())
    assert f"fault-20250101-000000-{os.getpid()}.txt" in names
    assert f"fault-20250102-000000-{dead.pid}.txt" in names
    assert sum(name.startswith("fault-") for name in names) == 2
    assert sum(name.startswith("crash-2025") for name in names) == 20
