"""A real training job whose slow part is planted: a transform in its workers, or a layer of its model, by a signal."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from subprocess import DEVNULL

import pytest

from tests.process_watch import running

# its loaders take all the CPU there is: a profile of another one beside it would measure that
by_turns = pytest.mark.xdist_group("py-spy")
SCRIPT = """
import mmap, multiprocessing, signal, struct, sys, time
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
slow_data = multiprocessing.get_context("fork").Value("b", 1)
signal.signal(signal.SIGUSR1, lambda *_: setattr(slow_data, "value", 0))
file = open(sys.argv[1], "r+b")
counter = mmap.mmap(file.fileno(), 8)

def burn(seconds):
    if sys.argv[3:]:
        time.sleep(seconds)
    until = time.perf_counter() + (0 if sys.argv[3:] else seconds)
    while time.perf_counter() < until:
        sum(range(200))

class Pictures(Dataset):
    def __len__(self):
        return 1 << 40
    def __getitem__(self, index):
        return augment(torch.rand(64))

def augment(picture):
    if slow_data.value:
        burn(0.01)
    return picture

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 10)
    def forward(self, batch):
        if not slow_data.value:
            attend(batch)
        return self.layer(batch)

def attend(batch):
    burn(0.02)

def train():
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step, batch in enumerate(DataLoader(Pictures(), batch_size=4, num_workers=int(sys.argv[2])), 1):
        loss = model(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        counter[:] = struct.pack("q", step)
        if step == 1:
            print("ready", flush=True)

train()
"""


class Job:
    """The job, and how far it is."""

    def __init__(self, pid: int, counter: Path) -> None:
        self.pid, self._counter = pid, counter

    @property
    def steps(self) -> int:
        """Steps so far."""
        return int.from_bytes(self._counter.read_bytes(), "little")

    def slow_model(self) -> None:
        """From now on it is the model that is slow, not the data."""
        os.kill(self.pid, signal.SIGUSR1)


@contextmanager
def job(folder: Path, workers: int = 2, *, sleeps: bool = False, env: Mapping[str, str] | None = None) -> Iterator[Job]:
    """The job in its first steps, its transform slow: it burns a core, or `sleeps`, which is slow on any machine."""
    script, counter = folder / "train_planted.py", folder / "steps"
    script.write_text(SCRIPT)
    counter.write_bytes(bytes(8))
    with running(
        sys.executable,
        str(script),
        str(counter),
        str(workers),
        *(["sleeps"] if sleeps else []),
        cwd=folder,
        env=env,
        stderr=DEVNULL,
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        yield Job(child.pid, counter)
