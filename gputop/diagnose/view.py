"""What a rule sees: the machine now, its subjects, the recent past, the rule's limits, and builders for findings."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import replace
from operator import attrgetter
from typing import Any, Literal, TypeVar

from gputop import labels
from gputop.diagnose import features
from gputop.diagnose.engine_state import EngineState
from gputop.diagnose.finding import Abstained, Cost, Evidence, Finding, Grade, Severity, Step, Subject, subject_key
from gputop.diagnose.limits import Tables
from gputop.diagnose.pauses import Pauses
from gputop.diagnose.running_means import KEPT_S, Means
from gputop.diagnose.substitutes import Substitute
from gputop.diagnose.trainer import Trainer
from gputop.history import COARSE_S, FINE_S, FINE_SLOTS, History, HistoryWindow, Key
from gputop.model import Fact, Frame, Gpu, Host, Identity, Job, Missing, Process
from gputop.safe import ptrace_access

Thing = Gpu | Trainer | Process | Job | Host


def subject_of(thing: Thing) -> Subject:
    """The subject of a finding on this object."""
    if isinstance(thing, Trainer):
        return thing.subject
    if isinstance(thing, Gpu):
        return Subject(kind="gpu", gpus=(thing.uuid,))
    if isinstance(thing, Process):
        gpus = tuple(share.uuid for share in thing.gpus)
        return Subject(kind="process", gpus=gpus, processes=(thing.identity,), job=thing.job)
    if isinstance(thing, Job):
        return Subject(kind="job", processes=thing.ranks, job=thing.key)
    return Subject(kind="host")


class Subjects:
    """One evaluation and the subjects to judge in it."""

    def __init__(self, frame: Frame, history: History, remembered: EngineState, tables: Tables) -> None:
        self.frame, self.history = frame, history
        self._remembered, self._tables = remembered, tables
        self._jobs = {job.key: job for job in frame.jobs}
        self._trainers: tuple[Trainer, ...] | None = None
        self._mates: dict[str, list[Trainer]] = {}  # trainers by job key
        self._known: dict[tuple[Key, float, float], Means] = {}
        self._shown: Collection[object] = ()
        self._but: Collection[Identity] = ()
        # 1 while the subject has a shown finding: its limits are lenient; -1 inside `against`
        self._lenient = 0

    def subject_of(self, thing: Thing) -> Subject:
        """The subject of a finding on this object, with its current display name."""
        subject = subject_of(thing)
        process = thing.process if isinstance(thing, Trainer) else thing if isinstance(thing, Process) else None
        job = self._jobs.get(subject.job or "")
        if job is None and process is None:
            return subject
        user = (job.user if job else None) or (process.user if process else None)
        name = self.display_name(process) if process else job.name if job else None
        return replace(subject, name=name, user=user)

    def display_name(self, process: Process) -> str:
        """Display name of a process: its job, else its program."""
        job = self._jobs.get(process.job or "")
        return job.name if job else labels.script(process)

    def start_rule(
        self,
        rule: str,
        state: str = "",
        shown: Collection[object] = (),
        *,
        needs: Collection[str] = (),
        but: Collection[Identity] = (),
    ) -> None:
        """Prepare for the next rule; `shown`: subjects of its shown findings.

        `but`: trainers it does not judge now; `needs`: metrics it requires.
        """
        self._rule, self._state, self._shown, self._but, self._lenient = rule, state, shown, but, 0
        self._by_busy = "busy_percent" in needs
        self._numbers = self._tables[rule]

    def gpus(self, *, silent: bool = False) -> Iterator[Gpu]:
        """GPUs that respond; `silent` adds the others."""
        for gpu in self.frame.gpus:
            if silent or (gpu.condition == "ok" and gpu.age_s == 0):
                yield self._current(gpu)

    def trainers(self, *, cold: bool = False) -> Iterator[Trainer]:
        """Trainers after startup; `cold` adds those still starting, or without a GPU."""
        found = (one for one in self.vectors() if (cold or one.warm) and one.identity not in self._but)
        return map(self._current, found) if self._shown else found  # usually nothing is shown: leniency stays 0

    def jobs(self) -> Iterator[Job]:
        """Jobs; `ranks(job)` are their trainers."""
        for job in self.frame.jobs:
            yield self._current(job)

    def host(self) -> Host:
        """The machine itself, as the subject."""
        host: Host = self._current(self.frame.host)
        return host

    def vectors(self) -> tuple[Trainer, ...]:
        """Every trainer, for comparison and lookup; use `trainers` to judge them one by one."""
        if self._trainers is None:
            warm_s = self._tables.limits["engine"]["warm_s"]
            self._trainers = tuple(
                features.trainer(self.frame, self._means, self._remembered, tree, self._jobs, warm_s)
                for tree in self._remembered.trees.values()
            )
            for one in self._trainers:
                self._mates.setdefault(one.process.job or "", []).append(one)
        return self._trainers

    def mates(self, trainer: Trainer) -> Sequence[Trainer]:
        """Trainers of its job on this machine, itself included."""
        return self._mates[trainer.process.job] if trainer.process.job else (trainer,)

    def pauses(self, trainer: Trainer) -> Pauses:
        """Its intervals without GPU work, over the whole time it was tracked."""
        return self._remembered.trainers[trainer.identity].pauses

    def ranks(self, job: Job) -> tuple[Trainer, ...]:
        """Trainers of a job on this machine, by rank."""
        places = {identity: place for place, identity in enumerate(job.ranks)}
        self.vectors()
        return tuple(sorted(self._mates.get(job.key, ()), key=lambda one: places.get(one.identity, len(places))))

    def tenants(self, gpu: Gpu) -> tuple[Process, ...]:
        """Processes that compute on a GPU."""
        return tuple(self._remembered.tenants.get(gpu.uuid, ()))

    def _current(self, thing: Any) -> Any:
        self._lenient = 1 if self._shown and subject_key(subject_of(thing)) in self._shown else 0
        return thing

    def _means(self, about: Key, seconds: float, wanted_s: float) -> Means:
        """Means of a subject, cached: many rules share them."""
        asked = about, seconds, wanted_s
        found = self._known.get(asked)
        if found is None:
            found = self._known[asked] = self._remembered.sums.means(about, seconds, wanted_s / 2)
        return found


_N = TypeVar("_N", bound="Numbers")
_KEYS: dict[type, Callable[[Any], Key]] = {
    str: str,
    Trainer: attrgetter("key"),
    Job: attrgetter("key"),
    Gpu: attrgetter("uuid"),
    Process: attrgetter("identity"),
    Host: lambda _: "host",
}


class Numbers(Subjects):
    """Windows and comparisons with hysteresis."""

    _for = 1  # 0 where evidence against a finding is compared

    @property
    def against(self: _N) -> _N:
        """The same for evidence against a finding: once it is shown, that must exceed the limit clearly."""
        other = copy(self)
        other._lenient, other._for = -self._lenient, 0
        return other

    @property
    def usual_step_s(self) -> float:
        """The typical interval between frames in seconds."""
        return self._remembered.usual_step_s

    @property
    def watched_s(self) -> float:
        """Seconds since the first frame that the rules know."""
        first_s = self._remembered.first_s
        return 0.0 if first_s is None else self.frame.mono_s - first_s

    def limit(self, name: str, lenient: int = 0) -> float:
        """A number of the rule's table in thresholds.toml, or of another one, as "starved.duty".

        `lenient`: 1 or -1 for the limit above or below which a shown finding clears.
        """
        limit, slack = self._numbers[name]
        return limit + lenient * slack

    def above(self, value: float | None, name: str) -> bool:
        """Whether a value is at or above the limit of this name; False for an unknown one."""
        if value is None:
            return False
        limit, slack = self._numbers[name]
        if self._for:
            self._numbers.held[name] = 1
        return value >= limit - self._lenient * slack

    def below(self, value: float | None, name: str) -> bool:
        """Whether a value is at or below the limit of this name; False for an unknown one."""
        if value is None:
            return False
        limit, slack = self._numbers[name]
        if self._for:
            self._numbers.held[name] = -1
        return value <= limit + self._lenient * slack

    def window(
        self, thing: Thing | str, metric: str, seconds: float | None = None, *, whole: bool = False
    ) -> HistoryWindow:
        """The last seconds of a metric, by default the rule's `window_s`, limited to the trainer's phase.

        `whole` includes earlier phases. A trainer has the metrics of `TrainerTree`; a key such as "disk nvme0n1"
        is one of the history.
        """
        about, known_s, _ = self._about(thing, seconds, whole)
        return self.history.window(about, self._kept(thing, metric), known_s)

    def mean(
        self, thing: Thing | str, metric: str, seconds: float | None = None, *, whole: bool = False
    ) -> float | None:
        """The mean of the same; None if less than half of the seconds is known."""
        asked = about, known_s, wanted_s = self._about(thing, seconds, whole)
        means = self._known.get(asked)
        if means is None:
            if known_s > KEPT_S or about not in self._remembered.sums:
                return self.history.mean(about, self._kept(thing, metric), known_s, wanted_s / 2)
            means = self._means(*asked)
        return means.get(metric)

    def fact(self, thing: Trainer | Process, *names: str) -> Fact | None:
        """The first of these facts reported recently for a process by a stack, a trace or the program itself."""
        of = thing.identity
        return next((fact for fact in self.frame.facts if fact.process == of and fact.name in names), None)

    def past(self, thing: Thing | str, metric: str, seconds: float) -> list[float | None]:
        """Means over 15 s for up to four hours, complete intervals only, newest last.

        Includes earlier phases of a trainer.
        """
        count = round(seconds / COARSE_S)
        reach_s = max(seconds, FINE_S * FINE_SLOTS) + COARSE_S  # no shorter, or the history would return seconds
        return self.history.values(self._key(thing), self._kept(thing, metric), reach_s, COARSE_S)[-count - 1 : -1]

    def substitute(self, thing: Thing | str) -> Substitute | None:
        """The substitute for the utilization of a GPU, or of a trainer's or job's GPUs; None if that is known."""
        if not self._remembered.substitutes.of:
            return None
        if type(thing) is Gpu:
            return self._remembered.substitutes.of.get(thing.uuid)
        trainers = (thing,) if type(thing) is Trainer else self.ranks(thing) if type(thing) is Job else ()
        return next((one.duty_by for one in trainers if one.duty_by), None)

    def _kept(self, thing: Thing | str, metric: str) -> str:
        """The history's metric for this one: for utilization the substitute of the GPU, if any."""
        if metric != "busy_percent" or type(thing) is not Gpu:
            return metric
        substitute = self._remembered.substitutes.of.get(thing.uuid)
        return substitute.metric if substitute else metric

    def _key(self, thing: Thing | str) -> Key:
        return _KEYS[type(thing)](thing)

    def _about(self, thing: Thing | str, seconds: float | None, whole: bool) -> tuple[Key, float, float]:
        """Its history key, the seconds available, and the seconds wanted."""
        wanted_s = self._numbers["window_s"][0] if seconds is None else seconds
        if type(thing) is not Trainer:
            return self._key(thing), wanted_s, wanted_s
        return thing.key, wanted_s if whole else max(1.0, min(wanted_s, thing.phase_s)), wanted_s


