"""One daemon thread does all work with files, in order: the screen never waits for a disk."""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import Any

from textual.app import App

from gputop.safe.files import Refused

Work = Callable[[], str]  # returns the line to show of it
Tell = Callable[[str], object]


class FileWorker:
    """Takes work; the line to show of it is passed on in the screen's thread."""

    def __init__(self, app: App[Any]) -> None:
        self._app = app
        self._waiting: SimpleQueue[tuple[Work, Tell]] = SimpleQueue()
        self._thread: Thread | None = None

    def do(self, work: Work, tell: Tell) -> None:
        """Do it after what was given before. An error of a disk or a file is shown as it is."""
        self._waiting.put((work, tell))
        if self._thread is None:
            self._thread = Thread(target=self._run, name="files", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while True:
            work, tell = self._waiting.get()
            try:
                line = work()
            except (Refused, ValueError, OSError) as error:
                line = f"not saved: {error}"
            self._app.call_later(tell, line)
