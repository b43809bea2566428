"""What people call the subject of a finding, and how sure one is of it, in words."""

from __future__ import annotations

from collections.abc import Iterable

from gputop import units
from gputop.diagnose.finding import Finding, Subject
from gputop.model import Frame, Job, Process

LIKELY, POSSIBLE = 0.75, 0.5


def sentence(finding: Finding, frame: Frame) -> str:
    """A finding in one line: `llama-7b (alice, GPU 0-3) waits for its loaders`."""
    return f"{named(finding.subject, frame)} {finding.headline}"


def sureness(confidence: float) -> str:
    """The word for a confidence, 0-1; what is `unlikely` is told only to who asks."""
    return "likely" if confidence >= LIKELY else "possible" if confidence >= POSSIBLE else "unlikely"


def named(subject: Subject, frame: Frame) -> str:
    """`GPU 2`, `llama-7b (alice, GPU 0-3)`, `train.py (pid 4121, bob, GPU 4)`, `the machine`."""
    gpus = indexes(subject.gpus, frame)
    if subject.kind == "host":
        return "the machine"
    if subject.kind == "gpu":
        return gpus
    job = next((job for job in frame.jobs if job.key == subject.job), None)
    known = [frame.by_identity[identity] for identity in subject.processes if identity in frame.by_identity]
    if job and (subject.kind == "job" or len(job.ranks) <= 1):
        return _with(job.name, job.user, gpus)
    if subject.kind == "job" or not subject.processes:
        return _with(subject.job or "a job", None, gpus)
    pid = f"pid {subject.processes[0].pid}"
    if not known:
        return _with(pid, None, gpus)
    return _with(_title(known[0], job), pid, known[0].user, gpus)


def indexes(uuids: Iterable[str], frame: Frame) -> str:
    """GPUs as people count them: `GPU 0-3`; nothing where there are none."""
    found = [frame.by_uuid[uuid].index if uuid in frame.by_uuid else uuid for uuid in uuids]
    if not found:
        return ""
    whole = all(index.isdecimal() for index in found)
    return f"GPU {units.ranges(tuple(map(int, found))) if whole else ', '.join(found)}"


def _title(process: Process, job: Job | None) -> str:
    if job and process.rank is not None:
        return f"{job.name} rank {process.rank}"
    script = next((part for part in process.command[1:] if part.endswith(".py")), "")
    return script.rpartition("/")[2] or process.name


def _with(name: str, *asides: str | None) -> str:
    told = ", ".join(aside for aside in asides if aside)
    return f"{name} ({told})" if told else name
