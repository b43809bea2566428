"""With more than a thousand files open, as where jobs have many threads, all that waits for something goes on to."""

from __future__ import annotations

import os
import resource
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gputop.agent_client import Agent, AgentLost
from gputop.safe.deadline import readable
from tests.terminal_endings import Program, assert_given_back

MANY = 1100


@pytest.fixture
def crowded() -> Iterator[None]:
    """What is opened from now on has a number from 1024 on."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if before[1] != resource.RLIM_INFINITY and before[1] < 2 * MANY:
        pytest.skip(f"no more than {before[1]} files may be open here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(before[0], 2 * MANY), before[1]))
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(MANY)]
    yield
    for file in held:
        os.close(file)
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_what_can_be_read_is_found_whatever_its_number(crowded: None) -> None:
    ours, theirs = socket.socketpair()
    silent, _kept = socket.socketpair()
    with ours, theirs, silent, _kept:
        assert ours.fileno() > 1023
        assert readable([ours, silent], 0.0) == []
        theirs.sendall(b"x")
        assert readable([silent, ours], 10.0) == [ours]
        ours.recv(1)
        theirs.close()
        assert readable([silent, ours], 10.0) == [ours], "its end is to be read"


def test_an_agent_is_listened_to(crowded: None) -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        theirs.sendall(b'{"agent": "gputop"}\n')
        agent = Agent(ours)
        assert agent.fileno() > 1023
        assert agent.hello == {"agent": "gputop"}
        theirs.sendall(b'{"state": "waiting"}\n')
        assert next(agent.wait(10.0)) == {"state": "waiting"}
        theirs.close()
        with pytest.raises(AgentLost):
            next(agent.wait(10.0))
        agent.close()


def test_the_screen_opens_and_gives_the_terminal_back(crowded: None, tmp_path: Path) -> None:
    """Ours has the many files, and so has the terminal that looks at it."""
    code = f"import os; held = [os.open(os.devnull, 0) for _ in range({MANY})]; from gputop.cli import main; main()"
    argv = (sys.executable, "-c", code, "demo", "healthy")
    with Program(argv, "q Quit", env={"XDG_STATE_HOME": str(tmp_path)}).start() as terminal:
        assert terminal.master > 1023
        terminal.send("q")
        assert terminal.wait_exit() == 0
        assert_given_back(terminal)
