"""PyTorch's debug server in a rank: the flight record that its worker server returns over HTTP.

`torch.distributed.debug.start_debug_server` starts a worker server in every rank, on a port of its choice;
`TORCH_WORKER_SERVER_SOCKET` one on a unix socket (torch/csrc/distributed/c10d/control_plane/WorkerServer.cpp).
Requests are read-only: handlers that profile are never asked. Nor is dump_nccl_trace_pickle, which has the lines of
the code: to find these, torch imports 822 modules of torch._inductor in the job, 6.6 s with torch 2.13. JSON needs no
GIL.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from functools import partial

from gputop.agent_client import root
from gputop.collectives.flight_record import FlightRecord, from_json
from gputop.collectives.local_server import Listener, NoReply, connect, connect_unix, exchange, listeners
from gputop.safe.deadline import NoAnswer, within
from gputop.safe.files import Refused

SOCKET = "TORCH_WORKER_SERVER_SOCKET"
ANSWERS_S = 3.0
_NAMES_S = 1.5  # for the names of its handlers: another kind of server may stay silent
LIMIT = 16 << 20  # bytes of a record: 30,000 collectives
_THREAD = b"pt_workerserver\n"  # the name of its threads
_LIST_LIMIT = 1 << 16
_HEAD_LIMIT = 1 << 14
_MOST_THREADS = 4096
_HANDLERS = ("dump_nccl_trace_json", "fr_trace_json")


class NoServer(Exception):
    """The process runs no debug server."""


def record(pid: int, uid: int | None, environ: Mapping[str, str]) -> FlightRecord:
    """The flight record of a rank from its debug server. NoServer if there is none, NoReply if it does not answer."""
    server = _server(pid, uid, environ)
    try:
        found = [from_json(server.post(name)) for name in _HANDLERS if name in server.handlers]
    except Refused as refused:
        raise NoReply(f"its answer: {refused}") from None
    if not found:
        raise NoReply("its torch offers no flight recorder")
    return FlightRecord(
        groups={key: group for one in found for key, group in one.groups.items()},
        version=found[0].version,
        library=next((one.library for one in found if one.library), ""),
        cut=sum(one.cut for one in found),
    )


class _Server:
    """A worker server, by where it listens."""

    def __init__(self, listener: Listener | None, path: str, pid: int, uid: int | None) -> None:
        self._listener, self._path, self._pid, self._uid = listener, path, pid, uid
        self.handlers = self._names()

    def post(self, handler: str) -> bytes:
        """The answer of a handler."""
        return self._ask(f"POST /handler/{handler}", LIMIT, ANSWERS_S)

    def _names(self) -> frozenset[str]:
        """The names of its handlers; NoReply if it is another kind of server."""
        try:
            names = json.loads(self._ask("GET /handler/", _LIST_LIMIT, _NAMES_S))
        except (ValueError, RecursionError):
            names = None
        if not isinstance(names, list) or "ping" not in names:
            raise NoReply("not a worker server of PyTorch")
        return frozenset(name for name in names if isinstance(name, str))

    def _ask(self, what: str, limit: int, seconds: float) -> bytes:
        head = f"{what} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
        got = exchange(
            self._connect(),
            head.encode("ascii"),
            seconds=seconds,
            limit=limit + _HEAD_LIMIT,
            complete=_Complete(),
        )
        return _body(got)

    def _connect(self) -> socket.socket:
        if self._listener is not None:
            return connect(self._listener, ANSWERS_S)
        try:
            return within(self._path, connect_unix, self._path, self._pid, self._uid, ANSWERS_S, seconds=ANSWERS_S)
        except NoAnswer:
            raise NoReply(f"the path in {SOCKET} does not respond") from None


class _Complete:
    """Whether an HTTP response has arrived as a whole, by its Content-Length."""

    def __init__(self) -> None:
        self._total: int | None = None

    def __call__(self, got: bytearray) -> bool:
        if self._total is None and (end := got.find(b"\r\n\r\n")) >= 0:
            length = _header(bytes(got[:end]), b"content-length")
            self._total = end + 4 + int(length) if length.isdigit() and len(length) < 12 else LIMIT * 2
        if self._total is None and len(got) > _HEAD_LIMIT:
            raise NoReply("its answer is not HTTP")
        return self._total is not None and len(got) >= self._total


def _body(got: bytes) -> bytes:
    """The body of a response; NoReply for another status than 200, or if it is cut."""
    head, end, body = got.partition(b"\r\n\r\n")
    status = head.partition(b"\r\n")[0].split(b" ")
    if not end or len(status) < 2 or not status[0].startswith(b"HTTP/1."):
        raise NoReply("its answer is not HTTP")
    if status[1] != b"200":
        raise NoReply(f"HTTP status {status[1][:3].decode('ascii', 'replace')}")
    length = _header(head, b"content-length")
    if not length.isdigit() or len(body) != int(length):
        raise NoReply("its answer is truncated")
    return body


def _header(head: bytes, name: bytes) -> bytes:
    """The value of a header; empty if it is missing."""
    for line in head.split(b"\r\n")[1:]:
        title, _, value = line.partition(b":")
        if title.strip().lower() == name:
            return value.strip()
    return b""


def _server(pid: int, uid: int | None, environ: Mapping[str, str]) -> _Server:
    """The worker server of a process: its unix socket, else a TCP port of a process with its threads."""
    path = environ.get(SOCKET, "")
    if os.path.isabs(path):
        return _Server(None, root(pid) + path, pid, uid)
    if not _runs(pid):
        raise NoServer
    master = environ.get("MASTER_PORT", "")
    why: NoReply | None = None
    for one in listeners(pid):
        # gloo and NCCL listen on the address of an interface, the store of the job on its master port
        if not one.wildcard or str(one.port) == master:
            continue
        try:
            return _Server(one, "", pid, uid)
        except NoReply as refused:
            why = refused
    raise why or NoReply("its port is not visible from here (another network namespace?)")


def _runs(pid: int, proc: str = "/proc") -> bool:
    """Whether a process has a thread of a worker server."""
    try:
        tids = os.listdir(f"{proc}/{pid}/task")
    except OSError:
        return False
    return any(map(partial(_is_server, pid, proc), tids[:_MOST_THREADS]))


def _is_server(pid: int, proc: str, tid: str) -> bool:
    try:
        with open(f"{proc}/{pid}/task/{tid}/comm", "rb") as file:
            return file.read(32) == _THREAD
    except OSError:
        return False
