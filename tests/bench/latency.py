"""How soon something happens: a key's effect, one table, a frame on the screen."""

from __future__ import annotations

import asyncio
import subprocess
import time
from statistics import median

from tests.bench.measure import GPUTOP
from tests.fakenvml import Fake
from tests.ptys import Terminal

PRESSES = 100


def keys(fake: Fake) -> float:
    """p99 of the time from a key to its effect on the screen, in ms: help opens, help closes."""
    times = []
    with Terminal(GPUTOP.argv, size=(120, 40), env={**fake.env(), "HOME": "/nonexistent"}) as terminal:
        terminal.wait_for("Quit", 15)
        time.sleep(2)
        for _ in range(PRESSES // 2):
            for key, effect in (("f1", b"MOVE"), ("escape", b"Freeze")):
                seen, pressed = len(terminal.output), time.perf_counter()
                terminal.send(key)
                while effect not in terminal.output[seen:]:
                    if time.perf_counter() - pressed > 10:
                        raise RuntimeError(f"{key} had no effect:\n{terminal.text()}")
                    time.sleep(0.001)
                times.append(time.perf_counter() - pressed)
                time.sleep(0.05)
    return 1000 * sorted(times)[int(0.99 * len(times)) - 1]


def once(fake: Fake) -> float:
    """Median time of `gputop --once`, in s."""
    times = []
    for _ in range(5):
        started = time.perf_counter()
        subprocess.run([*GPUTOP.argv, "--once"], env=fake.env(), stdout=subprocess.DEVNULL, check=True)
        times.append(time.perf_counter() - started)
    return median(times)


def paint(demo: str) -> float:
    """Median time from a sampled frame to the screen that shows it, in ms, at 200x60."""
    from tests.screens import painted

    return 1000 * asyncio.run(painted(demo, frames=10, size=(200, 60)))
