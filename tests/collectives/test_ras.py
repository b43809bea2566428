"""NCCL's RAS: answers in the format of its source, from a real TCP server on loopback, read for the ranks behind."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gputop.collectives import ras
from gputop.collectives.local_server import NoReply
from gputop.paste import read
from gputop.report import Do
from tests.hostile import STRINGS
from tests.process_watch import python

HERE = Path(__file__).parent / "ras"
NAMES = sorted(path.stem for path in HERE.iterdir())
LABELS = {41210: "rank 3 (ours)"}


def answer(name: str) -> str:
    return (HERE / f"{name}.txt").read_text()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "mismatch-2.24",
            ["NCCL RAS: ranks 0, 2, 3, 4, 5, 7 launched 6,649 collectives, the others 6,650,"
             " in communicator 27a079b828ff1a75."],
        ),
        (
            "mismatch-2.27",
            [
                "NCCL RAS: rank 1 (process 41208 on 10.0.0.7) launched 1 AllGather operation, the others 0,"
                " in communicator 8c1f4e2a90b7d355.",
                "NCCL RAS: rank 3 (ours) (process 41210 on 10.0.0.7) launched 4,710 AllReduce operations,"
                " the others 4,711, in communicator 8c1f4e2a90b7d355.",
            ],
        ),
        (
            "halves-2.27",
            ["NCCL RAS: ranks launched different numbers of AllReduce operations: 2 ranks 11, 2 ranks 12,"
             " in communicator 8c1f4e2a90b7d355."],
        ),
        (
            "pair-2.28",
            ["NCCL RAS: rank 1 (process 701 on 127.0.0.1) launched 4 AllReduce operations, the others 5,"
             " in communicator 31f00c2277aa09e1."],
        ),
        ("healthy-2.27", []),
        (
            "incomplete-2.27",
            ["NCCL RAS: process 3487984 on 172.16.64.213 is not answering.",
             "NCCL RAS: process 3487981 on 172.16.64.213 is considered dead."],
        ),
    ],
)  # fmt: skip
def test_the_ranks_behind_are_named(name: str, said: list[str]) -> None:
    assert ras.sentences(ras.parse(answer(name)), LABELS) == said


@pytest.mark.parametrize("name", NAMES)
def test_an_answer_that_ends_early_is_not_used(name: str) -> None:
    text = answer(name)
    with pytest.raises(NoReply):
        ras.parse(text[: text.index("Warnings")])


@pytest.mark.parametrize("name", NAMES)
def test_whatever_stands_in_a_line_is_sanitized(name: str) -> None:
    lines = answer(name).split("\n")
    for hostile in STRINGS:
        for at in range(len(lines)):
            changed = [
                *lines[:at],
                lines[at].replace("on node 1", f"on node {hostile.replace(' ', '')}1"),
                *lines[at + 1 :],
            ]
            try:
                status = ras.parse("\n".join(changed))
            except NoReply:
                continue
            assert all(one.isprintable() for one in ras.sentences(status, {}))


@pytest.mark.parametrize("name", NAMES)
def test_a_pasted_status_is_explained(name: str) -> None:
    found = read(answer(name))
    assert found is not None
    assert (found.kind, found.about[:31]) == (
        "nccl-ras",
        f"A status of NCCL's RAS, NCCL {name.rpartition('-')[2]}"[:31],
    )
    severities = {
        "healthy-2.27": ["fine"],
        "incomplete-2.27": ["crit", "crit"],  # processes that do not answer
        "mismatch-2.27": ["warn", "warn"],
    }
    assert [point.severity for point in found.points] == severities.get(name, ["warn"])


def test_counts_of_one_status_may_be_of_a_job_that_advances() -> None:
    """It says so as the first step, once, and names the ranks that the next step is about."""
    for name in ("mismatch-2.24", "mismatch-2.27", "halves-2.27"):
        found = read(answer(name))
        assert found is not None
        assert [bool(point.steps) for point in found.points] == [False] * (len(found.points) - 1) + [True]
        first, then = found.points[-1].steps
        assert str(first).startswith("Take the status twice, 10 s apart: ")
        assert isinstance(then, Do)
        assert "the ranks that launched fewer" in then.text
        assert then.command == "gputop stack --job PID"


def test_a_dead_process_has_no_stack_to_look_at() -> None:
    found = read(answer("incomplete-2.27"))
    assert found is not None
    assert [point.text for point in found.points] == [
        "Process 3487984 on 172.16.64.213 is not answering.",
        "Process 3487981 on 172.16.64.213 is considered dead.",
    ]
    (step,) = [step for point in found.points for step in point.steps]
    assert isinstance(step, Do)
    assert step.text.startswith("Check on their hosts whether the processes run")


@contextmanager
def serving(act: Callable[[socket.socket], None]) -> Iterator[dict[int, dict[str, str]]]:
    """A server of this process on loopback, as the environment of its process names it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(20)

        def serve() -> None:
            try:
                connected, _ = server.accept()
            except OSError:
                return
            with connected:
                try:
                    act(connected)
                except OSError:
                    pass  # the client has left

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield {os.getpid(): {ras.ADDRESS: f"localhost:{server.getsockname()[1]}"}}
        thread.join(20)


