"""What every measurement is given: the driver, the GPU, how long to look, loads, and where results go."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tests.gpu_check.driver import OK, Driver, Gpu
from tests.gpu_check.folder import Folder
from tests.gpu_check.loads import Load
from tests.gpu_check.records import Skip
from tests.gpu_check.watch import Watched, watch

COMPUTE, GRAPHICS = ("Compute", "MPSCompute"), ("Graphics",)


@dataclass
class Check:
    """One run on one GPU."""

    driver: Driver
    gpu: Gpu
    gpus: list[Gpu]
    seconds: float  # of each look
    python: str  # whose torch makes the loads
    folder: Folder

    @cached_property
    def idle(self) -> Watched:
        """The GPU before any load of ours."""
        return self.watch("idle")

    def watch(self, label: str, seconds: float | None = None) -> Watched:
        """What the GPU does for a while; `label` names it in the recording."""
        return watch(self.driver, self.gpu, label, self.seconds if seconds is None else seconds)

    def listed(self, kinds: tuple[str, ...] = COMPUTE + GRAPHICS) -> set[int]:
        """Processes the driver lists on the GPU."""
        lists = (self.driver.on(self.gpu, f"nvmlDeviceGet{kind}RunningProcesses").value for kind in kinds)
        return {process.pid for found in lists for process in found or ()}

    @contextmanager
    def load(self, **environ: str) -> Iterator[Load]:
        """A process of ours that can work on the GPU; Skip where torch cannot, or where it would disturb somebody."""
        if (code := self.driver.on(self.gpu, "nvmlDeviceGetComputeRunningProcesses").code) != OK:
            raise Skip(f"who uses GPU {self.gpu.index} cannot be read ({self.driver.error(code)}): no load is started")
        if self.others:
            who = ", ".join(f"pid {pid}" for pid in sorted(self.others)[:3])
            raise Skip(f"GPU {self.gpu.index} is in use ({who}): a load would disturb it; --gpu chooses another")
        if self.no_cuda:
            raise Skip(self.no_cuda)
        self.idle  # noqa: B018  measured once, before the first context of ours
        with self.process(**environ) as load:
            yield load

    def process(self, **environ: str) -> Load:
        """A process with torch, whatever it can; what it complains about goes to a file."""
        return Load(self.python, self.gpu.uuid, self.folder.file("loads.log"), environ)

    @cached_property
    def no_cuda(self) -> str | None:
        """Why torch cannot use the GPU; None if it can."""
        with self.process() as load:
            return load.why_not

    @cached_property
    def others(self) -> set[int]:
        """Processes that compute on the GPU before any of ours; a desktop does not count."""
        return self.listed(COMPUTE)

    def program(self, *command: str, seconds: float = 60.0, **extra: str) -> subprocess.CompletedProcess[str]:
        """Runs a program to its end and keeps what it printed."""
        environ = {**os.environ, **extra}
        root = Path(__file__).parents[2]
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            env=environ,
            cwd=root,
            check=False,
        )


def last(text: str) -> str:
    """The last line of what a program said."""
    return text.strip().rpartition("\n")[2] or "it said nothing"
