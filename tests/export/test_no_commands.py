"""`--no-commands`: what leaves the house has names of processes, and no command line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gputop import cli
from gputop.demo import SCENARIOS, Demo
from gputop.export.format import without_commands

ARGUMENT = "--nproc_per_node"  # of a command line of this demo


def written(args: str, capsys: pytest.CaptureFixture[str]) -> str:
    cli.main([*args.split(), "--source", "demo:showcase"])
    return capsys.readouterr().out


def processes(part: Any) -> Iterator[dict[str, Any]]:
    """Each process that is told anywhere in JSON."""
    if isinstance(part, dict):
        if "pid" in part and "command" in part:
            yield part
        part = list(part.values())
    if isinstance(part, list):
        for one in part:
            yield from processes(one)


@pytest.mark.parametrize(
    "args",
    [
        "snapshot --format json",
        "snapshot --format jsonl",
        "snapshot --format text",
        "--json",
        "--once",
        "diagnose --for 40s --json",
    ],
)
def test_nothing_that_is_written_has_a_command_line(args: str, capsys: pytest.CaptureFixture[str]) -> None:
    without = written(f"--no-commands {args}", capsys)
    assert without
    assert ARGUMENT not in without
    if args == "--json":
        assert written(args, capsys).count(ARGUMENT), "else this shows nothing"
    for line in without.splitlines() if "{" in without else ():
        for one in processes(json.loads(line)):
            assert one["command"] in ([], [one["name"]])


def test_the_flag_goes_before_and_after_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number, args in enumerate((["--no-commands", "record"], ["record", "--no-commands"])):
        path = tmp_path / f"{number}.jsonl"
        assert cli.main([*args, str(path), "--for", "2s", "--source", "demo:showcase"]) == 0
        assert ARGUMENT not in path.read_text()
    capsys.readouterr()


@pytest.mark.parametrize("args", [["docs"], ["doctor"], []])
def test_where_nothing_is_written_the_flag_is_refused(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--no-commands", *args]) == 64
    assert "--no-commands applies to record" in capsys.readouterr().err


def test_a_process_without_a_command_line_stays_without() -> None:
    frame = Demo(SCENARIOS["showcase"], pace=False, anchor_s=1_795_185_127, at_s=0.0).frame(10.0)
    once = without_commands(frame)
    assert all(one.command in ((), (one.name,)) for one in once.processes)
    assert without_commands(once).processes == once.processes
