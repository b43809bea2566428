"""A small but real training run on the CPU: a model, an optimizer, DataLoader workers that read files and compute."""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SHARDS, SHARD_BYTES = 16, 1 << 18


class Files(Dataset):
    """Items made of files that are read anew each time: the page cache is told to forget them."""

    def __init__(self, folder: Path) -> None:
        self.shards = [folder / f"shard-{number}" for number in range(SHARDS)]
        for shard in self.shards:
            shard.write_bytes(os.urandom(SHARD_BYTES))
            with shard.open("rb") as file:
                os.fsync(file.fileno())

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        with self.shards[index % SHARDS].open("rb") as file:
            raw = file.read()
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        values = torch.frombuffer(bytearray(raw[:4096]), dtype=torch.uint8).float() / 255
        for _ in range(10):
            values = values.sort().values.roll(7)
        return values, index % 10


def batches(folder: Path, workers: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    return iter(DataLoader(Files(folder), batch_size=8, num_workers=workers, prefetch_factor=2 if workers else None))


def train(seconds: float, workers: int, pause_s: float, folder: Path) -> int:
    """Steps for so long; how many there were."""
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(4096, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    steps = 0
    deadline = time.monotonic() + seconds
    for inputs, labels in batches(folder, workers):
        loss = nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1
        if steps == 1:
            print("ready", flush=True)
        if time.monotonic() > deadline:
            break
        time.sleep(pause_s)
    return steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--num-workers", type=int, default=4)
    parser.add_argument("--pause", type=float, default=0.02, help="seconds of rest after each step")
    parser.add_argument("--data", type=Path, help="a folder on a disk, to be filled with 4 MB")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.data) as folder:
        steps = train(options.seconds, options.num_workers, options.pause, Path(folder))
    print(f"{steps} steps", flush=True)


if __name__ == "__main__":
    main()
