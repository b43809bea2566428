"""How soon something happens: a key's effect, one table, a frame on the screen."""

from __future__ import annotations

import random
import subprocess
import time
from statistics import median

from gputop.demo import open_demo
from tests.bench.measure import GPUTOP
from tests.fakenvml import Fake
from tests.headless_screens import Stage, play
from tests.pty_programs import Terminal

PRESSES = 100


def keys(fake: Fake) -> float:
    """p99 of the time from a key to its effect on the screen, in ms: the cursor goes down a line, and up."""
    times = []
    with Terminal(GPUTOP.argv, size=(120, 40), env=fake.env()) as terminal:
        terminal.wait_for("Quit", 15)
        time.sleep(2)
        for key in ("down", "up") * (PRESSES // 2):
            terminal.wait_quiet(random.uniform(0.05, 0.3))  # what comes next is the key's, not the next look's
            seen, pressed = len(terminal.output), time.perf_counter()
            terminal.send(key)
            while len(terminal.output) == seen:
                if time.perf_counter() - pressed > 10:
                    raise RuntimeError(f"{key} had no effect:\n{terminal.text()}")
                time.sleep(0.001)
            times.append(time.perf_counter() - pressed)
    return 1000 * sorted(times)[int(0.99 * len(times)) - 1]


def once(fake: Fake) -> float:
    """Median time of `gputop --once`, in s."""
    times = []
    for _ in range(5):
        started = time.perf_counter()
        subprocess.run([*GPUTOP.argv, "--once"], env=fake.env(), stdout=subprocess.DEVNULL, check=True)
        times.append(time.perf_counter() - started)
    return median(times)


def paint(name: str) -> float:
    """Median time from a sampled frame to the screen that shows it, in ms, at 200x60."""
    demo, times = open_demo(name, pace=False), []
    frames = [demo.frame(demo.at_s + second) for second in range(12)]

    async def scene(stage: Stage) -> None:
        for frame in frames[1:]:
            began = time.perf_counter()
            await stage.show(frame)
            times.append(time.perf_counter() - began)

    play(scene, frames[0], size=(200, 60))
    return 1000 * median(times)
