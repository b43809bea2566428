"""The machine the programs are measured on: sleeping processes, busy trainers, fake GPUs."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.fakenvml import Fake, Value

TRAINERS, THREADS, LOADERS = 16, 64, 4
SOURCE = Path(__file__).with_name("population.c")


def build(folder: Path) -> Path:
    """Compile the population."""
    program = folder / "population"
    subprocess.run(["cc", "-O2", "-pthread", SOURCE, "-o", program], check=True)
    return program


@contextmanager
def population(processes: int, *, gpus: int = 8, **state: Value) -> Iterator[Fake]:
    """`processes` in all, 16 of them trainers spread over the fake GPUs; yields the fake driver."""
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
                yield fake
            finally:
                running.stdin.close()
