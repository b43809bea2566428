"""A finding: the verdict of one rule on one subject, with its evidence and its next steps."""

from __future__ import annotations

from typing import Literal

from gputop.frozen_dataclass import frozen_dataclass
from gputop.model import Identity, Missing
from gputop.severity import Severity as Severity

Grade = Literal["driver", "correlation", "profile"]
LIKELY, POSSIBLE = 0.75, 0.5  # confidence from which on it is called so; below, it is a suspicion


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What a finding is about."""

    kind: Literal["host", "gpu", "process", "job"]
    gpus: tuple[str, ...] = ()  # uuids
    processes: tuple[Identity, ...] = ()
    job: str | None = None  # key of a Job
    jobs: tuple[str, ...] = ()  # keys of several, of which the same is so; then `job` is None
    name: str | None = None  # what people called it when it was found: what is told of may be gone by now
    user: str | None = None  # whose it was then

    @property
    def job_keys(self) -> tuple[str, ...]:
        """The job that it is about, or all of them."""
        return self.jobs if self.job is None else (self.job,)


def told_apart(subject: Subject) -> object:
    """What tells a subject from others while it lasts: the GPUs of a process may change, and who uses the machine."""
    kind = subject.kind
    of = {"process": subject.processes, "job": subject.job or subject.jobs, "gpu": subject.gpus}
    return kind, of.get(kind)


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One number the verdict rests on, with the limit it was held against."""

    text: str
    value: float | None = None
    unit: str = ""
    limit: float | None = None


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One thing to do, best first. A command is printed, never run."""

    text: str
    command: str | None = None
    action: str | None = None
    needs_root: bool = False
    destroys: bool = False


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a rule found. `causes` are the rules folded into it; `lost_share` is 0-1 of the GPU's time."""

    rule: str
    severity: Severity
    subject: Subject
    headline: str
    evidence: tuple[Evidence, ...] = ()
    steps: tuple[Step, ...] = ()
    since_s: float = 0.0
    onset_s: float | None = None  # seconds since its cause began, where the rule knows that; no detection is as early
    confidence: float = 1.0
    grade: Grade = "correlation"
    healthy: bool = False
    primary: bool = False
    causes: tuple[str, ...] = ()
    lost_share: float | None = None
    state: str | None = None
    verify: Step | None = None  # measures what it says, of this very job


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Abstained:
    """A rule that could not judge: what it lacked and what would unlock it."""

    rule: str
    subject: Subject
    missing: tuple[Missing, ...]
    unlock: str | None = None


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Class:
    """Which of the four task classes a process falls into, and the questions that led there."""

    pid: int
    name: str
    margin: float | None = None
    path: tuple[tuple[str, str], ...] = ()  # (question, answer with its value)
    regime: str | None = None  # compute-bound, memory-bound, both, or overhead
