"""What a finding said could be won, held against what is won once its fault is taken away.

A planted fault leaves the work of a step as it is: then its speedup is the gain in GPU busy. That
holds of these runs, as nothing else in them changes; on a machine steps are measured. It does not hold of GPUs that
wait for each other, which they do busily, nor of slower ones: of these nothing is counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import median

from gputop.diagnose import Finding
from gputop.diagnose.rule import Level
from gputop.diagnose.rules import RULES
from gputop.docs.markdown import table
from gputop.model import Frame
from gputop.optional_sums import mean
from gputop.proven.fixes import predicted_speedup
from gputop.proven.measured import LEAST_GAIN
from tests.score.marks import LOOKED_S, Result, Truth

SETTLES_S = 60.0  # after a fault begins, or is taken away
_NOT_SEEN = (Level.RANKS, Level.DEVICE, Level.HARDWARE, Level.LINK)
TWIN = "healthy twin"
_LEAST_BUSY = 1.0  # percent: of a GPU that does nothing there is no pace


class Pace:
    """Follows one run: what is predicted of the planted fault, and how busy its GPUs are with it and without."""

    def __init__(self, truth: Truth) -> None:
        self._truth = truth
        self._predicted: float | None = None
        self._gpus: frozenset[str] = frozenset()
        self._faulty, self._after = list[float | None](), list[float | None]()

    def take(self, t: float, frame: Frame, findings: Sequence[Finding]) -> None:
        """One second of it."""
        truth = self._truth
        shows = truth.rule in RULES and RULES[truth.rule].level not in _NOT_SEEN
        ended = truth.ends_s is not None and t >= truth.ends_s
        named = (one for one in findings if truth.rule in (one.rule, *one.causes) and not one.healthy)
        if shows and (lead := next(named, None)) and t >= truth.onset_s and not ended and t < truth.due_s + LOOKED_S:
            processes = (frame.by_identity.get(one) for one in lead.subject.processes)
            used = (share.uuid for process in processes if process for share in process.gpus)
            self._predicted, self._gpus = predicted_speedup(lead, {}), frozenset(lead.subject.gpus or used)
        busy = mean(gpu.busy_percent for gpu in frame.gpus if gpu.uuid in self._gpus or truth.well)
        begins_s = truth.due_s if truth.well or not truth.onset_s else truth.onset_s + SETTLES_S
        if begins_s <= t < truth.due_s + LOOKED_S and not ended:
            self._faulty.append(busy)
        elif truth.ends_s is not None and t >= truth.ends_s + SETTLES_S:
            self._after.append(busy)

    def told(self, result: Result) -> Result:
        """The result with them."""
        return replace(result, predicted=self._predicted, busy=mean(self._faulty), busy_after=mean(self._after))


def gains(runs: Mapping[tuple[str, str, str], Result], plain: str) -> Iterator[tuple[str, float, float]]:
    """Of each planted fault that is taken away, or has a twin: its name, the prediction, and what came of it."""
    for (name, variant, tool), result in runs.items():
        most = result.predicted if result.mark in ("right", "secondary") else None
        if (variant, tool) != (plain, "gputop") or most is None:
            continue
        twin = runs.get((f"{name}, {TWIN}", plain, "gputop"))
        after = result.busy_after if result.busy_after is not None else twin and twin.busy
        if after and (result.busy or 0.0) >= _LEAST_BUSY:
            yield name, most, after / (result.busy or 1.0)


def counted(runs: Mapping[tuple[str, str, str], Result], plain: str) -> Iterator[str]:
    """All of them as a sentence, and those that came otherwise; nothing where none was predicted."""
    pairs = [*gains(runs, plain)]
    if not pairs:
        return
    others = [one for one in pairs if not 1 + LEAST_GAIN <= one[2] <= one[1] * (1 + LEAST_GAIN)]
    within, middle = len(pairs) - len(others), median(times / most for _, most, times in pairs)
    yield f"""Predicted and measured: {len(pairs)} faults were taken away whose finding says what can be won.
{within} of the runs gained something then, and at most 5 % more than that. Measured / predicted speed-up, median:
{middle:.2f}."""
    if others:
        rows = [(name, f"{most:.2f}×", f"{times:.2f}×") for name, most, times in others]
        yield table(("predictions that did not come true", "at most", "measured"), rows)
