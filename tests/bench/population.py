"""The machine the programs are measured on: sleeping processes, busy trainers, fake GPUs."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

from tests.fakenvml import Fake, Value

TRAINERS, THREADS, LOADERS = 16, 64, 4
# keys of a fake GPU: the least, how many values there are above it, and how far it goes each second
_CHANGING = (
    ("util", 70, 30, 11), ("mem_util", 30, 20, 3), ("power_mw", 500_000, 180_000, 17_000), ("temperature", 60, 12, 1),
    ("sm_clock", 1_700, 240, 15), ("memory_used", 40 << 30, 20 << 30, 1 << 30),
)  # fmt: skip
SOURCE = Path(__file__).with_name("population.c")


def build(folder: Path) -> Path:
    """Compile the population."""
    program = folder / "population"
    subprocess.run(["cc", "-O2", "-pthread", SOURCE, "-o", program], check=True)
    return program


@contextmanager
def changing(fake: Fake, gpus: int) -> Iterator[None]:
    """The values of busy GPUs as they are seen to change: other ones each second."""
    stop = Event()

    def change() -> None:
        second = 0
        while not stop.wait(1.0):
            second += 1
            fake.update(
                {
                    f"gpu.{gpu}.{key}": low + (second * step + 7 * gpu) % span
                    for gpu in range(gpus)
                    for key, low, span, step in _CHANGING
                }
            )

    thread = Thread(target=change, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@contextmanager
def population(processes: int, *, gpus: int = 8, **state: Value) -> Iterator[Fake]:
    """`processes` in all, 16 of them trainers spread over the fake GPUs, which are busy; yields the fake driver."""
    with tempfile.TemporaryDirectory(prefix="gputop-bench-") as name:
        folder = Path(name)
        sleepers = max(0, processes - TRAINERS * (1 + LOADERS))
        command = [build(folder), str(sleepers), str(TRAINERS), str(THREADS), str(LOADERS)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
            assert running.stdin
            assert running.stdout
            pids = [int(line) for line in iter(running.stdout.readline, "ready\n") if line.strip()]
            fake = Fake(folder, gpus=gpus)
            for number, pid in enumerate(pids):
                fake.add_process(gpu=number % gpus, pid=pid, vram_bytes=20 << 30, sm=40 + number)
            fake.update(state)
            try:
                with changing(fake, gpus):
                    yield fake
            finally:
                running.stdin.close()
