"""The real monitor on a real pty: how it starts, survives its terminal, and ends."""

from __future__ import annotations

import os
import random
import re
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests import terminal_endings
from tests.oracle import modes_ever_on, oracle
from tests.pty_programs import Terminal, wait_until
from tests.terminal_endings import Program

pytestmark = pytest.mark.waits

ARGV = (sys.executable, "-m", "gputop")


@pytest.fixture
def monitor(tmp_path: Path) -> Program:
    return Program((*ARGV, "demo", "healthy"), "Quit", env={"XDG_STATE_HOME": str(tmp_path)})


@pytest.fixture
def showcase(monitor: Program) -> Program:
    """Where much is on the screen: it costs four times as much to start."""
    return replace(monitor, argv=(*ARGV, "demo", "showcase"))


def test_start_shows_gpus_jobs_and_keys(showcase: Program) -> None:
    with showcase.start() as terminal:
        terminal.wait_for("llama-7b")
        text = terminal.text()
        for word in ("gputop", "8×H100", "power cap", "thermal", "torchrun · 4", "I/O-bound", "F1 Help"):
            assert word in text
        assert not modes_ever_on(terminal.output) & {1002, 1003, 1015, 1016}


def test_t01_q_ends_it_within_a_second(monitor: Program) -> None:
    terminal_endings.ends_by_key(monitor)


@pytest.mark.parametrize("flags", [(), ("--readonly",)], ids=["", "readonly"])
def test_nothing_is_written_when_it_is_read_only(tmp_path: Path, flags: tuple[str, ...]) -> None:
    argv = (*ARGV, "demo", "healthy", *flags)
    with Program(argv, "Quit", env={"XDG_STATE_HOME": str(tmp_path / "state"), "HOME": str(tmp_path)}).start():
        assert any(tmp_path.rglob("*")) == (not flags)


@pytest.mark.skipif(os.geteuid() != 0, reason="not covered: only root does not take these from its caller")
def test_a20_root_takes_no_settings_of_textual_from_its_caller(tmp_path: Path) -> None:
    (tmp_path / "hostile.py").write_text(f"open({str(tmp_path / 'imported')!r}, 'w')\nclass Driver: pass\n")
    paths = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))
    hostile = {"TEXTUAL_DRIVER": "hostile:Driver", "TEXTUAL_LOG": str(tmp_path / "log"), "PYTHONPATH": paths}
    program = Program((*ARGV, "demo", "healthy"), "Quit", env={"XDG_STATE_HOME": str(tmp_path / "state"), **hostile})
    with program.start() as terminal:
        terminal.wait_for("llama-7b")
    assert not (tmp_path / "imported").exists()
    assert not (tmp_path / "log").exists()


def test_t01_a_signal_gives_the_terminal_back(monitor: Program) -> None:
    terminal_endings.ends_by_signal(monitor, signal.SIGTERM)


def test_t02_the_next_start_heals_the_terminal(monitor: Program) -> None:
    terminal_endings.heals_at_the_next_start(monitor)


def test_t02_sigkill_gives_the_terminal_back(monitor: Program) -> None:
    terminal_endings.gives_back_after_sigkill(monitor)


def test_t02_reset_terminal_heals_it(monitor: Program) -> None:
    terminal_endings.heals_by_command(monitor, [*ARGV, "reset-terminal"])


@pytest.mark.parametrize("ignore_hup", [False, True])
def test_t03_a_vanished_terminal_ends_it(monitor: Program, ignore_hup: bool) -> None:
    terminal_endings.ends_with_its_line(monitor, ignore_hup)


def test_t04_no_terminal_no_screen(monitor: Program) -> None:
    terminal_endings.refuses_without_a_terminal(monitor)


def test_t10_a_dumb_terminal_is_refused(monitor: Program) -> None:
    terminal_endings.refuses_a_dumb_terminal(monitor)


@pytest.mark.parametrize("term", ["vt100", "bogus", None])
def test_t10_other_terminals_draw(monitor: Program, term: str | None) -> None:
    env = {**monitor.env, "TERM": term, "COLORTERM": None}
    with replace(monitor, env=env).start() as terminal:
        terminal.wait_for("llama-7b")
        terminal.send("q")
        assert terminal.wait_exit() == 0
        terminal_endings.assert_given_back(terminal)


@pytest.mark.parametrize(
    ("env", "allowed", "ever"),
    [
        ({"NO_COLOR": "1"}, r"[0127]|2[1-9]", "1"),
        ({"TERM": "xterm", "COLORTERM": None}, r"[0127]|2[1-9]|[34][0-79]|9[0-7]", "34"),
        ({"TERM": "xterm-256color", "COLORTERM": None}, r"[0127]|2[1-9]|[34][0-79]|9[0-7]|[34]8;5;\d+", "38;5;74"),
        ({"COLORTERM": "truecolor", "NO_COLOR": ""}, r"[0127]|2[1-9]|[34]9|[34]8;2;\d+;\d+;\d+", "38;2;88;166;214"),
    ],
    ids=["no colour", "16", "256", "true colour, NO_COLOR empty"],
)
def test_t11_colours(monitor: Program, env: dict[str, str], allowed: str, ever: str) -> None:
    with replace(monitor, env={**monitor.env, **env}).start() as terminal:
        terminal.wait_for("llama-7b")
        styles = {style.decode() for style in re.findall(rb"\x1b\[([\d;]*)m", bytes(terminal.output))}
        for style in styles - {""}:
            assert re.fullmatch(f"(({allowed})(;|$))+", style), style
        assert any(f";{ever};" in f";{style};" for style in styles), styles


