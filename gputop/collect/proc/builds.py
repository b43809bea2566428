"""The builds of PyTorch that processes have loaded, from a file of the package, by a separate thread.

The package may lie on a server that no longer answers: then its version stays unknown, and nothing else does.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread

from gputop.collect.proc.proc_files import Values
from gputop.pytorch import build
from gputop.safe import files

BUILD_FILLS = ("torch_version", "torch_cuda")
_LONGEST = 1 << 14
_MOST_ASKS = 4096  # that wait, when the files do not answer
_STUCK_S = 2.0  # a read that takes longer counts as one that does not come back
_MOST_STUCK = 4
_Ask = tuple[str, Callable[[Values], None]]


class Builds:
    """Reads one file after the other; nothing waits for it, and beside a few that hang it goes on."""

    def __init__(self, read: Callable[[str], bytes] = lambda path: _beginning(path)) -> None:
        self._read = read
        self._asks: SimpleQueue[_Ask | None] = SimpleQueue()
        self._stuck: list[_Reader] = []  # threads that do not come back
        self._active = _Reader()

    def start(self) -> None:
        """Begin to read."""
        Thread(target=self._run, args=(self._active,), name="builds", daemon=True).start()

    def stop(self) -> None:
        """Let the thread end when it comes back."""
        self._asks.put(None)

    def read(self, package: str, tell: Callable[[Values], None]) -> None:
        """Read the version file of a package; `tell` is called with fields of a Process, from another thread."""
        if self._asks.qsize() < _MOST_ASKS:
            self._asks.put((f"{package}/version.py", tell))

    def watch(self, now_s: float) -> None:
        """Let another thread take over from one that does not come back, unless too many hang already."""
        if self._active.path is None:
            self._active.since_s = None
        elif self._active.since_s is None:
            self._active.since_s = now_s
        elif now_s - self._active.since_s >= _STUCK_S:
            self._stuck = [reader for reader in self._stuck if reader.path is not None]
            if len(self._stuck) < _MOST_STUCK:
                self._stuck.append(self._active)
                self._active = _Reader()
                self.start()

    def hangs(self, now_s: float) -> list[tuple[str, float]]:
        """Files that do not answer, and for how long."""
        return [
            (reader.path, now_s - reader.since_s)
            for reader in (*self._stuck, self._active)
            if reader.path is not None and reader.since_s is not None and now_s - reader.since_s >= _STUCK_S
        ]

    def _run(self, reader: _Reader) -> None:
        while reader is self._active and (ask := self._asks.get()) is not None:
            reader.path, tell = ask
            try:
                version, cuda = build(self._read(reader.path).decode("utf-8", "replace"))
            except OSError:
                version = cuda = None
            reader.path = None
            if version is not None:
                tell(dict(zip(BUILD_FILLS, (version, cuda), strict=True)))


class _Reader:
    """A thread, the file it reads, and since when it was seen at it."""

    def __init__(self) -> None:
        self.path: str | None = None
        self.since_s: float | None = None


def _beginning(path: str) -> bytes:
    fd = files.opened(path)
    try:
        return os.read(fd, _LONGEST)
    finally:
        os.close(fd)
