"""What changed from one trace to another: the step, where its time goes, the kernels and operators behind it."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from gputop.trace.names import Kind
from gputop.trace.verdict import View

_NOTHING = 0.01  # of a step; smaller changes are not told


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One number before and after; None is unknown."""

    name: str
    before: float | None
    after: float | None
    unit: str  # us, share, or empty for a count

    @property
    def ratio(self) -> float | None:
        """After over before; None where one of them is nothing."""
        return self.after / self.before if self.before and self.after is not None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Diff:
    """Two traces held against each other, everything a step."""

    numbers: tuple[Change, ...]
    kernels: tuple[Change, ...]  # time a step, the largest change first
    operators: tuple[Change, ...]  # own time on the CPU a step
    gone: tuple[str, ...]  # rules that spoke before only
    come: tuple[str, ...]  # rules that speak now only

    @property
    def step(self) -> Change:
        """The time of a step."""
        return self.numbers[0]


def diff(before: View, after: View) -> Diff:
    """From one trace to the other. Kernels are told apart by name: another shape may have another name."""
    old, new = before.found, after.found
    rules = [{verdict.rule for verdict in view.verdicts if verdict.severity != "info"} for view in (before, after)]
    return Diff(
        numbers=(
            Change(name="step, median", before=_step(before), after=_step(after), unit="us"),
            *(
                Change(name=name, before=a, after=b, unit=unit)
                for name, unit, a, b in (
                    ("GPU busy", "share", old.share(old.busy), new.share(new.busy)),
                    ("idle, waits for a launch", "share", old.share(old.idle.host_us), new.share(new.idle.host_us)),
                    ("idle, launched but waiting", "share", old.share(old.idle.other_us), new.share(new.idle.other_us)),
                    ("communicates and nothing else", "share", old.exposed, new.exposed),
                    ("kernels a step", "", old.per_step, new.per_step),
                    ("kernel, median", "us", old.median_us, new.median_us),
                    ("launch to kernel, median", "us", old.launching.delay_p50_us, new.launching.delay_p50_us),
                    ("most memory allocated", "bytes", _peak(before), _peak(after)),
                )
                if a or b
            ),
        ),
        kernels=_changes(_kernels(before), _kernels(after), _step(after)),
        operators=_changes(_operators(before), _operators(after), _step(after)),
        gone=tuple(sorted(rules[0] - rules[1])),
        come=tuple(sorted(rules[1] - rules[0])),
    )


def _step(view: View) -> float:
    times = [step.end - step.start for step in view.found.window.steps]
    return median(times) if times else view.found.window.span_us


def _peak(view: View) -> float | None:
    return float(view.trace.memory.peak_bytes) or None


def _kernels(view: View) -> dict[str, float]:
    return {
        each.name: each.took_us / view.steps for each in view.found.kernels if each.kind in (Kind.COMPUTE, Kind.COMM)
    }


def _operators(view: View) -> dict[str, float]:
    host = view.trace.host
    return {
        host.names.texts[name]: us / view.steps
        for name, us in enumerate(host.self_us)
        if us and not host.python[name] and host.names.texts[name].startswith("aten::")
    }


def _changes(before: dict[str, float], after: dict[str, float], step_us: float) -> tuple[Change, ...]:
    rows = [(after.get(name, 0.0) - before.get(name, 0.0), name) for name in before.keys() | after.keys()]
    return tuple(
        Change(name=name, before=before.get(name, 0.0), after=after.get(name, 0.0), unit="us")
        for change, name in sorted(rows, key=lambda row: (-abs(row[0]), row[1]))
        if abs(change) >= _NOTHING * step_us
    )
