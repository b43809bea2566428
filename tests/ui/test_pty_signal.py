"""Signals on a real terminal: real processes on fake GPUs, ended by keys, while the list changes; and a demo."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.fakenvml import Fake
from tests.oracle import oracle
from tests.process_watch import built, running
from tests.pty_programs import Terminal
from tests.real_processes import program, unharmed
from tests.terminal_endings import assert_given_back

pytestmark = pytest.mark.waits

ARGV = (sys.executable, "-m", "gputop")
WAITS = "print(flush=True); signal.pause()"
DEAF = "signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); signal.pause()"
VRAM = 70 << 30  # more than anything else on this machine: sorted by it, it is the first line


@contextmanager
def monitor(fake: Fake, pid: int, *flags: str, everybody: str = "0") -> Iterator[Terminal]:
    """gputop, with the cursor on a process of ours and on no other."""
    fake.add_process(gpu=2, pid=pid, vram_bytes=VRAM, sm=57)
    env = fake.env(XDG_STATE_HOME=str(fake.folder), XDG_CONFIG_HOME=str(fake.folder), GPUTOP_EVERY_PROCESS=everybody)
    with Terminal([*ARGV, "--interval", "0.25", *flags], env=env) as terminal:
        terminal.wait_for("live")
        terminal.send("N", "V", "f5", "home")
        terminal.wait_for(lambda lines: " flat · VRAM" in "\n".join(lines))
        terminal.wait_for("70.0G", 20)
        yield terminal


def asks(terminal: Terminal, pid: int, key: str = "f9") -> None:
    """The dialog is about our process; if not, nothing more is pressed."""
    terminal.send(key)
    terminal.wait_for(f"to    {pid}  ")
    terminal.wait_for("[ Cancel ]")


def test_a_process_is_ended_by_keys(fake: Fake) -> None:
    with program(WAITS) as (pid, _), monitor(fake, pid) as terminal:
        asks(terminal, pid)
        terminal.send("enter")
        terminal.wait_for(lambda lines: "Cancel" not in "\n".join(lines))
        assert unharmed(pid)
        asks(terminal, pid, "k")
        terminal.send("right")
        terminal.wait_for("[ Send TERM to 1 process ]")
        terminal.send("enter")
        terminal.wait_for(f"{pid} exited after 0.")
        terminal.send("q")
        assert terminal.wait_exit() == 0
        assert_given_back(terminal)


def test_a02_it_is_pressed_while_processes_come_and_go(fake: Fake, tmp_path: Path) -> None:
    births = subprocess.Popen([built("workloads/births.c", tmp_path), "2000", "8"], stdout=subprocess.DEVNULL)
    try:
        with program(WAITS) as (other, _), program(WAITS) as (pid, _), monitor(fake, pid, everybody="1") as terminal:
            asks(terminal, pid)
            first = terminal.text()
            # it falls back to the end of the list, and another process is the first line
            fake.remove_process(pid)
            fake.add_process(gpu=3, pid=other, vram_bytes=VRAM, sm=57)
            terminal.wait_for(lambda lines: "\n".join(lines) != first)
            terminal.send("right", "enter")
            terminal.wait_for(f"{pid} exited after 0.")
            assert unharmed(other)
    finally:
        births.kill()
        births.wait()


def test_a01_it_ends_while_the_dialog_is_open(fake: Fake) -> None:
    with program(WAITS) as (pid, _), monitor(fake, pid) as terminal:
        asks(terminal, pid)
        os.kill(pid, signal.SIGKILL)
        # a signal is queued at once, and the process ends a moment later: until then TERM would still reach it
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        terminal.send("right", "enter")
        terminal.wait_for(f"nothing sent to {pid}: it exited")


def test_who_does_not_listen_is_still_there_and_kill_is_offered(fake: Fake) -> None:
    with program(DEAF) as (pid, _), monitor(fake, pid) as terminal:
        asks(terminal, pid)
        terminal.wait_for(f"! {pid} ignores TERM")
        terminal.send("right", "enter")
        terminal.wait_for(f"TERM sent · {pid} · 2 s")
        terminal.send("g")  # the monitor goes on meanwhile
        terminal.wait_for("GPUs: card")
        terminal.wait_for(f"{pid} is still running after 10 s · KILL? press F9 · {pid} ignores TERM", 20)
        asks(terminal, pid)
        terminal.wait_for("(•)  9 KILL")
        terminal.send("right", "enter")
        terminal.wait_for(f"KILL kills {pid} immediately, unsaved work is lost: sure?")
        assert unharmed(pid)
        terminal.send("right", "enter")
        terminal.wait_for(f"{pid} exited after 0.")


def test_a03_read_only_touches_nobody(fake: Fake) -> None:
    with program(WAITS) as (pid, _), monitor(fake, pid, "--readonly") as terminal:
        before = os.getpriority(os.PRIO_PROCESS, pid)
        terminal.send("f8")
        terminal.wait_for("gputop was started with --readonly")
        terminal.send("escape")
        terminal.wait_for(" flat · VRAM")
        terminal.send("f9")
        terminal.wait_for("gputop was started with --readonly")
        terminal.send("right", "enter", "enter")
        terminal.wait_for("Send TERM ]")
        assert unharmed(pid)
        assert os.getpriority(os.PRIO_PROCESS, pid) == before


def test_a_click_sends_too(fake: Fake) -> None:
    with program(WAITS) as (pid, _), monitor(fake, pid) as terminal:
        asks(terminal, pid)
        lines = terminal.screen()
        y = next(place for place, line in enumerate(lines) if "Send TERM" in line)
        x = lines[y].index("Send TERM") + 2
        terminal.send(f"\x1b[<0;{x};{y + 1}M\x1b[<0;{x};{y + 1}m")
        terminal.wait_for(f"{pid} exited after 0.")


def test_hostile_names_in_the_dialog_are_clean(fake: Fake) -> None:
    hostile = "\x1b]0;owned\x07\x1b[2J\u202e[red]"
    child = running(hostile, "-S", "-c", "input()", program=sys.executable, stdin=subprocess.PIPE)
    with child as process, monitor(fake, process.pid) as terminal:
        asks(terminal, process.pid)
        assert "␛]0;owned␇␛[2J�[red] -S -c input()" in terminal.text()
        terminal.send("escape")
        terminal.wait_for(lambda lines: "Cancel" not in "\n".join(lines))
        terminal.send("q")
        assert terminal.wait_exit() == 0
        assert oracle(bytes(terminal.output)) == []


def test_in_a_demo_nothing_can_be_sent(tmp_path: Path) -> None:
    env = {"XDG_STATE_HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
    with Terminal([*ARGV, "demo", "showcase"], size=(80, 24), env=env) as terminal:
        terminal.wait_for("llama-7b", 30)
        asks(terminal, 41207)
        terminal.wait_for("nothing can be sent: these processes belong to a demo, not to this machine")
        terminal.send("right", "enter", "enter", "escape")
        terminal.wait_for(lambda lines: "Cancel" not in "\n".join(lines))
