"""One client of the agent: its identity, JSON lines in, JSON lines out, all of it bounded."""

from __future__ import annotations

import json
import os
import re
import socket
import struct
import time
from typing import Any

from .capture import Problem

_LONGEST = 64 << 10  # bytes of a message
MOST_MESSAGES = 16  # unanswered ones; a client that sends more does not wait for replies, and is dropped
_TOO_LONG = re.compile(rb"\d{65}")  # to read a longer number takes time that grows with its square
_MOST_UNSENT = 1 << 20
_PATIENCE_S = 2.0  # for a message
_LONGEST_ID = 64


class Gone(Exception):
    """It went away, or does not keep to the protocol."""


class Connection:
    """Never waits: what it does not read is dropped with it."""

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self.socket.setblocking(False)
        self.wait()
        self._got, self._unsent = b"", b""
        self._messages: list[bytes] = []

    def trusted(self) -> bool:
        """Whether it is of our user, or root: the kernel says so."""
        try:
            size = struct.calcsize("3i")
            _, uid, _ = struct.unpack("3i", self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
        except OSError:
            return False
        return uid in (os.geteuid(), os.getuid(), 0)

    def receive(self) -> None:
        """Take in what has come; Gone at its end, where a message is too long, or where too many wait."""
        try:
            data = self.socket.recv(_LONGEST)
        except BlockingIOError:
            return
        except OSError:
            raise Gone from None
        # counted before they are split: 65,000 empty lines cost one count
        if not data or data.count(b"\n") + len(self._messages) > MOST_MESSAGES:
            raise Gone
        *whole, self._got = (self._got + data).split(b"\n")
        if any(len(line) > _LONGEST for line in (*whole, self._got)):
            raise Gone
        self._messages += whole

    @property
    def waits(self) -> bool:
        """Whether a message of it is to be answered."""
        return bool(self._messages)

    def message(self) -> bytes:
        """The oldest message that waits."""
        self.wait()
        return self._messages.pop(0)

    def wait(self) -> None:
        """For its next message from now on."""
        self.deadline_s = time.monotonic() + _PATIENCE_S

    def request(self, line: bytes) -> tuple[dict[str, Any], str | None]:
        """A message and its id; Problem if it is none."""
        try:
            request = None if _TOO_LONG.search(line) else json.loads(line)
        except (ValueError, RecursionError):
            raise Problem("bad-args", "not JSON") from None
        if not isinstance(request, dict):
            raise Problem("bad-args", "not an object")
        ident = request.pop("id", None)
        if ident is not None and not (isinstance(ident, str) and len(ident) <= _LONGEST_ID):
            raise Problem("bad-args", "id")
        return request, ident

    def say(self, message: dict[str, Any]) -> None:
        """Send a message, as much of it as it takes now; the rest goes before the next."""
        self._unsent += json.dumps(message).encode() + b"\n"
        self.flush()

    def flush(self) -> None:
        """Send what is left; Gone where too much is."""
        try:
            while self._unsent:
                self._unsent = self._unsent[self.socket.send(self._unsent, socket.MSG_NOSIGNAL) :]
        except BlockingIOError:
            if len(self._unsent) > _MOST_UNSENT:
                raise Gone from None
        except OSError:
            raise Gone from None
