"""The builds of PyTorch that processes have loaded, from a file of the package, by a thread of its own.

The package may lie on a server that no longer answers: then its version stays unknown, and nothing else does.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread

from gputop.collect.processes.readings import Values
from gputop.collect.pytorch import build
from gputop.safe import plain

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
                version, cuda = build(_beginning(path).decode("utf-8", "replace"))
            except OSError:
                continue
            if version is not None:
                tell(dict(zip(BUILD_FILLS, (version, cuda), strict=True)))


def _beginning(path: str) -> bytes:
    fd = plain.opened(path)
    try:
        return os.read(fd, _LONGEST)
    finally:
        os.close(fd)
