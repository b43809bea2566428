"""What stands between Textual and the terminal, on a real pty: output that does not fail, sizes that are never zero."""

from __future__ import annotations

import os
import pty
import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gputop.ui.terminal.driver import TerminalOutput, behind, queued, terminal_size


@pytest.mark.parametrize("blocking", [True, False])
def test_output_waits_for_a_slow_terminal_whatever_its_mode(blocking: bool) -> None:
    """Another program on the same terminal may have left it non-blocking."""
    master, slave = pty.openpty()
    os.set_blocking(slave, blocking)
    text = "".join(f"{number:07}" for number in range(20_000))
    output = TerminalOutput(slave)
    output.write(text)
    writer = threading.Thread(target=output.flush)
    writer.start()
    read = b""
    while len(read) < len(text):
        read += os.read(master, 4096)
    writer.join(5)
    assert read.decode() == text
    os.close(master)
    os.close(slave)


def test_t03_output_to_a_dead_line_is_dropped() -> None:
    master, slave = pty.openpty()
    os.close(master)
    output = TerminalOutput(slave)
    output.write("x")
    output.flush()
    os.close(slave)


@pytest.mark.parametrize(("encoding", "written"), [("utf-8", "é✓".encode()), ("latin-1", b"\xe9?"), ("ascii", b"??")])
def test_t12_output_never_fails_on_a_character(monkeypatch: pytest.MonkeyPatch, encoding: str, written: bytes) -> None:
    read, write = os.pipe()
    monkeypatch.setattr("sys.__stdout__", SimpleNamespace(encoding=encoding))
    output = TerminalOutput(write)
    output.write("é✓")
    output.flush()
    assert os.read(read, 99) == written
    os.close(read)
    os.close(write)


def test_an_app_without_a_driver_is_not_behind() -> None:
    for app in (SimpleNamespace(_driver=None), SimpleNamespace(_driver=SimpleNamespace())):
        assert queued(cast("Any", app)) == 0
        assert not behind(cast("Any", app))


def test_t09_size_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.get_terminal_size", lambda _fd: os.terminal_size((0, 0)))
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setenv("LINES", "0")
    assert terminal_size() == (80, 24)
    monkeypatch.setenv("COLUMNS", "132")
    assert terminal_size() == (132, 24)
