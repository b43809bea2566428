"""Who holds device memory, and how that is said."""

from __future__ import annotations

from collections.abc import Iterator

from gputop.model import Frame, Gpu, GpuShare, Process


def shares(frame: Frame, gpu: Gpu) -> Iterator[tuple[Process, GpuShare]]:
    """Every process that the driver names on a GPU, each once; graphics count where nothing else does."""
    for process in frame.processes:
        mine = [share for share in process.gpus if share.uuid == gpu.uuid]
        if mine:
            yield process, max(mine, key=lambda share: (share.kind != "graphics", share.vram_bytes or 0))


def named(process: Process) -> str:
    """Name, pid and owner: `python 3310 of carol`."""
    owner = f" of {process.user}" if process.user else ""
    return f"{process.name or 'a process'} {process.pid}{owner}"
