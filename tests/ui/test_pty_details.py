"""The details of a process on a real terminal: the demo's, and those of a real process."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.oracle import oracle
from tests.process_watch import need_namespaces
from tests.terminal_endings import Program, assert_given_back

ARGV = (sys.executable, "-m", "gputop")
CODE = """
import sys, threading, time
open_one = open(sys.argv[1], "w")
def work():
    with open(f"/proc/self/task/{threading.get_native_id()}/comm", "w") as name:
        name.write("deep-thinker")
    time.sleep(600)
threading.Thread(target=work, daemon=True).start()
time.sleep(600)
"""


def test_enter_tabs_and_esc(tmp_path: Path) -> None:
    program = Program((*ARGV, "demo", "showcase"), "Quit", env={"XDG_STATE_HOME": str(tmp_path)})
    with program.start() as terminal:
        terminal.wait_for("llama-7b")
        terminal.send("enter")
        terminal.wait_for("[1 Threads]")
        terminal.wait_for("pt_autograd_0")
        for key, text in (("2", "SINCE START"), ("3", "the whole GPU"), ("5", "torchrun"), ("8", "resident memory")):
            terminal.send(key)
            terminal.wait_for(text)
        terminal.send("escape")
        terminal.wait_for("F6 Sort")
        terminal.send("q")
        assert terminal.wait_exit() == 0
        assert_given_back(terminal)
        assert oracle(bytes(terminal.output)) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="not covered: a pid namespace of its own needs root")
def test_a_real_process_shows_its_thread_its_file_and_its_end(tmp_path: Path) -> None:
    need_namespaces("--pid", "--fork", "--mount-proc")
    (tmp_path / "gputop").mkdir()
    (tmp_path / "gputop/config.toml").write_text("every_process = true\n")
    script, held = tmp_path / "thinks.py", tmp_path / "held-open.txt"
    script.write_text(CODE)
    # 1 is the shell and then gputop, 2 is the process: the list by pid has them in this order
    shell = f"{sys.executable} {script} {held} & exec {' '.join(ARGV)} --no-nvml"
    argv = ("unshare", "--pid", "--fork", "--mount-proc", "sh", "-c", shell)
    env = {"XDG_STATE_HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path), "A_SECRET_TOKEN": "hunter2"}
    with Program(argv, "Quit", env=env).start() as terminal:
        terminal.wait_for(lambda lines: any(line.split()[:1] == ["2"] for line in lines))
        terminal.send("N", "home", "down")
        terminal.send("enter")
        terminal.wait_for("deep-thinker")
        assert "> 2 " in terminal.screen()[0]
        terminal.send("l")
        terminal.wait_for(lambda lines: any(line.split()[1:3] == ["file", "w"] for line in lines))
        terminal.send("e")
        terminal.wait_for("A_SECRET_TOKEN")
        assert "hunter2" not in terminal.text()
        terminal.send("q")
        assert terminal.wait_exit() == 0
        assert oracle(bytes(terminal.output)) == []
