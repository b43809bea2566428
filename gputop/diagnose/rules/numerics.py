"""A rule on non-finite numbers in training, reported by the program itself: nothing shows from outside."""

from __future__ import annotations

from collections.abc import Iterator

from gputop import step_report
from gputop.diagnose.finding import Evidence, Finding, Step
from gputop.diagnose.rule import Level, rule
from gputop.diagnose.view import View
from gputop.model import Noted, Process
from gputop.pytorch import CLIP, DETECT_ANOMALY

_STEPS = (
    Step(text="Clip gradients before optimizer.step()", command=CLIP),
    Step(
        text="Find the operation: run a few steps with anomaly detection (backward takes about 2× as long)",
        command=DETECT_ANOMALY,
    ),
    Step(text="Print code that also checks the forward pass", command="gputop recipe nan"),
    Step(text="Then lower the learning rate or lengthen its warmup"),
    Step(text="Then check initialization and unbounded operations: log, sqrt, exp, division"),
)


@rule(
    "non-finite",
    "Did a loss or a gradient norm become NaN or infinite?",
    level=Level.HARDWARE,
    state="NaN",
    short="NaN",
    needs=(),
    alone=True,
    lasting=True,
)
def non_finite(view: View) -> Iterator[Finding]:
    """Values noted with `gputop.note` under `gputop run --watch-nan`; the first affected rank counts.

    Without notes nothing is judged. A gradient norm counts if an optimizer step used it.
    """
    first: dict[str, tuple[Noted, Process]] = {}
    for process in view.frame.processes:
        one = process.non_finite
        key = process.job or f"{process.pid}"
        if one is not None and (key not in first or one.wall_s < first[key][0].wall_s):
            first[key] = one, process
    for one, process in first.values():
        at = "" if one.step is None else f" at step {one.step}"
        yield view.found(
            process,
            "crit",
            f"{one.name} NaN or infinite{at}",
            evidence=tuple(_evidence(one, process, at)),
            steps=_STEPS,
            confidence=0.98,
            grade="job",
            onset_s=max(0.0, view.frame.wall_s - one.wall_s),
        )


def _evidence(one: Noted, process: Process, at: str) -> Iterator[Evidence]:
    rank = "the program" if process.rank is None else f"rank {process.rank} first"
    yield Evidence(text=f"reported by {rank}: {step_report.number(one)}{at}")
    newest = max((each.step or 0 for each in process.noted), default=0)
    if one.step is not None and newest > one.step:
        since = newest - one.step
        yield Evidence(text=f"{since} optimizer steps since then", value=float(since), limit=0.0, sense="healthy_to")
    others = [each for each in process.noted if not each.moment and each.name != one.name]
    if others:
        yield Evidence(text=f"also reported: {', '.join(map(step_report.number, others))}")
