"""What an alert watches for: findings of rules, or a metric compared with a value."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, NamedTuple, Protocol

from gputop.alerts.message import from_finding, past
from gputop.alerts.metric_values import MeasuredSubject, MetricName, subjects, users_and_jobs, value_text
from gputop.diagnose import Finding, Severity
from gputop.diagnose.finding import POSSIBLE, subject_key
from gputop.diagnose.state import needs_action
from gputop.diagnose.steadying import RANKS
from gputop.diagnose.subject_overlap import persists
from gputop.frozen_dataclass import frozen_dataclass
from gputop.model import Frame, Unit
from gputop.monitor import Update

State = Literal["holds", "clear", "unknown", "exited"]
Test = Literal["above", "below", "is"]
_TESTS: Mapping[Test, Callable[[Any, Any], bool]] = {"above": operator.gt, "below": operator.lt, "is": operator.eq}


class Observation(NamedTuple):
    """Whether a condition holds for one subject in one update."""

    key: tuple[object, ...]  # of the subject, the same in every update
    state: State
    severity: Severity
    seen: Any  # the finding, or the subject and its value


class Condition(Protocol):
    """A condition of an alert."""

    @property
    def words(self) -> str:
        """What it watches for, as text."""

    def observe(self, update: Update) -> Iterator[Observation]:
        """Its subjects in an update."""
        ...

    def absent(self, last: Observation, update: Update) -> State:
        """The state of a subject that the update does not have; `last`: when the condition last held."""
        ...

    def same(self, last: Observation, now: Observation) -> bool:
        """Whether an observation with a new key continues an earlier one."""
        ...

    def fields(self, observed: Observation, update: Update) -> dict[str, Any]:
        """The fields of a message about it."""
        ...

    def fields_after(self, last: Observation, now: Observation | None, update: Update) -> dict[str, Any]:
        """The fields of the message that it is over. `last`: when it last held; `now`: None if it is gone."""
        ...


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Restricts an alert to subjects of one user or one job; empty: no restriction."""

    user: str = ""
    job: str = ""

    def __bool__(self) -> bool:
        return bool(self.user or self.job)

    @property
    def words(self) -> str:
        """`, of user alice`."""
        found = [*([f"user {self.user}"] if self.user else []), *([f"job {self.job}"] if self.job else [])]
        return f", of {' and '.join(found)}" if found else ""

    def admits(self, users: set[str], jobs: set[str]) -> bool:
        """Whether a subject of these users and jobs is meant."""
        return (not self.user or self.user in users) and (not self.job or self.job in jobs)


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class FindingCondition:
    """Findings of these rules, or of any rule, with at least this severity."""

    rules: frozenset[str] = frozenset()  # empty: all of them
    severity: Severity = "warn"
    only: Filter = Filter()

    @property
    def words(self) -> str:
        """`thermal or power, warn and crit`."""
        which = " or ".join(sorted(self.rules)) or "any finding"
        return f"{which}, {'crit only' if self.severity == 'crit' else 'warn and crit'}{self.only.words}"

    def observe(self, update: Update) -> Iterator[Observation]:
        """Each finding that asks for action and is not a mere suspicion."""
        for finding in update.findings:
            if needs_action(finding) and self._is_meant(finding, update.frame):
                yield Observation((finding.rule, subject_key(finding.subject)), "holds", finding.severity, finding)

    def _is_meant(self, finding: Finding, frame: Frame) -> bool:
        if RANKS[finding.severity] < RANKS[self.severity] or finding.confidence < POSSIBLE:
            return False
        if self.rules and self.rules.isdisjoint((finding.rule, *finding.causes)):
            return False
        return not self.only or self.only.admits(*_users_and_jobs(finding, frame))

    def absent(self, last: Observation, update: Update) -> State:
        """Still holding while the finding persists in another form: merged into another one, or less severe."""
        finding: Finding = last.seen
        if persists(finding, update.findings):
            return "holds"
        processes = finding.subject.processes
        if processes and update.frame.processes and not any(one in update.frame.by_identity for one in processes):
            return "exited"
        return "clear"

    def same(self, last: Observation, now: Observation) -> bool:
        """The same rule on overlapping subjects: a finding may grow by a GPU."""
        return bool(last.key[0] == now.key[0] and persists(last.seen, (now.seen,)))

    def fields(self, observed: Observation, update: Update) -> dict[str, Any]:
        """The words of the finding."""
        return from_finding(observed.seen, update.frame)

    def fields_after(self, last: Observation, now: Observation | None, update: Update) -> dict[str, Any]:  # noqa: ARG002
        """Its words while it held: what a rule measures now, it does not say."""
        return past(self.fields(last, update))


