"""`make test` runs the few tests that failed once more; everything else that is wrong stays wrong."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.again import MOST
from tests.process_watch import ROOT

ONCE = """
from pathlib import Path

import pytest


def test_once():
    flag = Path(__file__).with_name("flag")
    before = flag.exists()
    flag.touch()
    {again}
    assert before
"""
CASES = {
    "one that passes by itself": ({"test_a": ONCE.format(again="pass")}, 0, "Passed: test_a.py::test_once"),
    "one that fails twice": ({"test_a": "def test_a(): assert 0"}, 1, "Failed again: test_a.py::test_a"),
    "one that skips itself then": (
        {"test_a": ONCE.format(again="before and pytest.skip()")}, 1, "Failed again: test_a.py::test_once",
    ),
    "a file that cannot be collected": ({"test_a": ONCE.format(again="pass"), "test_b": "import no_such"}, 1, ""),
    "many": ({"test_a": "\n".join(f"def test_{n}(): assert 0" for n in range(MOST + 1))}, 1, ""),
    "an interrupt": ({"test_a": ONCE.format(again="pass"), "test_b": "def test_b(): raise KeyboardInterrupt"}, 2, ""),
    "nothing wrong": ({"test_a": "def test_a(): pass"}, 0, ""),
}  # fmt: skip


@pytest.mark.parametrize(
    ("case", "workers"),
    [(case, workers) for case in CASES for workers in "02" if (case, workers) != ("an interrupt", "2")],
)
def test_only_a_few_failed_tests_are_run_again(case: str, workers: str, tmp_path: Path) -> None:
    files, code, said = CASES[case]
    for name, text in files.items():
        (tmp_path / f"{name}.py").write_text(text)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -p no:cacheprovider\n")
    command = [sys.executable, "-m", "tests.again", "-q", "-n", workers, "--rootdir", str(tmp_path), str(tmp_path)]
    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False
    )
    assert (done.returncode == 0) == (code == 0), done.stdout
    assert ("Once more" in done.stdout) == bool(said), done.stdout
    assert said in done.stdout
