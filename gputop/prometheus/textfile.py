"""The metrics as a file for the textfile collector of node_exporter, written by a thread that may wait for the disk."""

from __future__ import annotations

import os
from collections.abc import Callable
from threading import Event, Thread

from gputop.safe.files import Refused, remove_shared, replace_shared

NAME = "gputop.prom"
EVERY_S = 10.0  # at most; node_exporter is rarely scraped more often


class MetricsFile:
    """gputop.prom in a folder: readable by everybody, replaced as a whole."""

    def __init__(self, folder: str, text: Callable[[], bytes], every_s: float = EVERY_S) -> None:
        """Refused if the folder cannot be written to. `text`: the metrics as they are now."""
        self.path = os.path.join(folder, NAME)
        self.problem: str | None = None
        self.missed = 0  # writes that failed
        self._folder, self._text, self._every_s = folder, text, every_s
        self._wanted, self._ending, self._ended = Event(), Event(), Event()
        replace_shared(folder, NAME, text())

    def start(self) -> None:
        """Write from now on whenever `wake` was called."""
        Thread(target=self._run, name="textfile", daemon=True).start()

    def wake(self) -> None:
        """There is something new; returns at once."""
        self._wanted.set()

    def end(self, patience_s: float = 3.0) -> None:
        """Remove the file: node_exporter would serve its values for ever. Waits for a hanging disk only so long."""
        self._ending.set()
        self._wanted.set()
        self._ended.wait(patience_s)

    def _run(self) -> None:
        while True:
            self._wanted.wait()
            self._wanted.clear()
            if self._ending.is_set():
                break
            try:
                replace_shared(self._folder, NAME, self._text())
                self.problem = None
            except Refused as refused:
                self.missed += 1
                self.problem = f"metrics not written: {refused}"
            self._ending.wait(self._every_s)
        remove_shared(self._folder, NAME)
        self._ended.set()
