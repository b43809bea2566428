"""The builds of PyTorch that processes have loaded, from a file of the package, by a thread of its own.

The package may lie on a server that no longer answers: then its version stays unknown, and nothing else does.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread

from gputop.collect.processes.readings import Values
from gputop.collect.pytorch import build

BUILD_FILLS = ("torch_version", "torch_cuda")
_LONGEST = 1 << 14
_MOST_ASKS = 4096  # that wait, when the files do not answer
_Ask = tuple[str, Callable[[Values], None]]


class Builds:
    """Reads one file after the other; nobody waits for it."""

    def __init__(self) -> None:
        self._asks: SimpleQueue[_Ask | None] = SimpleQueue()

    def start(self) -> None:
        """Begin to read."""
        Thread(target=self._run, name="builds", daemon=True).start()

    def stop(self) -> None:
        """Let the thread end when it comes back."""
        self._asks.put(None)

    def read(self, package: str, tell: Callable[[Values], None]) -> None:
        """Read the version file of a package; `tell` is called with fields of a Process, from another thread."""
        if self._asks.qsize() < _MOST_ASKS:
            self._asks.put((f"{package}/version.py", tell))

    def _run(self) -> None:
        while (ask := self._asks.get()) is not None:
            path, tell = ask
            try:
                version, cuda = build(_plain(path).decode("utf-8", "replace"))
            except OSError:
                continue
            if version is not None:
                tell(dict(zip(BUILD_FILLS, (version, cuda), strict=True)))


def _plain(path: str) -> bytes:
    """The beginning of a plain file; a pipe or a device with its name is another user's joke."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        return os.read(fd, _LONGEST) if stat.S_ISREG(os.fstat(fd).st_mode) else b""
    finally:
        os.close(fd)
