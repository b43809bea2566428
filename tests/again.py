"""Runs pytest, and what failed once more by itself: `python -m tests.again ARGUMENTS OF PYTEST`.

Of 13,000 tests on real processes, one may meet a machine that is busy in a way that nobody foresaw. Only a few failed
tests are run again: after a failed collection, a crash, an interrupt or many failures, the first result stands.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

MOST = 5  # failed tests; a machine that is busy breaks one or two
_FAILED, _OK = 1, 0


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--outcomes", type=Path, help="a file for the outcome of each test")
    parser.addoption("--again", action="store_true", help="these have failed: if they pass now, the matrix forgets it")


def pytest_configure(config: pytest.Config) -> None:
    if (place := config.getoption("--outcomes")) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Outcomes(place), "outcomes")


class Outcomes:
    """Leaves the outcome of each test, and whether all of them were collected, in a file."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._failed: set[str] = set()
        self._passed: set[str] = set()
        self._whole = True

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._whole = self._whole and not report.failed

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed.add(report.nodeid)
        elif report.passed and report.when == "call":
            self._passed.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        ran = bool(self._passed or self._failed)
        told = {"failed": sorted(self._failed), "passed": sorted(self._passed), "whole": self._whole and ran}
        self._place.write_text(json.dumps(told), encoding="utf-8")


def _run(place: Path, *arguments: str) -> tuple[int, dict[str, list[str]], bool]:
    """The exit code, tests by outcome, and whether all were collected."""
    place.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-p", "tests.again", f"--outcomes={place}", *arguments]
    code = subprocess.run(command, check=False).returncode
    told = json.loads(place.read_text(encoding="utf-8")) if place.exists() else {"whole": False}
    return code, told, bool(told["whole"])


def main(arguments: list[str]) -> int:
    """The exit code of pytest; 0 too if the few tests that failed pass by themselves."""
    with tempfile.TemporaryDirectory(prefix="gputop-tests-") as folder:
        place = Path(folder, "outcomes")
        code, told, whole = _run(place, *arguments)
        failed = told.get("failed", [])
        if code != _FAILED or not whole or not 0 < len(failed) <= MOST:
            return code
        print(f"\nOnce more, by themselves: {', '.join(failed)}", flush=True)
        kept = [one for one in arguments if one.startswith("--faults=")]
        code, told, whole = _run(place, "--again", *kept, *failed)
        steady = code == _OK and whole and set(told["passed"]) == set(failed)  # what skips itself has not passed
        print(f"\n{'Passed' if steady else 'Failed again'}: {', '.join(failed)}", flush=True)
        return _OK if steady else code or _FAILED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
