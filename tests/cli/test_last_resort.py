"""The handler of last resort: a mistake of ours is one line with what to report, never a traceback."""

from __future__ import annotations

import argparse
import json
import random
import signal
import stat
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from gputop import cli
from gputop.cli.options import BROKEN
from gputop.config import Settings
from gputop.safe import terminal
from tests.pasted_texts import csv, oom, s1, smi
from tests.traces import starved


def slip(*_: object) -> int:
    raise ZeroDivisionError("float division \x1b[2J by zero, --token=hunter2")


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., None]:
    """Makes every command do this in place of what it does; reports go to a folder of the test."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    def as_(run: Callable[[argparse.Namespace, Settings], int]) -> None:
        for name, command in cli.COMMANDS.items():
            monkeypatch.setitem(cli.COMMANDS, name, replace(command, run=run))

    return as_


@pytest.mark.parametrize(
    "args",
    [
        "explain trace.json",
        "diagnose --source demo:healthy",
        "replay run.jsonl",
        "record -",
        "--once",
        "--json",
        "docs",
    ],
)
def test_a_mistake_of_ours_is_one_line_with_what_to_report(
    args: str, broken: Callable[..., None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken(slip)
    assert cli.main(args.split()) == BROKEN == 70
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert said.err.strip().isprintable()
    assert said.err.startswith(f"gputop: internal error in gputop {args}: ZeroDivisionError: float division")
    assert said.err.endswith("; please report it\n")
    assert "hunter2" not in said.err
    (kept,) = (tmp_path / "gputop").iterdir()
    assert str(kept) in said.err
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    text = kept.read_text()
    assert "in slip" in text
    assert "hunter2" not in text


def test_the_line_says_where_in_our_code_it_was(
    broken: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    broken(slip)
    cli.main(["docs"])
    assert "(gputop.cli:" in capsys.readouterr().err


@pytest.mark.parametrize("readonly", ["flag", "variable"])
def test_read_only_keeps_no_report(
    readonly: str,
    broken: Callable[..., None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    broken(slip)
    if readonly == "variable":
        monkeypatch.setenv("GPUTOP_READONLY", "1")
    assert cli.main(["explain", "x.json", *(["--readonly"] if readonly == "flag" else [])]) == BROKEN
    assert "details not saved (read-only)" in capsys.readouterr().err
    assert not (tmp_path / "gputop").exists()


def test_without_a_place_for_the_report_the_line_says_so(
    broken: Callable[..., None], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broken(slip)
    monkeypatch.setenv("XDG_STATE_HOME", "/dev/null")
    monkeypatch.setenv("HOME", "/dev/null")
    assert cli.main(["docs"]) == BROKEN
    said = capsys.readouterr().err.splitlines()[-1]
    assert "ZeroDivisionError" in said
    assert "details not saved" in said


def test_a_file_that_no_command_handled_is_not_told_as_a_full_disk(
    broken: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(*_: object) -> int:
        return len(Path("/nowhere/at/all").read_bytes())

    broken(missing)
    assert cli.main(["docs"]) == BROKEN
    said = capsys.readouterr().err
    assert "/nowhere/at/all" in said
    assert "written" not in said


def test_a_mistake_in_a_thread_is_one_line_too(
    broken: Callable[..., None], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)  # and back afterwards
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
    monkeypatch.setattr(sys, "argv", ["gputop", "docs"])
    monkeypatch.setattr(terminal, "end_when_deaf", lambda: None)  # its thread would stay

    def joined(*_: object) -> int:
        thread = Thread(target=slip)
        thread.start()
        thread.join()
        return 0

    broken(joined)
    before = signal.getsignal(signal.SIGPIPE)
    try:
        assert cli.main() == 0
    finally:
        signal.signal(signal.SIGPIPE, before)  # later tests write to sockets that their clients have closed
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "internal error" in said


# values that a writer of traces never meant
ODD: tuple[Any, ...] = (
    None, True, -1, 0, 1e308, -1e308, 5e-324, 1e15, 2**63, 10**30, 4741161542881035.0, "", "0", "x", "\x1b[2J", [], {},
    [1], [[]], {"a": 1}, "ProfilerStep#1", "nccl:all_reduce",
)  # fmt: skip


def mutant(data: Any, dice: random.Random) -> str:
    """JSON with some of its values replaced, scaled or taken out, as no writer meant it."""
    data = json.loads(json.dumps(data))
    for _ in range(dice.choice((1, 2, 8))):
        at = data
        while True:
            keys = list(at) if isinstance(at, dict) else range(len(at))
            if not keys:
                break
            key = dice.choice(keys)
            inner = at[key]
            if isinstance(inner, (dict, list)) and inner and dice.random() < 0.85:
                at = inner
                continue
            if isinstance(at, dict) and dice.random() < 0.2:
                del at[key]
            elif type(inner) in (int, float) and dice.random() < 0.5:
                at[key] = inner * dice.choice((-1, 0, 1e-12, 1e12)) + dice.choice((0, 1e-7, 1e9))
            else:
                at[key] = dice.choice(ODD)
            break
    return json.dumps(data)


def garbled(text: str, dice: random.Random) -> str:
    """Text with pieces cut out, doubled, and numbers that are none."""
    for _ in range(dice.choice((1, 3, 8))):
        at, most = dice.randrange(len(text) + 1), dice.choice((1, 20, 400))
        piece = dice.choice(("", "nan", "1e999", "-", "9" * 30, "0", "%", "\n\n", text[at : at + most] * 2))
        text = text[:at] + piece + text[at + dice.choice((0, most)) :]
    return text


def unexplained(path: Path, args: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """What is wrong with how a file is explained: nothing where it is a page, or one line."""
    code = cli.main(["explain", str(path), *args])
    said = capsys.readouterr()
    if code == BROKEN or "Traceback" in said.err or "\x1b" in said.out + said.err:
        return said.err or "a raw byte"
    return "" if said.out or said.err.count("\n") == 1 else "neither a page nor one line"


@pytest.mark.parametrize("seed", range(4))
def test_no_mutant_of_a_trace_is_a_mistake_of_ours(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    dice, trace = random.Random(seed), tmp_path / "trace.json"
    starved().write(trace)
    whole = json.loads(trace.read_text())
    for number in range(40):
        few = {**whole, "traceEvents": dice.sample(whole["traceEvents"], min(40, len(whole["traceEvents"])))}
        trace.write_text(mutant(few, dice))
        assert not unexplained(trace, dice.choice(([], ["--json"])), capsys), (seed, number)


@pytest.mark.parametrize("kind", [s1, smi, oom, lambda: csv([90.0] * 30)])
def test_no_mutant_of_a_paste_is_a_mistake_of_ours(
    kind: Callable[[], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    dice, pasted = random.Random(1), tmp_path / "pasted.txt"
    for number in range(40):
        pasted.write_text(garbled(kind(), dice))
        assert not unexplained(pasted, dice.choice(([], ["--json"])), capsys), number


@pytest.mark.parametrize(
    ("error", "limit"),
    [
        (RuntimeError("can't start new thread"), "cannot start another thread: check ulimit -u, ulimit -v"),
        (MemoryError(), "out of memory: check ulimit -v"),
    ],
)
def test_a_limit_of_the_machine_is_named_and_is_no_mistake_to_report(
    error: Exception, limit: str, broken: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    def ends(*_: object) -> int:
        raise error

    broken(ends)
    assert cli.main(["--once"]) == BROKEN
    said = capsys.readouterr().err
    assert said.startswith(f"gputop: gputop --once ended: {limit}")
    assert "report" not in said


@pytest.mark.parametrize("command", ["explain", "replay", "diagnose --source"])
def test_a_name_that_is_too_long_is_one_line_and_no_mistake_of_ours(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([*command.split(), f"/{300 * 'a'}"]) not in (0, BROKEN)
    said = capsys.readouterr().err
    assert "File name too long" in said
    assert "report" not in said


def test_numbers_that_are_too_long_to_be_read_are_no_mistake_of_ours(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, long = tmp_path / "trace.json", 9000 * "9"
    path.write_text(
        f'{{"traceEvents": [{{"ph": "X", "ts": {long}, "dur": 1}}, {{"ph": "X", "ts": 1, "name": "a\tb"}}]}}'
    )
    assert cli.main(["explain", str(path)]) != BROKEN
    assert "report" not in capsys.readouterr().err
