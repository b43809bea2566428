"""Clients that send without end: a turn of the agent answers few of them, and who does not wait for replies goes."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType
from typing import Any

import pytest

from tests.process_watch import ROOT
from tests.traced_jobs import scratch

# the modules of the agent, without the agent that `import gputop.agent` starts
sys.modules["agent_alone"] = ModuleType("agent_alone")
sys.modules["agent_alone"].__path__ = [str(ROOT / "gputop/agent")]
serving, connection, answers = (import_module(f"agent_alone.{name}") for name in ("server", "connection", "answers"))
Server, Connection, MOST_MESSAGES = serving.Server, connection.Connection, connection.MOST_MESSAGES

PING = b'{"op": "ping"}\n'


class Clock:
    """CPU time of the agent's thread and the time of day: what each message costs is said by the test."""

    def __init__(self) -> None:
        self.now_s, self.used_s, self.message_s = 100.0, 0.0, 0.0

    def monotonic(self) -> float:
        return self.now_s

    def thread_time(self) -> float:
        return self.used_s

    def time(self) -> float:
        return time.time()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(serving, "time", clock)
    return clock


@pytest.fixture
def server(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    answer = Server._answer

    def costly(self: Any, connection: Any, line: bytes) -> object:
        clock.used_s += clock.message_s
        return answer(self, connection, line)

    monkeypatch.setattr(Server, "_answer", costly)
    with scratch() as folder:
        monkeypatch.setenv("GPUTOP_RUNTIME_DIR", f"{folder}/run")
        server = Server("test")
        yield server
        server.abandon()
        os.unlink(server._path)


def client(server: Any) -> socket.socket:
    """One that is connected and was greeted."""
    found = socket.socket(socket.AF_UNIX)
    found.connect(server._path)
    turn(server)
    assert json.loads(found.recv(4096))["hello"] == "gputop-agent"
    return found


def turn(server: Any) -> int:
    return server.turn([key for key, _ in server._selector.select(0)])


@pytest.mark.parametrize("sent", [b"\n" * 65_000, PING * (MOST_MESSAGES + 1), b"x" * 70_000, b"{}\n" * 20_000])
def test_who_floods_is_dropped_before_anything_is_answered(server: Any, sent: bytes) -> None:
    with client(server) as flood:
        flood.setblocking(False)
        flood.send(sent)
        assert turn(server) + turn(server) == 0  # one that is too long comes in two parts
        assert not server._connections
        assert flood.recv(4096) == b""


def test_a_turn_answers_what_its_budget_allows_and_then_rests(server: Any, clock: Clock) -> None:
    clock.message_s = 0.002
    with client(server) as asking, client(server) as other:
        asking.sendall(PING * MOST_MESSAGES)
        other.sendall(PING)
        assert turn(server) == 3  # 5 ms are spent by the third
        assert json.loads(other.recv(4096)) == {"state": "here"}  # it does not stand behind the sixteen of the first
        assert server._rests_s - clock.now_s == pytest.approx(19 * 0.006)
        turns = 1
        while server._asked():
            assert 1 <= turn(server) <= 3
            turns += 1
        assert turns == 6
        assert asking.recv(1 << 16).count(b"\n") == MOST_MESSAGES


def test_one_dear_message_a_turn(server: Any, clock: Clock) -> None:
    clock.message_s = 0.5
    with client(server) as asking:
        asking.sendall(PING * 3)
        assert [turn(server) for _ in range(4)] == [1, 1, 1, 0]
        assert server._rests_s - clock.now_s == pytest.approx(19 * 0.5)


def test_while_it_rests_it_hears_no_client_but_its_own_thread(server: Any, clock: Clock) -> None:
    with client(server) as asking:
        asking.sendall(PING)
        server._rests_s = clock.now_s + 0.001
        server.wake()
        server._round()
        assert asking.setblocking(False) is None
        with pytest.raises(BlockingIOError):
            asking.recv(1)
        clock.now_s += 0.01
        server._round()
        assert json.loads(asking.recv(4096)) == {"state": "here"}


def test_a_number_without_end_is_no_json() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        asked = Connection(ours)
        theirs.sendall(b'{"op": "capture", "steps": ' + b"1" * 60_000 + b"}\n")
        asked.receive()
        with pytest.raises(Exception, match="not an object"):
            asked.request(asked.message())
        theirs.close()
        with pytest.raises(connection.Gone):
            asked.receive()


def test_stacks_are_bounded_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    def deep(left: int) -> list[dict[str, Any]]:
        if left:
            return deep(left - 1)
        frame = sys._getframe()
        monkeypatch.setattr(sys, "_current_frames", lambda: dict.fromkeys(range(300), frame))
        return list(answers.stacks())

    assert sum(len(each["frames"]) for each in deep(120)) == answers._MOST_IN_ALL
