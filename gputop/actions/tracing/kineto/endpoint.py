"""The socket that Kineto takes for its daemon's, while a trace is taken: who asks is known from the kernel."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import socket
import struct
from typing import NamedTuple

from gputop.actions.tracing.kineto import wire
from gputop.safe.files import Refused

_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid
_CLIENT = re.compile(r"dynoconfigclient[0-9a-f-]{1,60}")


class Poll(NamedTuple):
    """A process that asks for work, and whether a trace may be asked of it now."""

    pid: int
    ready: bool
    address: str


class Endpoint:
    """Bound as exactly FOLDER/dynolog; the folder must be safe. Refused where it is served already."""

    def __init__(self, folder: str) -> None:
        self._folder, self.path = folder, f"{folder}/{wire.NAME}"
        self._socket = _socket()
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
            _swept(folder)
            self._socket.bind(self.path)
        except OSError as error:
            self._socket.close()
            if error.errno == errno.EADDRINUSE:
                raise Refused("another gputop or dynolog serves this folder: use that one, or close it") from None
            raise Refused(f"{self.path}: {error.strerror}") from None

    def fileno(self) -> int:
        """For who waits for several."""
        return self._socket.fileno()

    def heard(self) -> Poll | None:
        """Who asks, when something can be read; None if that is nobody whom we answer."""
        try:
            message, said, flags, address = self._socket.recvmsg(wire.LONGEST + 1, socket.CMSG_SPACE(_CREDENTIALS.size))
            pid, uid = _sender(said)
            if uid != os.geteuid() or flags & socket.MSG_TRUNC or not self._is_client(address):
                return None
            return Poll(pid, wire.asks(message), address)
        except (OSError, wire.Malformed):
            return None

    def answer(self, poll: Poll, wish: str) -> bool:
        """Ask a process for a trace; whether it could be told."""
        try:
            self._socket.sendto(wire.reply(wish), socket.MSG_DONTWAIT, poll.address)
        except OSError:
            return False
        return True

    def close(self) -> None:
        """Nobody serves it any more."""
        self._socket.close()
        with contextlib.suppress(OSError):
            os.unlink(self.path)

    def _is_client(self, address: object) -> bool:
        where, _, name = address.rpartition("/") if isinstance(address, str) else ("", "", "")
        return where == self._folder and _CLIENT.fullmatch(name) is not None


def _socket() -> socket.socket:
    return socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)


def _sender(said: list[tuple[int, int, bytes]]) -> tuple[int, int]:
    """The pid and the uid of who sent it, as the kernel has them."""
    for level, kind, data in said:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS) and len(data) >= _CREDENTIALS.size:
            pid, uid, _ = _CREDENTIALS.unpack_from(data)
            return pid, uid
    raise wire.Malformed


def _swept(folder: str) -> None:
    """Remove the sockets of processes that have ended, and of a daemon that has; Kineto leaves its own there."""
    for name in os.listdir(folder):
        if name == wire.NAME or _CLIENT.fullmatch(name):
            with _socket() as looking, contextlib.suppress(OSError):
                if looking.connect_ex(f"{folder}/{name}") == errno.ECONNREFUSED:
                    os.unlink(f"{folder}/{name}")
