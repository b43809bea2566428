"""The fault matrix: which rows the suite covered, which it did not, and why. A test names its rows: test_n09_hang."""

from __future__ import annotations

import json
import re
import shutil
from collections import defaultdict
from pathlib import Path

import pytest

ROWS = {  # rows that must be covered now; the meaning of each stands in gputop/docs/faults.md
    "N": [*range(1, 11), *range(12, 20), 21, 22, 24, 26, 27, 28, 31, 36],
    "P": [*range(1, 18), 19, 21, 23, 37],
    "T": [*range(1, 16), 18],
    "A": [*range(1, 18), 19, 20],
    "F": [*range(1, 14)],
    "H": [*range(1, 5)],
}
MUST = [f"{group}{number:02}" for group, numbers in ROWS.items() for number in numbers]
_ROW = re.compile(r"(?<![a-z0-9])([nptafh]\d\d)(?![0-9])")


def rows_of(test_name: str) -> list[str]:
    """The rows a test says it covers: test_n01_n05_no_driver is N01 and N05."""
    return [row.upper() for row in _ROW.findall(test_name.partition("[")[0].removeprefix("test_").replace("_", " "))]


class Matrix:
    """Collects outcomes and prints the summary."""

    def __init__(self) -> None:
        self.outcomes: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
        self.no_compiler = shutil.which("cc") is None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "call" and report.passed:
            return
        for row in rows_of(report.nodeid.rpartition("::")[2]):
            said = str(report.longrepr[2]) if report.skipped and isinstance(report.longrepr, (tuple, list)) else ""
            reason = said.removeprefix("Skipped: ").removeprefix("not covered: ")
            self.outcomes[row][report.outcome].append(reason)

    def _join(self, kept: Path, *, again: bool) -> None:
        """Take in what the runs before saw, and leave all of it to the next. `again`: what had failed ran again."""
        now = set(self.outcomes)
        if kept.exists():
            for row, seen in json.loads(kept.read_text()).items():
                for outcome, reasons in seen.items():
                    if not (again and row in now and outcome == "failed"):
                        self.outcomes[row][outcome] += reasons
        kept.write_text(json.dumps(self.outcomes))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
        if not self.outcomes:
            return
        if kept := config.getoption("--faults"):
            self._join(kept, again=config.getoption("--again", default=False))
        write = terminalreporter.write_line
        chosen = config.args_source == pytest.Config.ArgsSource.ARGS or config.option.markexpr  # others name the rest
        covered = [row for row in MUST if "passed" in self.outcomes[row] and "failed" not in self.outcomes[row]]
        write("")
        write(f"fault matrix: {len(covered)} of {len(MUST)} rows covered: {' '.join(covered)}")
        extra = sorted(row for row, seen in self.outcomes.items() if row not in MUST and "passed" in seen)
        if extra:
            write(f"  beyond what must be: {' '.join(extra)}")
        for row in MUST:
            seen = self.outcomes[row]
            if "failed" in seen:
                write(f"  {row} failed")
            elif "skipped" in seen:
                write(f"  {row} {'partly ' if 'passed' in seen else ''}not covered: {seen['skipped'][0]}")
            elif not seen and not chosen:
                write(f"  {row} not covered: no test names it")
