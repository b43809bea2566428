"""Whom a subject concerns."""

from __future__ import annotations

from collections.abc import Collection

from gputop.diagnose.finding import Subject
from gputop.model import Identity


def concerns(
    subject: Subject, processes: Collection[Identity], gpus: Collection[str], jobs: Collection[str | None] = ()
) -> bool:
    """Whether what is so of a subject is so of any of these; of the machine it is so of whom it names, else of all.

    `jobs`: keys of those that are asked about as a whole, with ranks that have ended.
    """
    if subject.kind == "host" and not subject.processes:
        return True
    return any(key in jobs for key in subject.job_keys) or names(subject, processes, gpus)


def names(subject: Subject, processes: Collection[Identity], gpus: Collection[str]) -> bool:
    """Whether a subject names any of these: GPUs only where it names no process, as others may share them."""
    if subject.processes:
        return any(identity in processes for identity in subject.processes)
    return any(uuid in gpus for uuid in subject.gpus)
