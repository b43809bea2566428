"""Alerts of the full-screen monitor on a real terminal: it notifies, says which receiver is dead, and goes on."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.http_receiver import HttpReceiver, nobody
from tests.real_processes import until
from tests.terminal_endings import Program, assert_well

ARGV = (sys.executable, "-m", "gputop", "--no-nvml", "--interval", "0.25")
ALWAYS = 'metric = "host.cpus_total"\nabove = 0\nfor = 0\n'


def settings(folder: Path, *tables: str) -> Path:
    path = folder / "config.toml"
    path.write_text("\n".join(tables))
    path.chmod(0o600)
    return path


def test_f13_the_screen_notifies_and_names_a_receiver_that_does_not_answer(tmp_path: Path) -> None:
    path = settings(
        tmp_path,
        '[receivers.here]\ntype = "terminal"\nhow = "osc9"',
        f'[receivers.dead]\ntype = "slack"\nurl = "{nobody()}"',
        f'[alerts.cpus]\n{ALWAYS}send = ["here", "dead"]',
    )
    env = {"XDG_STATE_HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)}
    with Program((*ARGV, "--config", str(path)), "alerts to dead are not delivered", env=env).start() as terminal:
        terminal.wait_for("alerts to dead are not delivered: Connection refused")
        until(lambda: b"\x1b]9;gputop: WARN " in bytes(terminal.output))
        assert b"pathsecret" not in bytes(terminal.output)
        terminal.send("q")
        assert terminal.wait_exit() == 0
        assert_well(terminal)


def test_f13_t15_a_receiver_that_hangs_keeps_nobody_from_leaving(tmp_path: Path) -> None:
    with HttpReceiver() as server:
        server.then(server.hang)
        path = settings(
            tmp_path,
            f'[receivers.dead]\ntype = "slack"\nurl = "{server.url()}"',
            f'[alerts.cpus]\n{ALWAYS}send = "dead"',
        )
        env = {"XDG_STATE_HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)}
        with Program((*ARGV, "--config", str(path)), "F1 Help", env=env).start() as terminal:
            until(lambda: server.got)
            terminal.send("q")
            assert terminal.wait_exit() == 0
            assert_well(terminal)


def test_a_demo_on_the_screen_alerts_nobody(tmp_path: Path) -> None:
    with HttpReceiver() as server:
        path = settings(
            tmp_path, f'[receivers.team]\ntype = "slack"\nurl = "{server.url()}"', f'[alerts.x]\n{ALWAYS}send = "team"'
        )
        env = {"XDG_STATE_HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)}
        argv = (sys.executable, "-m", "gputop", "--config", str(path), "demo", "thermal")
        with Program(argv, "thermal slowdown", env=env).start() as terminal:
            terminal.send("q")
            assert terminal.wait_exit() == 0
        assert server.got == []
