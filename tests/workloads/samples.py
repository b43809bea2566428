"""What a training script trains on: samples that cost CPU, time, reads or memory, as the options say."""

from __future__ import annotations

import argparse
import mmap
import os
import random
import time
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

BATCH = 8
WIDTH = 1024
SHARD_BYTES = 4 << 20
SMALL_BYTES = 8 << 10


def burn(seconds: float, size: int = 4096) -> None:
    """So much CPU time of this thread, in steps that grow with the size; on a busy machine it takes longer."""
    values = torch.rand(size)
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        values = values.sort().values.roll(7)


def shards(folder: Path, count: int = 4) -> list[Path]:
    """Large files of random bytes."""
    return [_filled(folder / f"shard-{number}", SHARD_BYTES) for number in range(count)]


def small(folder: Path, count: int) -> list[Path]:
    """A folder full of small files."""
    return [_filled(folder / f"{number}.jpg", SMALL_BYTES) for number in range(count)]


def _filled(path: Path, size: int) -> Path:
    path.write_bytes(os.urandom(size))
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return path


class Samples(Dataset):
    """Endless, or as long as an epoch. Every cost stands for a sample, not for a batch."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.options = options
        self._shards = shards(folder) if options.read_mb else []
        self._small = small(folder, 3000) if options.small_files else []
        self._kept: list[torch.Tensor] = []

    def __len__(self) -> int:
        return (self.options.epoch_steps or 1 << 20) * BATCH

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        options = self.options
        burn(options.cost_ms / 1000 / BATCH)
        time.sleep(self._patience(index) / 1000)
        for _ in range(options.svd):
            np.linalg.svd(np.random.default_rng(index).random((256, 256)))
        self._read(index)
        if options.keep_kb:
            self._kept.append(torch.full((options.keep_kb << 8,), float(index)))
        size = options.sample_kb << 8
        return torch.full((max(WIDTH, size),), index / len(self)), index % 10

    def _patience(self, index: int) -> float:
        """How long this sample takes without using the CPU, ms: a few take long, the mean stays."""
        options = self.options
        if not options.slow_one_in:
            return options.latency_ms
        slow = options.latency_ms * options.slow_one_in / 2
        rest = (options.latency_ms * options.slow_one_in - slow) / (options.slow_one_in - 1)
        return slow if random.Random(index).random() * options.slow_one_in < 1 else rest

    def _read(self, index: int) -> None:
        if self._small:
            for number in range(self.options.small_files):
                path = self._small[(index * self.options.small_files + number) % len(self._small)]
                with path.open("rb", buffering=0) as file:
                    file.read(SMALL_BYTES)
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        elif self._shards:
            self._read_direct(self._shards[index % len(self._shards)], index)

    def _read_direct(self, path: Path, index: int) -> None:
        """Past the page cache, as from a dataset that is larger than the memory."""
        size = int(self.options.read_mb * (1 << 20)) & ~4095
        try:
            file = os.open(path, os.O_RDONLY | os.O_DIRECT)
        except OSError:  # a file system in memory
            file = os.open(path, os.O_RDONLY)
        try:
            with mmap.mmap(-1, size) as room:
                os.preadv(file, [room], index * 4096 % (SHARD_BYTES - size + 1) & ~4095)
        finally:
            os.close(file)


def _open(worker: int) -> None:
    """What a worker does before its first sample: it opens the dataset, and waits for its storage."""
    time.sleep(get_worker_info().dataset.options.open_s)


def loader(options: argparse.Namespace, folder: Path) -> DataLoader[tuple[torch.Tensor, int]]:
    """The loader these options ask for."""
    workers = options.num_workers
    more = {"prefetch_factor": 2, "persistent_workers": options.persistent_workers, "worker_init_fn": _open}
    dataset = Samples(options, folder)
    return DataLoader(
        dataset, batch_size=BATCH, num_workers=workers, in_order=not options.any_order, **(more if workers else {})
    )
