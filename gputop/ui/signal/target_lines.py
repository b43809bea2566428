"""The process that a dialog is about, in two lines: a pid alone is not enough to trust."""

from __future__ import annotations

from dataclasses import replace

from gputop import labels, units
from gputop.actions.signals import elsewhere
from gputop.model import Frame, Process, Role


def command(process: Process) -> str:
    """What it runs; its rank stands in the other line."""
    return labels.command(replace(process, rank=None))


def facts(frame: Frame, process: Process, dot: str) -> str:
    """`alice · rank 0 of 4 of llama-7b · running 12:30:51 · GPU 0, 66.1G`, as far as it is known."""
    parts = [process.user or "", _place(frame, process)]
    parts.append(f"running {units.clock(process.age_s)}" if process.age_s is not None else "")
    parts.append(_gpus(frame, process))
    return f" {dot} ".join(part for part in parts if part)


def _place(frame: Frame, process: Process) -> str:
    job = next((job for job in frame.jobs if job.key == process.job), None)
    if job is None:
        return ""
    here = [frame.by_identity[rank] for rank in job.ranks if rank in frame.by_identity]
    ranks = len(job.ranks) + elsewhere(job, here)
    if process.role is Role.TRAINER and process.rank is not None and ranks > 1:
        return f"rank {process.rank} of {ranks} of {job.name}"
    role = {Role.LOADER: "loader of ", Role.LAUNCHER: "launcher of "}.get(process.role, "")
    return f"{role}{job.name}"


def _gpus(frame: Frame, process: Process) -> str:
    known = frame.by_uuid
    shares = [share for share in process.gpus if share.uuid in known]
    if not shares:
        return ""
    indexes = dict.fromkeys(known[share.uuid].index for share in shares)
    held = [share.vram_bytes for share in shares if share.vram_bytes is not None]
    memory = f", {units.size(sum(held))}" if held else ""
    return f"GPU{'s' if len(indexes) > 1 else ''} {','.join(indexes)}{memory}"