def idle_watts(numbers: Numbers, gpu: Gpu) -> float | None:
    """Power of a GPU without work, in watts."""
    card = numbers._remembered.cards.get(gpu.uuid)
    return card.idle_watts(gpu) if card else None


FINE_SPAN_S = FINE_S * FINE_SLOTS  # kept by the history at one-second resolution
_T = TypeVar("_T")
_NO_CPUS = "number of CPUs unknown: set cpus_total of the host in a handwritten recording"
_WORST_FIRST: tuple[Literal["crit", "warn", "info"], ...] = ("crit", "warn", "info")
# origin of a trainer's feature, for the reason why it is unknown
ORIGIN = {
    "duty": "busy_percent", "power_share": "power_watts", "clock_share": "sm_clock_mhz", "sm": "sm_active_percent",
    "memory_busy": "memory_busy_percent", "occupancy": "sm_occupancy_percent", "tensor": "tensor_percent",
    "dram": "dram_percent", "fp32": "fp32_percent", "pcie_rx": "pcie_rx_bytes_per_s", "nvlink": "nvlink_rx_bytes_per_s",
    "pcie_tx": "pcie_tx_bytes_per_s", "allowed": "allowed_cpus", "main": "main_thread_percent",
    "cores": "cpu_percent", "own": "cpu_percent", "loader_cpu": "cpu_percent", "loader_low": "cpu_percent",
    "loader_blocked": "blocked_percent", "loader_delayed": "io_wait_percent", "loader_wait": "run_wait_percent",
    "run_wait": "run_wait_percent", "main_wait": "main_run_wait_percent", "compute_threads": "busy_threads",
    "switches": "voluntary_switches_per_s", "throttled": "throttled_percent", "read_bytes": "read_bytes_per_s",
    "read_chars": "read_chars_per_s", "read_calls": "read_calls_per_s", "write_chars": "write_chars_per_s",
    "is_rank": "world_size",
}  # fmt: skip


