"""Who holds device memory, and how that is said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gputop.diagnose.view import View
from gputop.model import Frame, GpuShare, Process

Held = Sequence[tuple[Process, GpuShare]]


def holders(view: View) -> Mapping[str, Held]:
    """Every process that the driver names, by GPU, each once; graphics count where nothing else does."""
    return view.once("holders", lambda: _holders(view.frame))


def _holders(frame: Frame) -> Mapping[str, Held]:
    found: dict[str, list[tuple[Process, GpuShare]]] = {}
    for process in frame.processes:
        if not process.gpus:
            continue
        mine: dict[str, GpuShare] = {}
        for share in process.gpus:
            other = mine.get(share.uuid)
            if other is None or _weight(share) > _weight(other):
                mine[share.uuid] = share
        for uuid, share in mine.items():
            found.setdefault(uuid, []).append((process, share))
    return found


def _weight(share: GpuShare) -> tuple[bool, int]:
    return share.kind != "graphics", share.vram_bytes or 0


def named(process: Process) -> str:
    """Name, pid and owner: `python 3310 of carol`."""
    owner = f" of {process.user}" if process.user else ""
    return f"{process.name or 'a process'} {process.pid}{owner}"
