"""The smallest app on the real driver and guard: `python -m tests.tinyapp`. Its keys are the faults of the matrix."""

from __future__ import annotations

import ctypes
import sys
import threading
from typing import ClassVar

from textual.app import ComposeResult
from textual.widgets import Static

from gputop.safe.terminal import NO_TERMINAL, Guard, problem
from gputop.ui.terminal.driver import MOST_QUEUED, behind, queued
from gputop.ui.terminal.guarded import GuardedApp, run_guarded


class Counter(Static):
    """Repaints all of itself ten times a second."""

    DEFAULT_CSS = "Counter { height: 1fr; }"

    def __init__(self) -> None:
        super().__init__("", markup=False)
        self.count = 0

    def on_mount(self) -> None:
        self.set_interval(0.1, self.step)

    def step(self) -> None:
        self.count += 1
        size = self.size
        if queued(self.app) > MOST_QUEUED:
            # drawn once, and this once is dropped: only a repaint of everything can show it
            self.app.query_one("#note", Static).update("frames were dropped")
        # so much that a terminal that does not read is full at once
        lines = [f"ready {self.count} {self.app.size.width}x{self.app.size.height} behind {behind(self.app)}"]
        lines += [f"{self.count:>{size.width}}"] * (size.height - 1)
        self.update("\n".join(lines))


class TinyApp(GuardedApp):
    """Quits with q; w fails in a widget, t in a thread, h hangs a thread in C, b blocks the event loop, l lends."""

    BINDINGS: ClassVar = [(key, f"do('{key}')", key) for key in "qwthbl"]

    def compose(self) -> ComposeResult:
        yield Static("nothing dropped", id="note", markup=False)
        yield Counter()

    def action_do(self, key: str) -> None:
        if key == "q":
            self.exit()
        elif key == "w":
            raise ValueError("widget --password=hunter2 \x1b]0;owned\x07")
        elif key == "t":
            threading.Thread(target=self.fail, name="lane", daemon=True).start()
        elif key == "h":
            threading.Thread(target=hang, daemon=True).start()
        elif key == "l":
            self.lend(["recipe", "clip"])
        else:
            hang()

    def fail(self) -> None:
        raise ValueError("thread --token hunter2 \x1b[2J")


def hang() -> None:
    """For ever in C, where no signal gets anybody out: a lock taken twice."""
    libc, mutex = ctypes.CDLL(None), ctypes.create_string_buffer(64)
    libc.pthread_mutex_lock(mutex)
    libc.pthread_mutex_lock(mutex)


def main() -> int:
    """As the command line does it."""
    if (why := problem()) is not None:
        sys.stderr.write(f"gputop: {why}\n")
        return NO_TERMINAL

    def make(guard: Guard) -> TinyApp:
        return TinyApp(guard)

    return run_guarded(make, mouse="--no-mouse" not in sys.argv)


if __name__ == "__main__":
    sys.exit(main())
