"""A small but real training run on the CPU: a model, an optimizer, a DataLoader, and every fault as an option.

What a GPU would do is time that is told to the fake driver (device.py): its utilisation is true to this process.
"""

from __future__ import annotations

import argparse
import ctypes
import io
import os
import signal
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import torch
from torch import distributed, nn

sys.path[0] = str(Path(__file__).parents[2])  # started as a user starts a script

from tests.workloads.device import Device, devices  # noqa: E402
from tests.workloads.samples import WIDTH, burn, loader  # noqa: E402

GIB = 1 << 30
CHUNK = 4 << 20
SPIN_S = 0.005


def parser() -> argparse.ArgumentParser:
    """The options; times are in ms a step or a batch unless they say otherwise."""
    options = argparse.ArgumentParser(description=__doc__)
    add = options.add_argument
    add("--seconds", type=float, default=30.0)
    add("--data", type=Path, help="a folder on a disk, to be filled")
    # the GPU
    add("--device-ms", type=float, default=20.0, help="work of a GPU in a step")
    add("--skew", type=float, default=1.0, help="work of every GPU but the first, of that of the first")
    add("--effort", type=float, default=1.0, help="what part of the chip that uses, 0-1")
    add("--vram-gb", type=float, default=20.0)
    add("--vram-skew-gb", type=float, default=0.0, help="what the first GPU holds more")
    add("--vram-growth-mb-s", type=float, default=0.0)
    add("--cpu", action="store_true", help="no GPU is used at all")
    # the loop
    add("--threads", type=int, default=1, help="of torch; 0 is its default")
    add("--products", type=int, default=0, help="matrix products on the CPU in each step")
    add("--sync", action="store_true", help="loss.item() in each step")
    add("--spin", action="store_true", help="waits for the GPU with a busy core")
    add("--launches", type=int, default=1, help="in so many parts the work of a GPU is queued")
    add("--launch-ms", type=float, default=0.0, help="CPU time of the main thread before each part")
    add("--between-ms", type=float, default=0.0, help="CPU time of the main thread between two steps")
    add("--image-every", type=int, default=0, help="steps")
    add("--checkpoint-every-s", type=float, default=0.0)
    add("--checkpoint-mb", type=int, default=160)
    add("--checkpoint-mb-s", type=float, default=50.0, help="what the storage takes")
    add("--checkpoint-aside", action="store_true", help="written by another thread")
    add("--keep-losses-mb-s", type=float, default=0.0, help="host memory that grows")
    add("--slow-rank-factor", type=float, default=1.0, help="work of the last rank, of that of the others")
    _loader(add)
    return options


def _loader(add: Callable[..., object]) -> None:
    add("--num-workers", type=int, default=4)
    add("--cost-ms", type=float, default=2.0, help="CPU time of a batch")
    add("--latency-ms", type=float, default=0.0, help="time of a sample without CPU")
    add("--slow-one-in", type=int, default=0, help="samples; the mean time of a sample stays")
    add("--any-order", action="store_true")
    add("--svd", type=int, default=0, help="decompositions by NumPy in a sample")
    add("--epoch-steps", type=int, default=0, help="0: one epoch")
    add("--persistent-workers", action="store_true")
    add("--open-s", type=float, default=0.0, help="time of a worker before its first sample")
    add("--read-mb", type=float, default=0.0, help="read from disk for a sample, past the page cache")
    add("--small-files", type=int, default=0, help="files of 8 KB read for a sample")
    add("--sample-kb", type=int, default=4)
    add("--keep-kb", type=int, default=0, help="host memory that a worker keeps of each sample")