class View(Numbers):
    """One evaluation, as each rule in turn sees it.

    `gpus()`, `trainers()`, `jobs()` and `host()` iterate over subjects. While a rule evaluates a subject with a shown
    finding, `above` and `below` are lenient, so that a value at the limit does not flicker: rules use them instead of
    `<`. Evidence against a finding is compared through `against`. `stands_for_s`: seconds since the last evaluation,
    for state that a rule accumulates.
    """

    def __init__(
        self, frame: Frame, history: History, remembered: EngineState, tables: Tables, stands_for_s: float
    ) -> None:
        super().__init__(frame, history, remembered, tables)
        self.stands_for_s = stands_for_s
        self.abstained: list[Abstained] = []
        self.evaluating: set[Identity] = set()  # trainers in a recurring phase, which is not judged
        self._once: dict[Hashable, Any] = {}

    def cached(self, about: Hashable, work: Callable[[], _T]) -> _T:
        """A value shared by several rules, computed by the first. It must not depend on a rule's limits."""
        if about not in self._once:
            self._once[about] = work()
        found: _T = self._once[about]
        return found

    def notes(self, thing: Thing, of: str | None = None) -> dict[str, Any]:
        """Notes of this or another rule on a subject, kept between evaluations; the caller changes them in place."""
        return self._remembered.note(of or self._rule, self._key(thing), self.frame.mono_s)

    def record(self, thing: Thing, seen: _T, about: str = "") -> deque[tuple[float, _T]]:
        """What this rule saw of a subject over its window, this evaluation last: (time, value).

        `about` separates several series of one subject.
        """
        samples: deque[tuple[float, _T]] = self.notes(thing).setdefault(f"samples {about}", deque())
        samples.append((self.frame.mono_s, seen))
        while samples[0][0] < self.frame.mono_s - self.limit("window_s"):
            samples.popleft()
        return samples

    def begin(self, trainer: Trainer, at_s: float) -> None:
        """Start its phase at this time: measurements of it begin then."""
        self._remembered.begin(trainer.identity, at_s)

    def knows(self, thing: Thing, *names: str, unlock: str | None = None) -> bool:
        """Whether these metrics are known; a lasting reason becomes an abstention, a missing first value does not."""
        for name in names:  # usually all are known
            if getattr(thing, name) is None:
                break
        else:
            return True
        unknown = [name for name in names if getattr(thing, name) is None]
        said = {missing.metric: missing for missing in getattr(thing, "missing", ())}
        absent = () if isinstance(thing, Trainer) else unknown  # a trainer's unknown value may just not be there yet
        said = {**{name: Missing(metric=name, reason="absent") for name in absent}, **said}
        reasons = [missing for name in unknown if (missing := said.get(ORIGIN.get(name, name)))]
        if reasons:
            self.abstain(thing, *reasons, unlock=unlock)
        return False

    def reading(self, thing: Gpu | Trainer, percent: float) -> str:
        """GPU busy, by the metric that measures it: `GPU busy 55 %`."""
        substitute = self.substitute(thing)
        return substitute.reading(percent) if substitute else f"GPU busy {percent:.0f} %"

    def abstain(self, thing: Thing, *missing: Missing, unlock: str | None = None) -> None:
        """Record that this rule cannot judge a subject, and what would allow it."""
        unlock = unlock or next((one.unlock for one in missing if one.unlock), None)
        self.abstained.append(
            Abstained(rule=self._rule, subject=self.subject_of(thing), missing=tuple(missing), unlock=unlock)
        )

    def unlock(self, what: str, sudo: str = "run gputop as the same user, or with sudo") -> str:
        """How to read a hidden value: root gains nothing from sudo."""
        root = f"root sees it with CAP_SYS_PTRACE (in a container: {ptrace_access.CAPABILITY})"
        return f"{what}: {root if self.frame.viewer_uid == 0 else sudo}"

    def cpus(self) -> int | None:
        """CPUs of the machine; if unknown, this rule abstains, as it needs the number."""
        total = self.frame.host.cpus_total or None
        if total is None:
            self.abstain(self.frame.host, Missing(metric="cpus_total", reason="absent", unlock=_NO_CPUS))
        return total

    def confidence(self, base: float, *optional: object, confirmed: bool = False) -> float:
        """The rule's base confidence; lower if an optional signal is unknown (None), higher if a profile confirms."""
        known = base * 0.8 if None in optional else base
        return min(0.98, known + 0.15) if confirmed else known

    def by_share(self, lost: float | None) -> Severity | None:
        """Severity for this lost share of GPU time; None if it is negligible."""
        table = self._tables.limits["engine"]
        for severity in _WORST_FIRST:
            if lost is not None and lost >= table[f"lost_{severity}"]:
                return severity
        return None

    def found(
        self,
        thing: Thing,
        severity: Severity,
        headline: str,
        *,
        evidence: tuple[Evidence, ...] = (),
        steps: tuple[Step, ...] = (),
        confidence: float,
        grade: Grade = "correlation",
        healthy: bool = False,
        lost_share: float | None = None,
        cost: Cost = "lost",
        state: str | None = None,
        onset_s: float | None = None,
        gpus: Iterable[str] = (),
        processes: Iterable[Identity] = (),
    ) -> Finding:
        """A finding of this rule on a subject. The headline follows the subject's name: `waits for its loaders`.

        `onset_s`: seconds since the cause began, for rules with long windows. `gpus`: uuids of the affected GPUs of a
        job or machine; `processes`: affected processes of the machine.
        """
        subject = self.subject_of(thing)
        substitute = self.substitute(thing) if self._by_busy else None
        if substitute:
            if not any(substitute.name in one.text for one in evidence):
                evidence = (*evidence, Evidence(text=substitute.note))
            if substitute.lower_bound:  # it may wait for less than that
                severity, confidence = "warn" if severity == "crit" else severity, 0.8 * confidence
        if gpus:
            subject = replace(subject, gpus=tuple(dict.fromkeys(gpus)))
        if processes:
            subject = replace(subject, processes=tuple(processes))
        return Finding(
            rule=self._rule, severity=severity, subject=subject, headline=headline, evidence=evidence,
            steps=steps, confidence=confidence, grade=grade, healthy=healthy, lost_share=lost_share,
            cost=cost, onset_s=onset_s, state=state or self._state or None,
        )  # fmt: skip


def past_seconds(view: View, about: str, metric: str, start_s: float, length_s: float) -> list[float | None]:
    """The seconds of a metric from a recent time on; None for a gap."""
    since_s = min(FINE_SPAN_S, view.frame.mono_s - start_s)
    return view.history.values(about, metric, since_s)[: max(1, round(length_s))]
