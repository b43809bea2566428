"""What a rule sees: the machine now, the recent past, its own numbers, and ways to say what it found."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable
from dataclasses import replace
from typing import Any, Literal, TypeVar

from gputop.diagnose.finding import Abstained, Evidence, Finding, Grade, Severity, Step
from gputop.diagnose.limits import Tables
from gputop.diagnose.numbers import Numbers
from gputop.diagnose.remembered import Remembered
from gputop.diagnose.subjects import Thing
from gputop.diagnose.trainer import Trainer
from gputop.history import History
from gputop.history.past import FINE_S, FINE_SLOTS
from gputop.model import Frame, Gpu, Identity, Missing
from gputop.safe import attach

FINE_SPAN_S = FINE_S * FINE_SLOTS  # for which the history keeps seconds
_T = TypeVar("_T")
_NO_CPUS = "how many CPUs the machine has: in a recording by hand, cpus_total of its host"
_WORST_FIRST: tuple[Literal["crit", "warn", "info"], ...] = ("crit", "warn", "info")
# where a feature of a trainer comes from, for the reason why it is unknown
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
    "ranked": "world_size",
}  # fmt: skip


class View(Numbers):
    """One tick, as one rule after the other sees it.

    `gpus()`, `trainers()`, `jobs()` and `host()` step through subjects. While a rule looks at a subject of which its
    finding is already on the screen, `above` and `below` are more lenient, so that a value at the limit does not
    flicker: rules compare with them, never with `<`. What speaks against a finding is held against `against`.
    `stands_for_s`: seconds since the rules looked last. What a rule follows from look to look goes by these.
    """

    def __init__(
        self, frame: Frame, history: History, remembered: Remembered, tables: Tables, stands_for_s: float
    ) -> None:
        super().__init__(frame, history, remembered, tables)
        self.stands_for_s = stands_for_s
        self.abstained: list[Abstained] = []
        self.evaluating: set[Identity] = set()  # trainers in a phase that comes back: what they do says nothing
        self._once: dict[Hashable, Any] = {}

    def once(self, about: Hashable, work: Callable[[], _T]) -> _T:
        """What several rules ask of this tick: worked out by the first. It must not compare with limits of a rule."""
        if about not in self._once:
            self._once[about] = work()
        found: _T = self._once[about]
        return found

    def notes(self, thing: Thing, of: str | None = None) -> dict[str, Any]:
        """What this rule, or another one, wrote down about a subject at earlier ticks, to be changed in place."""
        return self._remembered.note(of or self._rule, self._key(thing), self.frame.mono_s)

    def looks(self, thing: Thing, seen: _T, about: str = "") -> deque[tuple[float, _T]]:
        """What this rule saw of a subject at each look of its window, this one last: when, and what.

        `about` tells things apart of which each has looks of its own.
        """
        looks: deque[tuple[float, _T]] = self.notes(thing).setdefault(f"looks {about}", deque())
        looks.append((self.frame.mono_s, seen))
        while looks[0][0] < self.frame.mono_s - self.limit("window_s"):
            looks.popleft()
        return looks

    def begin(self, trainer: Trainer, at_s: float) -> None:
        """Have its phase begin at some time: what is measured of it is measured since then."""
        self._remembered.begin(trainer.identity, at_s)

    def knows(self, thing: Thing, *names: str, unlock: str | None = None) -> bool:
        """Whether these are known of a subject; what cannot be read is an abstention, what is only early is none."""
        for name in names:  # nearly always all of them are known
            if getattr(thing, name) is None:
                break
        else:
            return True
        unknown = [name for name in names if getattr(thing, name) is None]
        said = {missing.metric: missing for missing in getattr(thing, "missing", ())}
        absent = () if isinstance(thing, Trainer) else unknown  # of a trainer, what is unknown may just be early
        said = {**{name: Missing(metric=name, reason="absent") for name in absent}, **said}
        reasons = [missing for name in unknown if (missing := said.get(ORIGIN.get(name, name)))]
        if reasons:
            self.abstain(thing, *reasons, unlock=unlock)
        return False

    def reading(self, thing: Gpu | Trainer, percent: float) -> str:
        """How busy a GPU is, by the metric that it is measured by: `GPU busy 55 %`."""
        substitute = self.substitute(thing)
        return substitute.reading(percent) if substitute else f"GPU busy {percent:.0f} %"

    def abstain(self, thing: Thing, *missing: Missing, unlock: str | None = None) -> None:
        """Say that this rule cannot judge a subject, and what would let it."""
        unlock = unlock or next((one.unlock for one in missing if one.unlock), None)
        self.abstained.append(
            Abstained(rule=self._rule, subject=self.named(thing), missing=tuple(missing), unlock=unlock)
        )

    def unlock(self, what: str, sudo: str = "run gputop as the same user, or with sudo") -> str:
        """What is hidden, and who sees it: sudo gives nothing to who is root already."""
        root = f"root sees it with CAP_SYS_PTRACE (in a container: {attach.CAPABILITY})"
        return f"{what}: {root if self.frame.viewer_uid == 0 else sudo}"

    def cpus(self) -> int | None:
        """CPUs of the machine; where they are not known this rule, which needs them, says that it cannot judge."""
        total = self.frame.host.cpus_total or None
        if total is None:
            self.abstain(self.frame.host, Missing(metric="cpus_total", reason="absent", unlock=_NO_CPUS))
        return total

    def confidence(self, base: float, *optional: object, confirmed: bool = False) -> float:
        """The rule's base; less where an optional signal is unknown (None), more where a stack or a trace confirms."""
        known = base * 0.8 if None in optional else base
        return min(0.98, known + 0.15) if confirmed else known

    def by_share(self, lost: float | None) -> Severity | None:
        """How bad it is to lose this share of a GPU's time; None where nobody would notice."""
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
        state: str | None = None,
        onset_s: float | None = None,
        gpus: Iterable[str] = (),
        processes: Iterable[Identity] = (),
    ) -> Finding:
        """A finding of this rule about a subject. The headline follows the subject's name: `waits for its loaders`.

        `onset_s`: seconds since its cause began, where a rule speaks late: most windows are no delay worth telling.
        `gpus`: uuids of those of a job, or of the machine, that it is about; `processes`: those of the machine.
        """
        subject = self.named(thing)
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
            onset_s=onset_s, state=state or self._state or None,
        )  # fmt: skip


def past_seconds(view: View, about: str, metric: str, start_s: float, length_s: float) -> list[float | None]:
    """The seconds of a metric from a time on that is not long ago; None for a gap."""
    since_s = min(FINE_SPAN_S, view.frame.mono_s - start_s)
    return view.history.values(about, metric, since_s)[: max(1, round(length_s))]