UNFORCED = {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


@pytest.mark.parametrize(
    "env",
    [
        {"LANG": "C"},
        {"LC_ALL": "de_DE.ISO-8859-1"},  # not installed here
        {"LC_ALL": "C", "PYTHONIOENCODING": "latin-1", **UNFORCED},
    ],
)
def test_t12_without_utf8_it_draws_ascii(monitor: Program, env: dict[str, str]) -> None:
    env = {**monitor.env, "LANG": None, "LC_ALL": None, "LC_CTYPE": None, "PYTHONUTF8": None, **env}
    with replace(monitor, env=env).start() as terminal:
        terminal.wait_for("llama-7b")
        assert bytes(terminal.output).isascii()


def test_ascii_flag_draws_ascii(showcase: Program) -> None:
    with replace(showcase, argv=(*showcase.argv, "--ascii")).start() as terminal:
        terminal.wait_for("llama-7b")
        assert bytes(terminal.output).isascii()


@pytest.fixture
def fast(showcase: Program) -> Program:
    """It fills a line that nobody reads."""
    return replace(showcase, argv=(*showcase.argv, "--interval", "0.25"))


def test_t05_term_while_the_terminal_does_not_read(fast: Program) -> None:
    terminal_endings.ends_while_stalled(fast, lambda _, pid: os.kill(pid, signal.SIGTERM), 128 + signal.SIGTERM)


def test_t18_q_while_the_terminal_does_not_read(fast: Program) -> None:
    terminal_endings.ends_while_stalled(fast, lambda terminal, _: terminal.send("q"), 0)


def test_t05_a_whole_picture_after_a_stall(fast: Program) -> None:
    terminal_endings.goes_on_after_a_stall(fast, 5)


def test_t06_ctrl_z_and_fg(monitor: Program) -> None:
    terminal_endings.suspends_and_resumes(monitor, 5)


def test_t07_p15_stopped_for_a_while_it_goes_on_with_one_gap(monitor: Program) -> None:
    live = Program((*ARGV, "--no-nvml", "--interval", "0.5"), "Quit", env=monitor.env)
    with live.start() as terminal:
        terminal.signal(signal.SIGSTOP)
        terminal.wait_state("T")
        time.sleep(4)
        before = len(terminal.output)
        terminal.signal(signal.SIGCONT)
        seen = terminal.text()
        terminal.wait_for(lambda lines: "\n".join(lines) != seen)
        time.sleep(1.2)  # a storm of frames to catch up would come at once
        assert len(terminal.output) - before < 60_000
        assert not any("-" in word and word.strip("-").isdigit() for word in terminal.screen()[0].split())
        terminal.send("q")
        assert terminal.wait_exit() == 0


def test_t08_a_storm_of_resizes(showcase: Program) -> None:
    chance = random.Random(8)
    with showcase.start() as terminal:
        before = terminal.cpu_s()
        for _ in range(1000):
            terminal.resize(chance.randint(1, 250), chance.randint(1, 80))
            time.sleep(0.005)
        terminal.resize(120, 40)
        terminal.wait_for(lambda lines: "Quit" in lines[39] and "gputop" in lines[0], 30)
        assert terminal.cpu_s() - before < 25
        terminal.send("q")
        assert terminal.wait_exit() == 0
        terminal_endings.assert_given_back(terminal)


@pytest.mark.parametrize("sizes", [[(0, 0), (10, 20), (20, 3)], [(1, 1), (40, 12), (80, 24)], [(500, 200), (2, 5)]])
def test_t09_any_size(showcase: Program, sizes: list[tuple[int, int]]) -> None:
    with Terminal(showcase.argv, size=(80, 24), env=showcase.env) as terminal:
        for size in sizes:  # it starts at the first
            terminal.resize(*size)
            wait_until(lambda: b"?1049h" in terminal.output, 60)
            terminal.wait_quiet()
        terminal.resize(120, 40)
        terminal.wait_for("Quit", 60)
        terminal.send("q")
        assert terminal.wait_exit() == 0
        assert oracle(bytes(terminal.output)) == []


def test_t13_a_paste_and_a_flood_of_clicks_do_nothing(monitor: Program) -> None:
    with monitor.start() as terminal:
        for _ in range(40):
            terminal.send(b"\x1b[200~" + b"qgI" * 1365 + b"\x1b[201~")
            terminal.send(b"\x1b[<0;5;5M\x1b[<0;5;5m" * 100)
        assert terminal.process.poll() is None
        terminal.send("h")
        terminal.wait_for("MOVE", 20)
        terminal.send("escape")
        terminal.wait_for("Freeze")
        terminal.send("q")
        assert terminal.wait_exit() == 0


def test_no_mouse_asks_for_none(monitor: Program) -> None:
    with Program((*monitor.argv, "--no-mouse"), "Quit", env=monitor.env).start() as terminal:
        assert not modes_ever_on(terminal.output) & {1000, 1002, 1003, 1006}
