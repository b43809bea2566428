"""What a result is of: which process, what was done to it, when, and where it is kept."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

from gputop.diagnose import Finding
from gputop.frozen_dataclass import frozen_dataclass
from gputop.model import Frame, Identity, Process
from gputop.monitor import Update
from gputop.profile.store import StoredProfile
from gputop.safe.text import clean
from gputop.ui.result.files import ResultFile
from gputop.ui.widgets import drawing

_INSIDE = "seen-inside"  # this rule rests on results as this one: beside one it says nothing


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """The head of a result. `processes` are all that it is of; findings of any of them are its own."""

    what: str  # torch trace, 3 steps
    pid: int | None
    at_s: float | None = None  # wall clock
    processes: tuple[Identity, ...] = ()
    job: str | None = None
    rank: int | None = None
    kept: StoredProfile | None = None
    files: tuple[ResultFile, ...] = ()
    older: tuple[StoredProfile, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def size_bytes(self) -> int:
        """Of all its files."""
        return sum(file.size_bytes or 0 for file in self.files)


def of_process(process: Process, what: str, at_s: float | None = None) -> About:
    """Of one that was just sampled."""
    return About(
        what=what, pid=process.pid, at_s=at_s, processes=(process.identity,), job=process.job, rank=process.rank
    )


def names(about: About, frame: Frame | None) -> list[str]:
    """From the outside in: its job, its rank, its pid, what was done to it, when."""
    found = []
    job = next((job for job in frame.jobs if job.key == about.job), None) if frame else None
    if job:
        found.append(drawing.cut(clean(job.name), 32))
    if about.rank is not None:
        found.append(f"rank{about.rank}")
    if about.pid is not None:
        found.append(str(about.pid))
    clock = "" if about.at_s is None else time.strftime(", %H:%M:%S", time.localtime(about.at_s))
    return [*found, f"{about.what}{clock}"]


def files_of(paths: Sequence[str]) -> tuple[ResultFile, ...]:
    """Files with their sizes, those that are there. Asks the disk."""
    found = []
    for path in paths:
        try:
            found.append(ResultFile(path, Path(path).lstat().st_size))
        except OSError:
            continue
    return tuple(found)


def files_in(folder: str) -> tuple[ResultFile, ...]:
    """What lies in a folder. Asks the disk."""
    try:
        return files_of(sorted(entry.path for entry in os.scandir(folder) if not entry.name.startswith(".")))
    except OSError:
        return ()


def live(about: About, update: Update | None) -> list[Finding]:
    """Findings that ask for something to be done now, of its processes, job or GPUs."""
    if update is None:
        return []
    frame, mine = update.frame, set(about.processes)
    gpus = {share.uuid for one in mine if (process := frame.by_identity.get(one)) for share in process.gpus}

    def is_of_it(finding: Finding) -> bool:
        subject = finding.subject
        if mine.intersection(subject.processes) or about.job in subject.job_keys:
            return True
        return subject.kind == "gpu" and bool(gpus.intersection(subject.gpus))

    troubles = (one for one in update.findings if one.severity != "info" and not one.healthy and one.rule != _INSIDE)
    return [one for one in troubles if is_of_it(one)]
