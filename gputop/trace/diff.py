"""Differences between two traces: step time, breakdown, and the kernels and operators behind them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from statistics import median

from gputop.frozen_dataclass import frozen_dataclass
from gputop.trace.breakdown import Breakdown
from gputop.trace.names import ActivityKind
from gputop.trace.verdict import TraceView, memory_peak

_NOTHING = 0.01  # of a step; smaller changes are omitted


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One number before and after; None is unknown."""

    name: str
    before: float | None
    after: float | None
    unit: str  # us, share, or empty for a count

    @property
    def ratio(self) -> float | None:
        """After divided by before; None if either is zero or unknown."""
        return self.after / self.before if self.before and self.after is not None else None


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Diff:
    """Two traces compared; all values are per step."""

    numbers: tuple[Difference, ...]
    phases: tuple[Difference, ...]  # CPU time per step, largest change first
    kernels: tuple[Difference, ...]  # time per step
    operators: tuple[Difference, ...]  # own CPU time per step
    removed_rules: tuple[str, ...]  # signatures found only before
    added_rules: tuple[str, ...]  # signatures found only after
    kept_rules: tuple[str, ...]  # signatures found in both

    @property
    def step(self) -> Difference:
        """The step time."""
        return self.numbers[0]


def diff(before: TraceView, after: TraceView) -> Diff:
    """Compare two traces. Kernels are matched by name: another shape may have another name."""
    views = (before, after)
    rules = [{verdict.rule for verdict in view.verdicts if verdict.severity != "info"} for view in views]
    return Diff(
        numbers=(
            Difference(name="step, median", before=_step(before), after=_step(after), unit="us"),
            *_gpu(before, after),
            *_known("peak memory allocated", "bytes", _peak(before), _peak(after)),
        ),
        phases=_changes(_phases(before), _phases(after), _step(after)),
        kernels=_changes(_kernels(before), _kernels(after), _step(after)),
        operators=_changes(_operators(before), _operators(after), _step(after)),
        removed_rules=tuple(sorted(rules[0] - rules[1])),
        added_rules=tuple(sorted(rules[1] - rules[0])),
        kept_rules=tuple(sorted(rules[1] & rules[0])),
    )


_GPU: tuple[tuple[str, str, Callable[[Breakdown], float | None]], ...] = (
    ("GPU busy", "share", lambda found: found.share(found.busy)),
    ("idle, next kernel not launched", "share", lambda found: found.share(found.idle.host_us)),
    ("idle, launched but not started", "share", lambda found: found.share(found.idle.other_us)),
    ("exposed communication", "share", lambda found: found.exposed),
    ("kernels per step", "", lambda found: found.per_step),
    ("kernel, median", "us", lambda found: found.median_us),
    ("launch delay, median", "us", lambda found: found.launching.delay_p50_us),
)


def _gpu(before: TraceView, after: TraceView) -> Iterator[Difference]:
    """GPU values, unknown in a CPU-only trace."""
    for name, unit, of in _GPU:
        a, b = (of(view.found) if view.found.of_gpu else None for view in (before, after))
        yield from _known(name, unit, a, b)


def _known(name: str, unit: str, before: float | None, after: float | None) -> Iterator[Difference]:
    """A change, if either trace has the value."""
    if before or after:
        yield Difference(name=name, before=before, after=after, unit=unit)


def _step(view: TraceView) -> float:
    seen = view.found.window
    times = [step.end - step.start for step in seen.steps]
    return median(times) if times and not seen.after_us else seen.span_us / view.steps


def _peak(view: TraceView) -> float | None:
    return float(memory_peak(view)[0]) or None


def _phases(view: TraceView) -> dict[str, float]:
    return {each.name: each.host_us / view.steps for each in view.phases if each.host_us}


def _kernels(view: TraceView) -> dict[str, float]:
    return {
        each.name: each.took_us / view.steps
        for each in view.found.kernels
        if each.kind in (ActivityKind.COMPUTE, ActivityKind.COMM)
    }


def _operators(view: TraceView) -> dict[str, float]:
    host = view.trace.host
    return {
        host.names.texts[name]: us / view.steps
        for name, us in enumerate(host.self_us)
        if us and not host.python[name] and host.names.texts[name].startswith("aten::")
    }


def _changes(before: dict[str, float], after: dict[str, float], step_us: float) -> tuple[Difference, ...]:
    rows = [(after.get(name, 0.0) - before.get(name, 0.0), name) for name in before.keys() | after.keys()]
    return tuple(
        Difference(name=name, before=before.get(name, 0.0), after=after.get(name, 0.0), unit="us")
        for change, name in sorted(rows, key=lambda row: (-abs(row[0]), row[1]))
        if abs(change) >= _NOTHING * step_us
    )
