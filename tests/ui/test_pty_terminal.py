"""The driver and the guard on a real pty, under the smallest app: whatever ends it, the terminal is given back."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from tests import terminal_endings
from tests.oracle import modes_ever_on
from tests.pty_programs import Terminal, wait_until
from tests.terminal_endings import Program

pytestmark = pytest.mark.waits

RESET = f"{sys.executable} -c 'from gputop.safe.terminal import reset_terminal; reset_terminal()'"
SIGNALS = [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGINT]


@pytest.fixture
def tiny(tmp_path: Path) -> Program:
    return Program((sys.executable, "-m", "tests.tinyapp"), "ready", env={"XDG_STATE_HOME": str(tmp_path)})


def no_crash(program: Program) -> bool:
    return not list(Path(str(program.env["XDG_STATE_HOME"]), "gputop").iterdir())


def test_t01_q_gives_the_terminal_back(tiny: Program) -> None:
    terminal_endings.ends_by_key(tiny)
    assert no_crash(tiny)


@pytest.mark.parametrize("number", SIGNALS, ids=lambda n: n.name)
def test_t01_a_signal_gives_the_terminal_back(tiny: Program, number: int) -> None:
    terminal_endings.ends_by_signal(tiny, number)
    assert no_crash(tiny)


@pytest.mark.parametrize(
    ("first", "second"), [(signal.SIGTERM, signal.SIGINT), (signal.SIGHUP, signal.SIGTERM), (signal.SIGINT,) * 2]
)
def test_t01_a_second_signal_while_it_leaves(tiny: Program, first: int, second: int) -> None:
    terminal_endings.ends_by_second_signal(tiny, first, second)


def test_t01_a_blocked_event_loop_ends_two_seconds_after_a_signal(tiny: Program) -> None:
    with tiny.start() as terminal:
        terminal.send("b")
        terminal.wait_quiet()
        terminal.signal(signal.SIGTERM)
        assert terminal.wait_exit(3.0) == 128 + signal.SIGTERM
        terminal_endings.assert_given_back(terminal)


def test_t01_a_blocked_event_loop_ends_at_once_after_a_second_signal(tiny: Program) -> None:
    terminal_endings.ends_by_second_signal(tiny, signal.SIGTERM, signal.SIGINT, block="b")


def test_t01_ctrl_c_inside_is_a_key(tiny: Program) -> None:
    with tiny.start() as terminal:
        terminal.send("ctrl+c")
        time.sleep(0.5)
        assert terminal.process.poll() is None
        terminal.send("q")
        assert terminal.wait_exit() == 0


def test_t02_the_next_start_heals_the_terminal(tiny: Program) -> None:
    terminal_endings.heals_at_the_next_start(tiny)


def test_t02_sigkill_gives_the_terminal_back(tiny: Program) -> None:
    terminal_endings.gives_back_after_sigkill(tiny)


def test_t02_reset_terminal_heals_it(tiny: Program) -> None:
    terminal_endings.heals_by_command(tiny, [RESET])


@pytest.mark.parametrize(("ignore_hup", "suspended"), [(False, False), (True, False), (False, True)])
def test_t03_a_vanished_terminal_ends_it(tiny: Program, ignore_hup: bool, suspended: bool) -> None:
    terminal_endings.ends_with_its_line(tiny, ignore_hup, suspended)
    assert no_crash(tiny)


def test_t04_no_terminal_no_screen(tiny: Program) -> None:
    terminal_endings.refuses_without_a_terminal(tiny)


def test_t10_a_dumb_terminal_is_refused(tiny: Program) -> None:
    terminal_endings.refuses_a_dumb_terminal(tiny)


def test_t05_term_while_the_terminal_does_not_read(tiny: Program) -> None:
    terminal_endings.ends_while_stalled(tiny, lambda _, pid: os.kill(pid, signal.SIGTERM), 128 + signal.SIGTERM)


def test_t05_a_whole_picture_after_a_stall(tiny: Program) -> None:
    terminal_endings.goes_on_after_a_stall(tiny, 6, "frames were dropped")


def test_t18_q_while_the_terminal_does_not_read(tiny: Program) -> None:
    terminal_endings.ends_while_stalled(tiny, lambda terminal, _: terminal.send("q"), 0)


def test_t06_ctrl_z_and_fg_ten_times(tiny: Program) -> None:
    terminal_endings.suspends_and_resumes(tiny, 10)


def test_t06_a_shell_gets_its_terminal_back(tiny: Program) -> None:
    terminal_endings.leaves_the_shell_its_terminal(tiny)


def test_t15_q_while_a_thread_hangs_in_c(tiny: Program) -> None:
    terminal_endings.ends_by_key(tiny, within=1.0, first="h")


def test_t14_a_failing_widget_ends_it_with_one_line_and_a_private_file(tiny: Program, tmp_path: Path) -> None:
    with tiny.start() as terminal:
        terminal.send("w")
        assert terminal.wait_exit() == 1
        terminal_endings.assert_given_back(terminal)
        terminal.wait_for("internal error in the screen: ValueError: widget --password=***")
        report = terminal_endings.wait_crash_file(tmp_path)
        assert "action_do" in report
        assert "hunter2" not in report + terminal.text()
        assert "\x1b" not in report
        assert "Traceback" not in terminal.text()


def test_t14_a_failing_thread_says_so_on_the_screen_that_goes_on(tiny: Program, tmp_path: Path) -> None:
    with tiny.start() as terminal:
        terminal.send("t")
        terminal.wait_for("internal error")
        assert "hunter2" not in terminal_endings.wait_crash_file(tmp_path)
        seen = terminal.text()
        terminal.wait_for(lambda lines: "\n".join(lines) != seen)
        terminal.send("q")
        assert terminal.wait_exit() == 0
        terminal_endings.assert_given_back(terminal)
        assert "hunter2" not in terminal.output.decode()


def test_n11_a_fault_in_c_leaves_its_stacks_and_the_next_start_heals(tiny: Program, tmp_path: Path) -> None:
    with tiny.start() as terminal:
        terminal.signal(signal.SIGSEGV)
        assert terminal.wait_exit() == -signal.SIGSEGV
        (report,) = tmp_path.glob("gputop/fault-*")
        assert "Segmentation fault" in report.read_text()
        assert b"Segmentation" not in terminal.output
    terminal_endings.ends_by_key(tiny)


def test_p23_without_a_home_it_runs_and_leaves_no_file() -> None:
    tiny = Program((sys.executable, "-m", "tests.tinyapp"), "ready", env={"HOME": None})
    with tiny.start() as terminal:
        terminal.send("w")
        assert terminal.wait_exit() == 1
        terminal.wait_for(lambda lines: "HOMEisnotset" in "".join(lines).replace(" ", ""))


def test_no_mouse_asks_for_none(tiny: Program) -> None:
    with Program((*tiny.argv, "--no-mouse"), "ready", env=tiny.env).start() as terminal:
        assert not modes_ever_on(terminal.output) & {1000, 1002, 1003, 1006}


@pytest.mark.parametrize(
    ("size", "env", "shown"),
    [
        ((0, 0), {}, "80x24"),
        ((0, 0), {"COLUMNS": "100", "LINES": "30"}, "100x30"),
        ((0, 0), {"COLUMNS": "many", "LINES": "0"}, "80x24"),
        ((90, 20), {"COLUMNS": "100", "LINES": "30"}, "90x20"),
    ],
)
def test_t09_a_terminal_without_a_size(tiny: Program, size: tuple[int, int], env: dict[str, str], shown: str) -> None:
    with Terminal(tiny.argv, size=(100, 30), env={**tiny.env, **env}, before_exec=None) as terminal:
        terminal.resize(*size)
        terminal.wait_for(shown, 20)


def test_t08_a_resize_is_followed(tiny: Program) -> None:
    with tiny.start() as terminal:
        for size in ((60, 20), (1, 1), (200, 60), (33, 7), (100, 30)):
            terminal.resize(*size)
        terminal.wait_for("100x30")
        terminal.send("q")
        assert terminal.wait_exit() == 0


GARBAGE = (
    bytes(range(256)) * 5,
    b"\xff\xfe\x80" * 1000,
    b"\x1b[48;0;0;0;0t\x1b[<0;0;0M\x1b[<99999999999999999999;1;1M",
    b"\x1b[200~" + b"q" * 1_000_000 + b"\x1b[201~",
    b"\x1b[",
)


def test_t13_garbage_from_the_keyboard(tiny: Program) -> None:
    with tiny.start() as terminal:
        for raw in GARBAGE:
            keys = raw.translate(None, b"qwthbl\x10\x11\x1a") if b"200~" not in raw else raw
            for start in range(0, len(keys), 1024):
                terminal.send(keys[start : start + 1024])
            time.sleep(0.3)
            assert terminal.process.poll() is None, raw[:20]
            assert "120x40" in terminal.text()
            terminal.send("\x1b", "\x1b")

        def left() -> bool:  # read in one breath with Esc, q is Alt+q
            terminal.send("q")
            time.sleep(0.3)
            return terminal.process.poll() is not None

        wait_until(left, terminal_endings.PATIENCE_S)
        assert terminal.wait_exit() == 0
        terminal_endings.assert_given_back(terminal)


def test_an_idle_terminal_costs_no_wakeups(tiny: Program) -> None:
    """Only the loop and the writer work while nobody types: neither the guard nor the keyboard polls."""
    with tiny.start() as terminal:
        time.sleep(2)
        tasks = list(Path(f"/proc/{terminal.pid}/task").iterdir())

        def switches() -> list[str]:
            return [(task / "status").read_text().partition("voluntary_ctxt_switches:")[2].split()[0] for task in tasks]

        before = switches()
        time.sleep(1)
        awake = sum(old != new for old, new in zip(before, switches(), strict=True))
        assert (len(tasks), awake) == (4, 2)
