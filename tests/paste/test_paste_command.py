"""Pasted texts through the command: from files and standard input, as JSON, with its exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests import pasted_texts

GIB = 2**30


def explain(*args: str, given: str | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gputop", "explain", *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, input=given)


@pytest.mark.waits
class TestCommand:
    def test_files_and_standard_input(self, tmp_path: Path) -> None:
        (tmp_path / "table.txt").write_text(pasted_texts.s1())
        (tmp_path / "m.pickle").write_bytes(pasted_texts.snapshot([pasted_texts.block(GIB)]))
        done = explain(str(tmp_path / "table.txt"), str(tmp_path / "m.pickle"))
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith("table.txt\n")
        assert "\nm.pickle\n" in done.stdout
        piped = explain("-", given=pasted_texts.smi(thermal="Active"))
        assert piped.stdout.startswith("standard input\n")
        assert "▲ CRIT  GPU 3: hardware thermal slowdown." in piped.stdout
        trace = '{"traceEvents": [{"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": 1, "dur": 2}]}'
        assert explain("-", given=trace).stdout.startswith("standard input\n")

    def test_json(self) -> None:
        found = json.loads(explain("--json", "-", given='{"loss": 1.5}\n{"loss": NaN}\n').stdout)["files"][0]
        assert (found["kind"], found["file"], found["findings"][0]["severity"]) == ("log", "standard input", "crit")

    def test_what_was_left_out_is_in_the_exit_code(self) -> None:
        done = explain("-", given="\n".join(pasted_texts.s1().splitlines()[:6]))
        assert done.returncode == 1
        assert "The table is truncated" in done.stdout.split("Findings")[1][:60]

    def test_the_unknown_is_one_clear_line(self, tmp_path: Path) -> None:
        done = explain("-", given="hello\n")
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith(
            "gputop: standard input: it is neither a torch trace, a profile of py-spy, a table"
        )
        assert len(done.stderr.splitlines()) == 1
        (tmp_path / "a").write_text(pasted_texts.s1())
        assert explain("--diff", str(tmp_path / "a"), str(tmp_path / "a")).returncode == 64

    def test_utf_16_of_powershell(self, tmp_path: Path) -> None:
        path = tmp_path / "smi.txt"
        path.write_bytes(pasted_texts.smi().encode("utf-16"))
        assert json.loads(explain("--json", str(path)).stdout)["files"][0]["kind"] == "nvidia-smi"
