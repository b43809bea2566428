"""Servers that a process of a job runs on this machine: its listening sockets, and one bounded exchange with them.

Only loopback and unix sockets are connected, only sockets that the process itself holds, and nothing is waited for
beyond a deadline. Answers come from other programs: they are limited here and checked by their readers.
"""

from __future__ import annotations

import errno
import os
import re
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import NamedTuple

from gputop.safe.identity import ours

_LISTENING = "0A"
_MOST_FILES = 65_536  # descriptors of a process
_MOST_BYTES = 4 << 20  # of a table; listening sockets come first
_SOCKET = re.compile(r"socket:\[(\d+)\]")
_WILDCARDS = ("::", "0.0.0.0")
_LOOPBACKS = {"::": ("::1", "127.0.0.1"), "0.0.0.0": ("127.0.0.1",)}


class NoReply(Exception):
    """It did not answer, or not in the expected form; the text says why, to follow its name."""


class Listener(NamedTuple):
    """A TCP socket that a process listens on."""

    address: str
    port: int
    inode: int

    @property
    def wildcard(self) -> bool:
        """Whether it listens on all addresses."""
        return self.address in _WILDCARDS

    @property
    def loopback(self) -> tuple[str, ...]:
        """Loopback addresses that reach it; empty if none does."""
        if self.address in _LOOPBACKS:
            return _LOOPBACKS[self.address]
        return (self.address,) if self.address == "::1" or self.address.startswith("127.") else ()


def listeners(pid: int, proc: str = "/proc") -> list[Listener]:
    """The TCP sockets that a process listens on; empty if its files are unreadable or its network is another one."""
    try:
        if not ours(pid, "net", proc):
            return []
    except OSError:
        return []
    held = _sockets(pid, proc)
    # the kernel returns the table in pieces, and a socket that closes in between hides another one: read it twice
    found = {one.inode: one for _ in range(2 if held else 0) for one in listening(pid, proc) if one.inode in held}
    return list(found.values())


def listening(pid: int, proc: str = "/proc") -> Iterator[Listener]:
    """All TCP sockets that any process listens on in the network namespace of this one."""
    for name in ("tcp", "tcp6"):
        try:
            with open(f"{proc}/{pid}/net/{name}", encoding="ascii", errors="replace") as file:
                lines = file.read(_MOST_BYTES).splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if len(fields) < 10 or fields[3] != _LISTENING:
                break
            with suppress(ValueError, OSError):
                address, port = fields[1].split(":")
                yield Listener(_address(address), int(port, 16), int(fields[9]))


def _address(packed: str) -> str:
    """The text of an address that the kernel prints as words in the byte order of the machine."""
    words = [int(packed[at : at + 8], 16) for at in range(0, len(packed), 8)]
    raw = struct.pack(f"{'<' if sys.byteorder == 'little' else '>'}{len(words)}I", *words)
    return socket.inet_ntop(socket.AF_INET if len(raw) == 4 else socket.AF_INET6, raw)


def _sockets(pid: int, proc: str) -> set[int]:
    """Inodes of the sockets that a process has open."""
    found: set[int] = set()
    try:
        with os.scandir(f"{proc}/{pid}/fd") as entries:
            for _, entry in zip(range(_MOST_FILES), entries, strict=False):
                with suppress(OSError):
                    if match := _SOCKET.fullmatch(os.readlink(entry.path)):
                        found.add(int(match[1]))
    except OSError:
        pass
    return found


def connect(listener: Listener, seconds: float) -> socket.socket:
    """A connection to a listener through loopback; NoReply if there is none."""
    for address in listener.loopback:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        connecting = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        connecting.settimeout(seconds)
        try:
            connecting.connect((address, listener.port))
        except OSError as error:
            connecting.close()
            if error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                continue  # without IPv6 the same socket listens on IPv4
            break  # the port of the other family may be another process's
        return connecting
    raise NoReply(f"port {listener.port} accepts no connection")


def connect_unix(path: str, pid: int, uid: int | None, seconds: float) -> socket.socket:
    """A connection to a unix socket of exactly this process; NoReply if it belongs to another one."""
    connecting = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    connecting.settimeout(seconds)
    try:
        connecting.connect(path)
        owner, user, _ = struct.unpack("3i", connecting.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    except OSError as error:
        connecting.close()
        raise NoReply(f"its socket accepts no connection: {error.strerror or 'no answer'}") from None
    if (owner, user) != (pid, uid):
        connecting.close()
        raise NoReply(f"its socket belongs to process {owner} of uid {user}: not used")
    return connecting


def exchange(
    connected: socket.socket,
    request: bytes,
    *,
    seconds: float,
    limit: int,
    complete: Callable[[bytearray], bool] = lambda _: False,
) -> bytes:
    """Send a request; return all bytes until the answer is `complete` or the connection ends. Closes it.

    NoReply if that takes longer than `seconds`, or if the answer has more than `limit` bytes.
    """
    until_s = time.monotonic() + seconds
    got = bytearray()
    with connected:
        try:
            connected.settimeout(seconds)
            connected.sendall(request, socket.MSG_NOSIGNAL)
            while not complete(got):
                left_s = until_s - time.monotonic()
                if left_s <= 0:
                    raise TimeoutError
                connected.settimeout(left_s)
                piece = connected.recv(1 << 16)
                if not piece:
                    break
                got += piece
                if len(got) > limit:
                    raise NoReply(f"its answer is larger than {limit >> 20} MiB")
        except TimeoutError:
            raise NoReply(f"no complete answer within {seconds:.0f} s") from None
        except OSError as error:
            raise NoReply(f"connection lost: {error.strerror}") from None
    return bytes(got)
