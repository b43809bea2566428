"""The engine: frames and their history in, findings out. Deterministic: the same frames give the same findings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields
from functools import cached_property
from typing import TYPE_CHECKING

from gputop.diagnose import testimony
from gputop.diagnose.contention import Contention, contention
from gputop.diagnose.engine_state import EngineState
from gputop.diagnose.finding import Abstained, Class, Finding
from gputop.diagnose.limits import Limits, Tables
from gputop.diagnose.merge import merge_abstentions, merge_findings
from gputop.diagnose.rule import Rule
from gputop.diagnose.steadying import OFF_FACTOR, Steadying, crit_after
from gputop.diagnose.verify import with_verification
from gputop.diagnose.view import View, subject_of
from gputop.diagnose.workload_class import Answers, classes
from gputop.frozen_dataclass import frozen_dataclass
from gputop.history import History
from gputop.model import Frame, Gpu, Missing
from gputop.model.plausible import plausible

if TYPE_CHECKING:
    from gputop.diagnose.state import JobState


_OF_GPUS = {field.name for field in fields(Gpu)} | {"gpus"}  # the second is about a process
_NONE = "the driver lists no GPU"


def without_gpus(frame: Frame, rules: Iterable[Rule]) -> Iterator[Abstained]:
    """An abstention for each rule that judges GPUs or processes on GPUs."""
    note = next((note for note in frame.notes if note.subject == "driver"), None)
    why = f"{note.text if note else _NONE}; run gputop doctor for help".replace(".;", ";")
    about = subject_of(frame.host)
    for rule in rules:
        if not rule.alone:
            wanted = [need.split(" or ") for need in rule.needs or rule.partly]
            lacked = [names[0] for names in wanted if _OF_GPUS.issuperset(names)] or ["gpus"]
            missing = tuple(Missing(metric=name, reason="absent", unlock=why) for name in lacked)
            yield Abstained(rule=rule.id, subject=about, missing=missing, unlock=why)


BROKEN = "this rule failed"
EVERY_S = 2.0  # the shortest window is ten seconds: evaluating every frame doubles the cost and shows nothing more
_FEW, _EACH_S, _SELDOM_S = 8, 0.375, 5.0  # above this many trainers the interval grows with each, up to this limit
_CLASSES_EVERY_S = 10.0  # windows of about two minutes
_SLACK_S = 0.1  # tolerance for an early tick
_LONGEST_S = 15.0  # the longest time one sample may stand for: what happened in a longer gap is unknown,
_UNEVEN = 1.5  # unless samples are that rare: then this many times the last interval


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the rules found in a frame."""

    findings: tuple[Finding, ...] = ()
    abstained: tuple[Abstained, ...] = ()
    classes: tuple[Class, ...] = ()
    jobs: tuple[JobState, ...] = ()
    host: JobState | None = None
    contention: Contention | None = None  # consumers that slow trainers down; None before the first evaluation


