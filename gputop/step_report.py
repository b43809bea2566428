"""Step meter values and noted numbers of a process or job, as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from statistics import median
from typing import NamedTuple

from gputop import units
from gputop.labels import amount
from gputop.model import Job, Noted, Process

WINDOW_S = 30.0  # of the counted steps
_AGREE = 0.1  # ranks with step times closer than that are in step
_ALONE = 0.5  # of the late rank's wait: limit for all others
_OFTEN = 0.5  # of the steps, from which a rank is late in each step
_PHASES = {
    "data": "waited for data",
    "optimizer": "slow in the optimizer",
    "rest": "slow in forward, backward or other code",
}
_NOTES = 4  # named in one line


class LateRank(NamedTuple):
    """The rank that waits for data in each step while all others wait for it."""

    process: Process
    wait_s: float
    others_s: float  # median of the others
    step_s: float

    @property
    def share(self) -> float:
        """The excess of its wait as a share of a step."""
        return (self.wait_s - self.others_s) / self.step_s


def waits_s(process: Process) -> float | None:
    """Seconds a step waits for data."""
    wait, step_s = process.data_wait_percent, process.step_s
    return None if wait is None or step_s is None else step_s * wait / 100


def late_rank(ranks: Sequence[Process]) -> LateRank | None:
    """The one rank that waits for data while all have the same step time; None if there is none, or several.

    Gradients are summed in each step, so the others must wait for it. None if a wait is not measured.
    """
    waits = [(wait_s, one.step_s, one) for one in ranks if (wait_s := waits_s(one)) is not None and one.step_s]
    if len(waits) < 2 or len(waits) < len(ranks):
        return None
    steps = [step_s for _, step_s, _ in waits if step_s]
    if max(steps) > (1 + _AGREE) * min(steps):
        return None
    late_s, _, late = max(waits, key=lambda each: each[0])
    others = [wait_s for wait_s, _, one in waits if one is not late]
    if max(others) > _ALONE * late_s:
        return None
    return LateRank(late, late_s, median(others), median(steps))


def late_text(late: LateRank, number: int | None, count: int) -> str:
    """In numbers: rank 3 waits 120ms for data in each step (late in 41 of 50 steps), the others 5.0ms: all ranks take
    310ms per step."""
    who = "one rank" if number is None else f"rank {number}"
    others = "the other" if count == 2 else "the others"
    times, of, apart = late.process.late_step_count, late.process.common_step_count, late.process.steps_apart
    waits = f"waits {units.took_text(late.wait_s)} for data in each step"
    if times is not None and of:
        if times < _OFTEN * of:
            waits = f"waits {units.took_text(late.wait_s)} per step on average for data"
        waits += f" (late in {times} of {amount(of, 'step')})"
    said = f"{who} {waits}, {others} {units.took_text(late.others_s)}"
    said += f": {'both' if count == 2 else f'all {count}'} ranks take {units.took_text(late.step_s)} per step"
    return f"{said}; how often it is late is unknown: {apart}" if apart else said


def slow(process: Process, now_s: float) -> str:
    """Number of slow recent steps, and the cause: 3 of 120 steps took over 2 × the median."""
    count, of = process.slow_step_count, process.step_window
    if not count or not of:
        return ""
    known = [one for one in process.slow_steps if now_s - one.wall_s <= WINDOW_S]
    by = {name: sum(one.phase == name for one in known) for name in _PHASES}
    parts = ", ".join(f"{number} {_PHASES[name]}" for name, number in by.items() if number)
    # only the newest are listed individually
    whose = f": {parts}" if len(known) == count else f"; of the newest {len(known)}: {parts}" if known else ""
    return f"{count} of {amount(of, 'step')} took over 2 × the median{whose}"


def number(one: Noted) -> str:
    """A noted number: loss 0.5321, grad_norm not finite."""
    if not one.finite:
        return f"{one.name} not finite"
    value = "over 1e15" if one.value is None else f"{one.value:.6g}"
    return f"{one.name} {value}"


def noted(process: Process, now_s: float) -> str:
    """The latest notes, newest first: loss 0.5321, lr 0.01 at step 1204, epoch 3 (12 s ago)."""
    newest = sorted(process.noted, key=lambda one: -round(one.wall_s, 1))  # notes of one call stay in order
    moments = [one for one in newest if one.moment][:1]
    shown = [*[one for one in newest if not one.moment][: _NOTES - len(moments)], *moments]
    parts = []
    for one, after in zip_longest(shown, shown[1:]):
        when = f" ({units.ago_text(max(0.0, now_s - one.wall_s))} ago)" if one.step is None else f" at step {one.step}"
        together = after is not None and one.step is not None and one.step == after.step
        parts.append(number(one) if together else f"{number(one)}{when}")
    return ", ".join(parts)


def pace(process: Process) -> str:
    """Step timing: 310 ms per step, 40 % waiting for data, 16.1 samples/s."""
    if process.step_s is None:
        return ""
    parts = [f"{units.took_text(process.step_s)} per step"]
    if process.data_wait_percent is not None:
        parts.append(f"{process.data_wait_percent:.0f} % waiting for data")
    if process.samples_per_s is not None:
        parts.append(f"{process.samples_per_s:.3g} samples/s")
    return ", ".join(parts)


def of_job(job: Job, processes: Sequence[Process], now_s: float, least: float) -> Iterator[str]:
    """Step meter lines for the ranks of a job. `least`: share of a step from which a late rank is reported."""
    metered = [one for one in processes if one.step_s is not None]
    if not metered:
        return
    slowest = max(metered, key=lambda one: one.step_s or 0.0)
    yield pace(slowest)
    if said := slow(max(metered, key=lambda one: one.slow_step_count or 0), now_s):
        yield said
    late = late_rank(processes) if len(processes) == len(job.ranks) else None
    if late is not None and late.share >= least:
        yield late_text(late, late.process.rank, len(processes))
    if said := next((said for one in processes if (said := noted(one, now_s))), ""):
        yield f"noted: {said}"