def told(name: str) -> Callable[[socket.socket], None]:
    """Speaks as NCCL does: a line for each command, then the status, then the end."""

    def act(connected: socket.socket) -> None:
        got = b""
        while got.count(b"\n") < 3:
            got += connected.recv(1000)
        assert got == b"CLIENT PROTOCOL 2\nTIMEOUT 2\nVERBOSE STATUS\n"
        connected.sendall(b"SERVER PROTOCOL 2\nOK\n" + answer(name).encode())

    return act


def test_the_port_of_a_job_is_asked() -> None:
    with serving(told("mismatch-2.27")) as environs:
        status = ras.status(environs)
    assert status is not None
    assert [one.operation for one in status.mismatches] == ["AllGather", "AllReduce"]
    assert ras.as_json(status)["mismatches"][1]["behind"] == [
        {"rank": 3, "launched": 4710, "pid": 41210, "node": "10.0.0.7"}
    ]


def test_a_job_that_does_not_listen_is_not_asked() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        other = f"localhost:{server.getsockname()[1] ^ 1}"
        assert ras.status({os.getpid(): {ras.ADDRESS: other}}) is None
    with socket.create_server(("0.0.0.0", 0)) as server:  # another program's: RAS listens on one address
        assert ras.status({os.getpid(): {ras.ADDRESS: f"localhost:{server.getsockname()[1]}"}}) is None


def test_a_port_that_two_jobs_share_is_not_asked() -> None:
    with serving(told("healthy-2.27")) as environs:
        (pid,) = environs
        port = ras.port(environs[pid])
        code = f"""
import socket, time
held = socket.socket()
held.bind(("127.0.0.2", {port}))
held.listen()
print("ready", flush=True)
time.sleep(60)
"""
        with python(code), pytest.raises(NoReply, match="is shared with another job"):
            ras.status(environs)
        assert ras.status(environs) is not None


def _slow(connected: socket.socket) -> None:
    for byte in answer("mismatch-2.27").encode():
        connected.sendall(bytes([byte]))
        time.sleep(0.05)


def _endless(connected: socket.socket) -> None:
    while True:
        connected.sendall(b"Rank 3 has launched up to operation 1\n" * 1000)


@pytest.mark.parametrize(
    ("act", "why"),
    [
        (lambda connected: connected.recv(1), "not a status|connection lost"),
        (lambda connected: connected.sendall(b"\x00\xff\x1b]0;x\x07" * 1000), "not a status|connection lost"),
        (lambda connected: connected.sendall(b"ERROR: Unknown command\n"), "not a status|connection lost"),
        (_slow, "no complete answer within 6 s"),
        (_endless, "larger than 4 MiB"),
    ],
)
def test_a_hostile_answer_is_refused_in_bounded_time(act: Callable[[socket.socket], None], why: str) -> None:
    with serving(act) as environs, pytest.raises(NoReply, match=why):
        ras.status(environs)