class Engine:
    """All rules over time. `limits` gives the tables of thresholds.toml when the rules are first evaluated."""

    def __init__(self, limits: Callable[[], Limits]) -> None:
        self._read = limits
        self.forget()

    @cached_property
    def _tables(self) -> Tables:
        return Tables(self._read())

    def forget(self) -> None:
        """Start over: the next frame is from another time."""
        self._remembered, self._steady = EngineState(), Steadying(self._window_s, self._crit_s)
        self._seen: tuple[Frame, Frame] | None = None  # the newest frame as collected, and as the rules see it
        self._judged_s: float | None = None
        self._pace_s = EVERY_S  # between the last two evaluations
        self._classed_s = -_CLASSES_EVERY_S
        self._verdict = Verdict()

    def remember(self, frame: Frame, history: History) -> None:
        """Take in a frame that the history has just taken in; cheap, and required for every frame."""
        self._remembered.add(self._cleaned(frame), history)

    def _cleaned(self, frame: Frame) -> Frame:
        """The frame without impossible values, and with substitutes for metrics that a GPU does not have."""
        if self._seen is None or self._seen[0] is not frame:
            self._seen = frame, self._remembered.substitutes.fill(plausible(frame))
        return self._seen[1]

    def clearing(self, rule: str) -> tuple[float, dict[str, tuple[float, float]]]:
        """Seconds a finding must not hold before it clears, and by name its limits for appearing and for clearing."""
        numbers = self._tables[rule]
        return OFF_FACTOR * numbers["on_s"][0], numbers.clearing()

    @property
    def verdict(self) -> Verdict:
        """The last verdict; empty before the first evaluation."""
        return self._verdict

    def judge(self, frame: Frame, history: History, every_s: float = EVERY_S) -> Verdict:
        """Evaluate the rules on the newest frame; return the last verdict if they ran a moment ago."""
        many = max(0, len(self._remembered.trees) - _FEW)
        every_s = max(every_s, min(_SELDOM_S, EVERY_S + _EACH_S * many))
        since_s = self._pace_s if self._judged_s is None else frame.mono_s - self._judged_s
        if self._judged_s is not None and since_s < every_s - _SLACK_S:
            return self._verdict
        self._judged_s, frame = frame.mono_s, self._cleaned(frame)
        self._remembered.describe(frame.mono_s, since_s)
        stands_for_s = min(since_s, max(_LONGEST_S, _UNEVEN * self._pace_s))
        self._pace_s = since_s
        view = View(frame, history, self._remembered, self._tables, stands_for_s)
        on_screen = self._steady.shown()
        found: list[tuple[Finding, float]] = []
        for rule in sorted(_every_rule(), key=lambda rule: not rule.first):
            but = view.evaluating if rule.of_phase else ()
            view.start_rule(rule.id, rule.state, on_screen.get(rule.id, ()), needs=rule.needs, but=but)
            found += self._run(rule, view)
        if not frame.gpus:
            view.abstained += without_gpus(frame, _every_rule())
        self._steady.restart(self._remembered.restarted, frame.mono_s, stands_for_s)
        self._remembered.restarted.clear()
        shown = self._steady.update(found, frame.mono_s, stands_for_s, view.evaluating)
        self._verdict = self._build_verdict(view, shown)
        return self._verdict

    def _run(self, rule: Rule, view: View) -> list[tuple[Finding, float]]:
        """Findings of one rule, each with its on-window."""
        on_s, _ = self._tables[rule.id]["on_s"]
        try:
            fed = self._tables.limits["engine"]["metered_fed"]
            found = [
                one for one in rule.judge(view) if not testimony.contradicted(one, rule.confirmed_by, view.frame, fed)
            ]
            return [(self._with_confidence(rule, finding, view.frame), on_s) for finding in found]
        except Exception as error:  # an error in one rule must not stop the others, nor the monitor
            view.abstain(view.frame.host, unlock=f"{BROKEN} ({type(error).__name__}: {error}): please report it")
            return []

    def _build_verdict(self, view: View, shown: Sequence[Finding]) -> Verdict:
        """The verdict of this evaluation; `shown` are the findings on the screen."""
        from gputop.diagnose.job_states import PendingFinding, host_state, job_states  # imported late, as the rules are

        frame = view.frame
        shown = [one for one in shown if not _has_ended(one, frame)]
        folded = merge_findings(shown, frame, self._remembered.tenants, self._tables.limits)
        findings = tuple(with_verification(one, frame) for one in folded)
        classes = self._classes(view, shown)
        view.start_rule("job-states")
        coming = [PendingFinding(*one) for one in self._steady.pending(frame.mono_s)]
        return Verdict(
            findings=findings,
            abstained=tuple(merge_abstentions(view.abstained)),
            classes=classes,
            jobs=job_states(view, findings, coming),
            host=host_state(view, findings),
            contention=contention(view),
        )

    def _window_s(self, rule: str) -> float:
        return self._tables[rule]["window_s"][0]

    def _crit_s(self, rule: str) -> float:
        return crit_after(rule, self._tables.limits)

    def _with_confidence(self, rule: Rule, finding: Finding, frame: Frame) -> Finding:
        limits = self._tables.limits["engine"]
        about = [process for one in finding.subject.processes if (process := frame.by_identity.get(one)) is not None]
        measured = (
            fact
            for process in about
            for fact in testimony.measured_facts(process, limits["metered_wait"], frame.wall_s)
        )
        return testimony.confirmed(finding, rule.confirmed_by, (*frame.facts, *measured), limits["told_share"])

    def _classes(self, view: View, shown: Sequence[Finding]) -> tuple[Class, ...]:
        if view.frame.mono_s - self._classed_s < _CLASSES_EVERY_S:
            return self._verdict.classes
        self._classed_s = view.frame.mono_s
        view.start_rule("classes")
        return tuple(classes(view, Answers(shown, view.abstained)))


def _has_ended(finding: Finding, frame: Frame) -> bool:
    """Whether all processes of a finding have ended: nothing is left to act on."""
    subject = finding.subject
    about = subject.processes if subject.kind in ("process", "job") else ()
    return bool(about and frame.processes) and not any(one in frame.by_identity for one in about)


def _every_rule() -> Iterable[Rule]:
    # imported late: the first frame is drawn before the rules are loaded, and no rule fires on a single frame
    from gputop.diagnose.rules import RULES

    return RULES.values()
