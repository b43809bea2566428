"""The experiment that measures what a finding claims, as a command for this job: one table from rule to command."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from gputop.diagnose.finding import Finding, Step
from gputop.model import Frame, Process, Role


class _Experiment(NamedTuple):
    """What it measures, and its command."""

    text: str
    command: str


_LOADER = _Experiment("time its DataLoader with other settings", "gputop loader --from {pid}")
_LAB = _Experiment("time its step in other precisions, and compiled", "gputop lab --from {pid}")
_MEMORY = _Experiment("show what grows with each step", "gputop memory {pid}")
_LARGEST = _Experiment("find the largest batch that fits", "gputop maxbatch --from {pid}")

EXPERIMENTS: Mapping[str, _Experiment] = {
    **dict.fromkeys(
        ("loader-in-main", "starved-cpu-saturated", "starved-cpu-idle", "head-of-line", "worker-respawn",
         "workers-oversized", "io-bound", "io-small-files", "network-fs-bound"),
        _LOADER,
    ),
    **dict.fromkeys(("tensor-cores-idle", "overhead-bound", "mem-bw-bound"), _LAB),
    **dict.fromkeys(("small-job", "gmem-nearly-full"), _LARGEST),
    **dict.fromkeys(("gmem-leak", "host-memory-leak"), _MEMORY),
}  # fmt: skip


def with_verification(finding: Finding, frame: Frame) -> Finding:
    """The finding with the step that verifies it, if its rule has one and there is a process to measure."""
    experiment = EXPERIMENTS.get(finding.rule)
    process = _process(finding, frame) if experiment and not finding.healthy else None
    if experiment is None or process is None:
        return finding
    return replace(finding, verify=Step(text=experiment.text, command=experiment.command.format(pid=process.pid)))


def _process(finding: Finding, frame: Frame) -> Process | None:
    """The process to measure: the first one named, the first rank of its job, or on a GPU the one with most memory."""
    subject = finding.subject
    ranks = [rank for job in frame.jobs if job.key in subject.job_keys for rank in job.ranks]
    for identity in (*subject.processes, *ranks):
        process = frame.by_identity.get(identity)
        if process is not None and process.verified:
            return process
    held = [
        (share.vram_bytes or 0, process)
        for process in frame.processes
        for share in process.gpus
        if process.role is Role.TRAINER and process.verified and share.uuid in subject.gpus
    ]
    return max(held, key=lambda one: one[0])[1] if held else None
