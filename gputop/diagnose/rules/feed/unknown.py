"""A rule on a GPU that waits without a visible cause: it does not guess."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from gputop.diagnose.alternation import alternates
from gputop.diagnose.finding import Abstained, Evidence, Finding, Severity, Step
from gputop.diagnose.program_kind import is_auxiliary, is_notebook, may_use_torch, trains
from gputop.diagnose.rule import RULES, Level, rule
from gputop.diagnose.rules.efficiency.small_job import small
from gputop.diagnose.starvation import EITHER, busy_evidence, is_single, is_starved, waiting_threads
from gputop.diagnose.steps import profile, stack, use_workers
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.view import View
from gputop.diagnose.wchan import Wait, sleeping_threads
from gputop.labels import amount
from gputop.model import Missing
from gputop.model.metric_title import metric_title

_SUSPECTS = "GPU starved, cause unknown; not ruled out: {}"
_HIDDEN = "GPU starved, cause may be hidden from this user"
_BOUND = Missing(metric="busy_percent", reason="unsupported", unlock="SM activity is only a lower bound of GPU busy")


class Cause(NamedTuple):
    """Something a GPU may wait for: its value, and the limit from which it would be the cause."""

    text: str
    value: float | None
    limit: float
    unit: str = "%"

    @property
    def suspect(self) -> bool:
        """Whether it may be the cause, although no rule is certain."""
        return self.value is not None and self.value >= self.limit

    @property
    def said(self) -> str:
        """The text with its value."""
        value = self.value or 0.0
        return self.text.format(f"{value:.0f} %" if self.unit == "%" else f"{value / 1e6:.0f} MB/s")

    @property
    def evidence(self) -> Evidence:
        """What it is, and whether it may be the cause."""
        word = "not ruled out" if self.suspect else "ruled out"
        text = f"{word}: {self.said}"
        return Evidence(text=text, value=self.value, unit=self.unit, limit=self.limit, sense="flagged_above")


@rule(
    "starved-cause-unknown",
    "Does a GPU wait without a visible cause?",
    level=Level.STARVED,
    state="GPU starved",
    short="STARVED",
    last=True,
    needs=("busy_percent",),
)
def starved_cause_unknown(view: View) -> Iterator[Finding]:
    """The GPU waits and no other rule says why: list what was ruled out, with values, and how to find out."""
    for trainer in view.trainers():
        notes, now_s = view.notes(trainer), view.frame.mono_s
        if not view.knows(trainer, "duty"):
            continue  # in the first seconds of a phase: it may wait as before
        if not is_starved(view, trainer):
            notes.pop("since_s", None)
            continue
        if trainer.duty_by and trainer.duty_by.lower_bound:
            view.abstain(trainer, _BOUND)  # without a visible cause, it may not wait at all
            continue
        if now_s - notes.setdefault("since_s", now_s) < view.limit("after_s"):
            continue
        severity = view.by_share(trainer.lost)
        if severity is None or is_notebook(trainer) or is_auxiliary(trainer) or small(view.against, trainer):
            continue
        if not trains(trainer):
            severity = "info"  # it may wait for its users
        found = _finding(view, trainer, "warn" if severity == "crit" else severity)
        yield replace(found, onset_s=now_s - notes["since_s"])


def _finding(view: View, trainer: Trainer, severity: Severity) -> Finding:
    either = _one_thread_does_all(view, trainer)
    causes, hidden = list(_causes(view, trainer)), list(_hidden_causes(view, trainer))
    clue = next((cause for cause in causes if cause.suspect), None)
    headline = _HIDDEN if hidden else "GPU starved, cause unknown"
    if clue is not None:
        headline = _SUSPECTS.format(clue.said)
    return view.found(
        trainer,
        severity,
        EITHER if either else headline,
        evidence=(
            busy_evidence(view, trainer),
            *_possible_causes(causes),
            *_hidden_evidence(hidden),
            *_excluded_causes(causes),
        ),
        steps=(*_unlock_steps(hidden), *_steps(view, trainer, either)),
        confidence=0.6 if trains(trainer) else 0.4,
        lost_share=trainer.lost,
    )


def _one_thread_does_all(view: View, trainer: Trainer) -> bool:
    """Whether one thread does all the work, only for its own GPU."""
    busy_main = trainer.main is not None and trainer.main >= view.limit("loader-in-main.main")
    one_core = trainer.cores is not None and trainer.cores <= view.limit("loader-in-main.cores")
    return (
        ((busy_main and one_core) or alternates(view.against, trainer)) and not trainer.loaders and is_single(trainer)
    )


def _hidden_causes(view: View, trainer: Trainer) -> Iterator[Abstained]:
    """Abstentions of rules that might know the cause, for metrics this user may not read."""
    for one in view.abstained:
        about = trainer.identity in one.subject.processes
        if about and RULES[one.rule].level in (Level.CAUSE, Level.STARVED):
            denied = tuple(missing for missing in one.missing if missing.reason == "denied")
            if denied:
                yield replace(one, missing=denied)


def _hidden_evidence(hidden: Sequence[Abstained]) -> Iterator[Evidence]:
    for one in hidden:
        names = ", ".join(metric_title(missing.metric) for missing in one.missing)
        yield Evidence(text=f"check skipped: {one.rule}, {names} not readable")


def _unlock_steps(hidden: Sequence[Abstained]) -> Iterator[Step]:
    if hidden:
        yield Step(text="Run gputop as its user or as root: only they see what it reads, writes and loads")


def _causes(view: View, trainer: Trainer) -> Iterator[Cause]:
    """Causes that other rules check, with their limits; those visible on its own processes come first.

    Of these, sleep states say most if visible.
    """

    def share(text: str, value: float | None, limit: str) -> Cause:
        return Cause(text, None if value is None else 100 * value, 100 * view.limit(limit))

    yield from _sleep_causes(view, trainer)
    of = "" if trainer.allowed is None else f" of {amount(trainer.allowed, 'core')}"
    yield share(f"CPU {{}}{of}", trainer.saturation, "starved-cpu-saturated.saturation")
    yield share("main thread {} of a core", trainer.main, "loader-in-main.main")
    if trainer.loaders:
        each = f"{'each of ' if trainer.loaders > 1 else ''}{amount(trainer.loaders, 'worker')} {{}} of a core"
        yield share(each, trainer.loader_cpu, "starved-cpu-idle.loader_cpu")
        yield share("workers blocked on storage {} of the time", trainer.loader_blocked, "starved.blocked")
    queue = waiting_threads(trainer.run_wait, trainer.own)
    known = None if trainer.run_wait is None else 100 * min(1.0, queue)
    least = 100 * view.limit("starved.waiting") * trainer.lost
    yield Cause("a thread waiting for a CPU {} of the time", known, least)
    yield share("CPU quota exhausted in {} of periods", trainer.throttled, "starved.throttled")
    yield from (cause for cause in _method_costs(view, trainer) if cause.suspect)
    machine, full = view.mean("host", "cpu_percent"), view.limit("starved-cpu-saturated.host_percent")
    yield Cause("CPUs of the machine {} busy", machine, full)
    yield Cause("I/O pressure (PSI) {}", view.mean("host", "io_pressure"), view.limit("starved.io_percent"))
    reads, receives = view.limit("starved.reads_bytes_per_s"), view.limit("starved.quiet_bytes_per_s")
    yield Cause("reads {} from storage", trainer.read_bytes, reads, "B/s")
    yield Cause("reads {} in all, page cache included", trainer.input_rate, reads, "B/s")
    yield Cause("network receives {}", view.mean("host", "receive_bytes_per_s"), receives, "B/s")


def _sleep_causes(view: View, trainer: Trainer) -> Iterator[Cause]:
    """Where its loaders or its main thread sleep in the kernel, if that shows what they wait for."""
    seen = sleeping_threads(view, trainer)
    asleep = amount(trainer.loaders, "worker") if trainer.loaders else "main thread"
    for wait, share in sorted(seen.shares.items(), key=lambda one: -one[1]):
        idle = wait is Wait.PIPE and trainer.loaders  # they have nothing to load
        if share >= view.limit("asleep") and not idle:
            text = f"{asleep} asleep in {seen.functions[wait]} ({wait.value}) {{}} of the time"
            yield Cause(text, 100 * share, 100 * view.limit("asleep"))


def _method_costs(view: View, trainer: Trainer) -> Iterator[Cause]:
    """Inherent costs of some training methods, only if present."""
    threads = f"{amount(round(trainer.compute_threads or 0.0), 'compute thread')} active, maybe a CPU optimizer"
    yield Cause(threads, trainer.compute_threads, view.limit("threads"), "")
    received, sent = trainer.pcie_rx, trainer.pcie_tx
    if received is not None and sent is not None:
        rates = f"PCIe {received / 1e9:.1f}/{sent / 1e9:.1f} GB/s both ways, maybe states or weights in host memory"
        yield Cause(rates, min(received, sent), view.limit("both_ways_bytes_per_s"), "B/s")
    if not is_single(trainer):
        yield Cause("waiting for other ranks or stages", 1.0, 1.0, "")


def _possible_causes(causes: Sequence[Cause]) -> Iterator[Evidence]:
    """Possible causes, strongest first."""
    yield from (cause.evidence for cause in causes if cause.suspect)


def _excluded_causes(causes: Sequence[Cause]) -> Iterator[Evidence]:
    """Causes ruled out, then those that are not visible."""
    yield from (cause.evidence for cause in causes if cause.value is not None and not cause.suspect)
    unseen = [" ".join(cause.text.replace("{}", "").split()) for cause in causes if cause.value is None]
    if unseen:
        yield Evidence(text=f"not visible: {'; '.join(unseen)}")


def _steps(view: View, trainer: Trainer, either: bool) -> Iterator[Step]:
    yield stack(view, trainer.process, "Check what its main thread waits for")
    yield profile(view, trainer.process, "Profile it for some seconds to see where time goes")
    if either:
        apart = use_workers(view, trainer, "If it is data loading, use worker processes")
        fewer = Step(text="If it is the model, use fewer and larger kernels", command="model = torch.compile(model)")
        yield from (one if may_use_torch(trainer) else replace(one, command=None) for one in (apart, fewer))
    elif trainer.loaders:
        yield Step(text="If it is the DataLoader queue, check the workers in the same way")
