"""A finding: the verdict of one rule on one subject, with its evidence and its next steps."""

from __future__ import annotations

from typing import Literal

from gputop.frozen_dataclass import frozen_dataclass
from gputop.model import Identity, Missing
from gputop.phrases import Sense
from gputop.severity import Severity as Severity

Grade = Literal["driver", "correlation", "profile", "job"]  # its basis; `job`: reported by the job itself
Cost = Literal["lost", "idle", "none"]  # time that a fix wins back; time the GPU has to spare; no time
POSSIBLE = 0.5  # confidence from which a finding is shown; below, it is a suspicion


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The subject of a finding."""

    kind: Literal["host", "gpu", "process", "job"]
    gpus: tuple[str, ...] = ()  # uuids
    processes: tuple[Identity, ...] = ()
    job: str | None = None  # key of a Job
    jobs: tuple[str, ...] = ()  # keys of several jobs with the same finding; then `job` is None
    name: str | None = None  # display name at the time of the finding: the subject may have ended since
    user: str | None = None  # its owner at that time

    @property
    def job_keys(self) -> tuple[str, ...]:
        """Keys of the jobs it is about."""
        return self.jobs if self.job is None else (self.job,)


def subject_key(subject: Subject) -> object:
    """Identity of a subject over time: the GPUs of a process may change, and so may the users of a machine."""
    kind = subject.kind
    of = {"process": subject.processes, "job": subject.job or subject.jobs, "gpu": subject.gpus}
    return kind, of.get(kind)


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One number the verdict rests on, with the limit it is compared with.

    `sense` is on which side of the limit the trouble is: of a measure of health (GPU busy) the healthy side is named,
    of a condition that is neither good nor bad by itself (CPU cores in use) the side from which on the rule counts it.
    """

    text: str
    value: float | None = None
    unit: str = ""
    limit: float | None = None
    sense: Sense | None = None


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One thing to do. A command is printed, never run."""

    text: str
    command: str | None = None
    action: str | None = None
    needs_root: bool = False
    destroys: bool = False


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of a rule. `causes` are the rules merged into it; `lost_share` is the lost share (0-1) of GPU time."""

    rule: str
    severity: Severity
    subject: Subject
    headline: str
    evidence: tuple[Evidence, ...] = ()
    steps: tuple[Step, ...] = ()
    since_s: float = 0.0
    onset_s: float | None = None  # seconds since the cause began, where the rule knows it; detection is always later
    confidence: float = 1.0
    grade: Grade = "correlation"
    healthy: bool = False
    primary: bool = False
    causes: tuple[str, ...] = ()
    lost_share: float | None = None
    cost: Cost = "lost"  # what the lost share is called
    state: str | None = None
    verify: Step | None = None  # measures what the finding claims, for this job

    @property
    def confirmed(self) -> bool:
        """Whether its cause was seen inside the process: by a profile, a trace, or its own step meter."""
        return self.grade in ("profile", "job")


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Abstained:
    """A rule that could not judge: what was missing and what would unlock it."""

    rule: str
    subject: Subject
    missing: tuple[Missing, ...]
    unlock: str | None = None


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Class:
    """Which of the four workload classes a process has, and the questions that led there."""

    pid: int
    name: str
    margin: float | None = None
    path: tuple[tuple[str, str], ...] = ()  # (question, answer with its value)
    regime: str | None = None  # compute-bound, memory-bound, both, or overhead