class Run:
    """One training run."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.options, self.folder = options, folder
        self.rank = int(os.environ.get("RANK", 0))
        self.world = int(os.environ.get("WORLD_SIZE", 1))
        self.devices = [] if options.cpu else self._devices()
        self.model = nn.Sequential(nn.Linear(WIDTH, 32), nn.ReLU(), nn.Linear(32, 10))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.kept: list[torch.Tensor] = []
        self.left = torch.rand(512, 512)
        self.started_s = self.saved_s = self.grown_s = time.monotonic()
        self.steps = 0

    def _devices(self) -> list[Device]:
        found = devices()
        if self.world > 1:
            found = [found[int(os.environ["LOCAL_RANK"]) % len(found)]]
        return found

    def train(self) -> int:
        """Steps until the time is over; how many there were."""
        self.hold(0.0)
        batches = loader(self.options, self.folder)
        while True:
            for inputs, labels in batches:
                self.step(inputs[:, :WIDTH], labels)
                if self.steps == 1:
                    print("ready", flush=True)
                if time.monotonic() - self.started_s > self.options.seconds:
                    return self.steps

    def step(self, inputs: torch.Tensor, labels: torch.Tensor) -> None:
        """One step, with all that this script does besides."""
        options = self.options
        for _ in range(options.products):
            self.left = (self.left @ self.left).tanh()
        loss = nn.functional.cross_entropy(self.model(inputs), labels)
        self.optimizer.zero_grad()
        loss.backward()
        slow = options.slow_rank_factor if self.world > 1 and self.rank == self.world - 1 else 1.0
        for _ in range(options.launches):
            if options.launch_ms:
                burn(options.launch_ms / 1000, 16)
            for number, device in enumerate(self.devices):
                share = slow * (options.skew if number else 1.0) / options.launches
                device.run(options.device_ms / 1000 * share, options.effort)
        if self.world > 1:
            self.share_gradients()
        self.optimizer.step()
        self.steps += 1
        for device in self.devices:
            ahead_s = 0.0 if options.sync or len(self.devices) > 1 else 2 * options.device_ms / 1000
            device.wait(ahead_s, spin=options.spin)
        self.beside()

    def share_gradients(self) -> None:
        """All ranks wait for the last; who waits keeps its GPU busy with next to nothing, as NCCL does."""
        (device,) = self.devices
        device.wait()
        gradients = torch.cat([parameter.grad.flatten() for parameter in self.model.parameters()])
        shared = distributed.all_reduce(gradients, async_op=True)
        while not shared.is_completed():
            device.run(SPIN_S, 0.12)
            device.wait()

    def beside(self) -> None:
        """What is not training."""
        options, now_s = self.options, time.monotonic()
        burn(options.between_ms / 1000)
        if options.image_every and self.steps % options.image_every == 0:
            picture = (self.left[:256, :256] * 255).to(torch.uint8).numpy().tobytes() * 4
            (self.folder / f"sample-{self.steps % 10}.png").write_bytes(zlib.compress(picture, 3))
        if options.checkpoint_every_s and now_s - self.saved_s > options.checkpoint_every_s:
            if options.checkpoint_aside:
                threading.Thread(target=self.save, daemon=True).start()
            else:
                for device in self.devices:
                    device.wait()
                self.save()
            self.saved_s = time.monotonic()
        passed_s = now_s - self.grown_s
        if passed_s > 0.2:
            self.grown_s = now_s
            self.hold(options.vram_growth_mb_s * 2**20 * (now_s - self.started_s))
            if options.keep_losses_mb_s:
                self.kept.append(torch.ones(int(options.keep_losses_mb_s * passed_s * (1 << 18))))

    def hold(self, more: float) -> None:
        """Device memory, with what has grown."""
        for number, device in enumerate(self.devices):
            gib = self.options.vram_gb + (0 if number else self.options.vram_skew_gb)
            device.hold(int(gib * GIB + more))

    def save(self) -> None:
        """A checkpoint, no faster than the storage takes it."""
        packed = io.BytesIO()
        torch.save({"model": self.model.state_dict(), "moments": torch.rand(self.options.checkpoint_mb << 18)}, packed)
        view = packed.getbuffer()
        started_s = time.monotonic()
        with (self.folder / "checkpoint.pt").open("wb") as file:
            for at in range(0, len(view), CHUNK):
                file.write(view[at : at + CHUNK])
                file.flush()
                os.fdatasync(file.fileno())
                due_s = started_s + at / (self.options.checkpoint_mb_s * 2**20)
                time.sleep(max(0.0, due_s - time.monotonic()))


def die_with_parent() -> None:
    """A run that nobody waits for is nobody's."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def main() -> None:
    options = parser().parse_args()
    die_with_parent()
    if options.threads:
        torch.set_num_threads(options.threads)
    if int(os.environ.get("WORLD_SIZE", 1)) > 1:
        distributed.init_process_group("gloo")
    with tempfile.TemporaryDirectory(dir=options.data) as folder:
        steps = Run(options, Path(folder)).train()
    print(f"{steps} steps", flush=True)


if __name__ == "__main__":
    main()