def _users_and_jobs(finding: Finding, frame: Frame) -> tuple[set[str], set[str]]:
    """Users and names of the jobs that a finding is about; of a GPU, those that use it."""
    about = finding.subject
    known = [frame.by_identity[one] for one in about.processes if one in frame.by_identity]
    if about.kind == "gpu":
        known += [one for one in frame.processes if any(share.uuid in about.gpus for share in one.gpus)]
    keys = {*about.job_keys, *(one.job for one in known)}
    jobs = {job.name: job.user for job in frame.jobs if job.key in keys}
    users = {about.user, *(one.user for one in known), *jobs.values()}
    return {user for user in users if user}, {*jobs, *filter(None, (about.name,))}


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class MetricCondition:
    """A metric above or below a number, or equal to a word or a flag; `of`: as a percentage of another metric."""

    metric: MetricName
    test: Test
    limit: Any
    of: MetricName | None = None
    severity: Severity = "warn"
    only: Filter = Filter()

    @property
    def unit(self) -> Unit:
        """The unit of its value and its limit."""
        return Unit.PERCENT if self.of else self.metric.metric.unit

    @property
    def words(self) -> str:
        """`GPU core temperature above 88 °C`."""
        return f"{self.metric.label} {self.comparison}{self.only.words}"

    @property
    def comparison(self) -> str:
        """The condition without its metric: `above 88 °C`."""
        whole = f" of {self.of.label}" if self.of else ""
        return f"{self.test} {value_text(self.limit, self.unit)}{whole}"

    def observe(self, update: Update) -> Iterator[Observation]:
        """Every subject of this kind."""
        for subject in subjects(self.metric.kind, update.frame):
            if self.only and not self.only.admits(*users_and_jobs(subject, update.frame)):
                continue
            value = self._value(subject)
            yield Observation(subject.key, self._state(value), self.severity, (subject, value))

    def _value(self, subject: MeasuredSubject) -> Any:
        value = self.metric.of(subject)
        if self.of is None or value is None:
            return value
        whole = self.of.of(subject)
        return 100 * value / whole if whole else None

    def _state(self, value: Any) -> State:
        if value is None:
            return "unknown"
        if isinstance(value, frozenset):  # of words
            return "holds" if self.limit in value else "clear"
        return "holds" if _TESTS[self.test](value, self.limit) else "clear"

    def absent(self, last: Observation, update: Update) -> State:  # noqa: ARG002 the frame has no such subject
        """A process has exited; a GPU or a disk may come back."""
        return "exited" if self.metric.kind == "process" else "unknown"

    def same(self, last: Observation, now: Observation) -> bool:  # noqa: ARG002 keys are of subjects
        """Never: another key is another subject."""
        return False

    def fields(self, observed: Observation, update: Update) -> dict[str, Any]:  # noqa: ARG002 the subject has it
        """What was measured, and the limit of the alert."""
        subject, value = observed.seen
        shown = value_text(value, self.unit)
        whole = f" of {self.of.label}" if self.of else ""
        return {
            "severity": self.severity,
            "about": subject.about(),
            "headline": f"{self.metric.label} {self.comparison}",
            "evidence": (f"{self.metric.label} {shown}{whole} (alert {self.comparison})",),
            "metric": self.metric.name,
            "value": float(value) if isinstance(value, (int, float)) else None,
            "limit": float(self.limit) if isinstance(self.limit, (int, float)) else None,
            "unit": self.unit.value,
        }

    def fields_after(self, last: Observation, now: Observation | None, update: Update) -> dict[str, Any]:
        """The present value; the last one that held if there is none."""
        if now is None or now.seen[1] is None:
            return past(self.fields(last, update))
        return self.fields(now, update)
