"""A rule on loading data in the training process itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from statistics import mean, pstdev
from typing import NamedTuple

from gputop import phrases
from gputop.diagnose.alternation import alternates, high_activity_while_busy
from gputop.diagnose.alternation import evidence as together
from gputop.diagnose.cpu_budget import unused_cpus
from gputop.diagnose.finding import Evidence, Finding, Severity, Step
from gputop.diagnose.pauses import Pause
from gputop.diagnose.program_kind import is_auxiliary, is_notebook, may_use_torch, serves
from gputop.diagnose.rule import Level, rule
from gputop.diagnose.rules.efficiency.waits import transfers, writes
from gputop.diagnose.starvation import (
    busy_evidence,
    has_gaps,
    is_shared,
    is_single,
    is_starting,
    is_starved,
    known_to_load,
    upper_bound,
)
from gputop.diagnose.steps import first_loaders, loader_settings, stack, use_workers
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.view import View, past_seconds
from gputop.labels import amount
from gputop.units import ago_text

_TABLE = "loader-in-main"


class Spells(NamedTuple):
    """Recurring GPU idle intervals: length, period, number seen, and main-thread cores in them."""

    length_s: float
    every_s: float
    times: int
    main: float

    @property
    def share(self) -> float:
        """Share of GPU time lost to them."""
        return min(1.0, self.length_s / self.every_s)


def spells(view: View, trainer: Trainer) -> Spells | None:
    """Idle intervals of a trainer without loaders, alone on its GPU; None if too few, or explained by another rule.

    A smaller share may be evaluation, which another rule covers.
    """
    if trainer.loaders or trainer.compiling or not is_single(trainer) or is_shared(view, trainer):
        return None
    if serves(trainer) or is_notebook(trainer) or is_auxiliary(trainer):
        return None
    long = [one for one in view.pauses(trainer).recent(view.limit(f"{_TABLE}.spells_s")) if _is_long(view, one)]
    if len(long) < view.limit(f"{_TABLE}.spells"):
        return None
    every_s = mean(after.start_s - before.start_s for before, after in pairwise(long))
    ended = [one.length_s for one in long if one.ended]
    found = Spells(mean(ended), every_s, len(long), mean(_main(view, trainer, one) for one in long))
    over = view.frame.mono_s - long[-1].end_s > view.limit("evaluation-phase.missed") * every_s
    alike = pstdev(ended) <= view.limit("evaluation-phase.lengths") * found.length_s
    much = found.share > view.limit("evaluation-phase.share") and found.main >= view.limit(f"{_TABLE}.main")
    return found if alike and much and not over else None


def _is_long(view: View, pause: Pause) -> bool:
    """Whether a pause takes seconds, without a checkpoint or a loader start as its cause."""
    written = pause.written >= view.limit("checkpoint-stall.written_bytes")
    return pause.length_s >= view.limit(f"{_TABLE}.spell_s") and pause.cause is None and not written


def _main(view: View, trainer: Trainer, pause: Pause) -> float:
    """Cores that its main thread used in a pause."""
    seconds = past_seconds(view, trainer.key, "main", pause.start_s, pause.length_s)
    return mean(known) if (known := [value for value in seconds if value is not None]) else 0.0


@rule(
    "loader-in-main",
    "Does the training process load its own data?",
    level=Level.STARVED,
    state="dataloader",
    short="DATA",
    confirmed_by=("loads-in-main",),
    needs=("busy_percent", "main_thread_percent", "cpu_percent"),
)
def loader_in_main(view: View) -> Iterator[Finding]:
    """No workers, one thread fully busy, and signs of reading; without those, launching kernels looks the same.

    Data from its own processes does not count: environment simulators send it.
    """
    for trainer in view.trainers():
        if found := spells(view, trainer):
            view.cached(("loads", trainer.identity), lambda: True)
            yield _spells_finding(view, trainer, found)
            continue
        if trainer.loaders or serves(trainer) or not view.knows(trainer, "duty", "main", "cores"):
            continue
        severity = view.by_share(trainer.lost)
        if severity is None or not is_starved(view, trainer):
            continue
        data = _reads(view, trainer) or known_to_load(view, trainer)
        if busy_alone(view, trainer):
            itself = loads_itself(view, trainer)
            if data or itself or _long_gaps(view, trainer):
                view.cached(("loads", trainer.identity), lambda: True)  # and does not wait for launches
                yield _busy_thread_finding(view, trainer, severity, turns=False)
        elif _alternates(view, trainer) and (
            data or has_gaps(view, trainer) or high_activity_while_busy(view, trainer)
        ):
            yield _busy_thread_finding(view, trainer, severity, turns=True)


def busy_alone(view: View, trainer: Trainer) -> bool:
    """Whether it has no loaders and an always busy main thread, while nothing else of it works."""
    if trainer.loaders or serves(trainer):
        return False
    return view.above(trainer.main, "loader-in-main.main") and view.below(trainer.cores, "loader-in-main.cores")


def loads_itself(view: View, trainer: Trainer) -> bool:
    """Whether its GPU has some work all the time, but less than launch overhead alone would leave.

    Excluded: new trainers may compile, notebooks and evaluations pause at will, ranks wait for others, and copies or
    writes may take the time.
    """
    if (
        not busy_alone(view, trainer)
        or not view.below(trainer.duty, "loader-in-main.launches")
        or not is_single(trainer)
    ):
        return False
    steady = (trainer.touched or 0.0) >= view.limit("loader-in-main.steady")
    if is_notebook(trainer) or is_auxiliary(trainer) or (is_starting(view, trainer) and not steady):
        return False
    return not writes(view.against, trainer) and not transfers(view.against, trainer)


def _long_gaps(view: View, trainer: Trainer) -> bool:
    """Whether its GPU is idle for much longer than kernel launches take."""
    return trainer.shape is not None and not trainer.has_no_gaps and view.above(trainer.shape.empty, "empty")


def _alternates(view: View, trainer: Trainer) -> bool:
    """Whether its main thread works whenever its GPU does not, without writes or copies as that work."""
    if not alternates(view, trainer):
        return False
    return not writes(view.against, trainer) and not transfers(view.against, trainer)


_ITSELF = "dataloader-bound, main process loads data{}"
_PERHAPS = "main-thread-bound, data loading{} or other CPU work"
_NO_WORKERS = " (num_workers=0)"  # as a PyTorch DataLoader is


def _busy_thread_finding(view: View, trainer: Trainer, severity: Severity, turns: bool) -> Finding:
    """If it also reads, it loads; otherwise its data may be in memory, or it may simulate an environment."""
    sure = (trainer.input_rate is None and not turns) or _reads(view, trainer) or known_to_load(view, trainer)
    torch = may_use_torch(trainer)
    times = upper_bound(trainer, max(2, first_loaders(view, trainer)))
    loaders = use_workers(
        view, trainer, f"Load data in worker processes: {times}", more=f", {loader_settings(trainer)}"
    )
    look = (stack(view, trainer.process, "Check what its main thread does"),) if _may_run_python(trainer) else ()
    elsewhere = replace(loaders, text=_if_loading(loaders.text, torch))
    main, left = 100 * (trainer.main or 0.0), unused_cpus(view, trainer)
    idle = "" if left is None or not trainer.allowed else f", {left:.0f} of {amount(trainer.allowed, 'core')} idle"
    read = Evidence(
        text=f"main process reads {(trainer.input_rate or 0) / 1e6:.0f} MB/s",
        value=trainer.input_rate,
        unit="B/s",
        limit=view.limit("read_bytes_per_s"),
        sense="flagged_above",
    )
    return view.found(
        trainer,
        "warn" if severity == "crit" else severity,
        (_ITSELF if sure else _PERHAPS).format(_NO_WORKERS if torch else ""),
        evidence=(
            busy_evidence(view, trainer),
            together(view, trainer)
            if turns
            else Evidence(
                text=f"no workers, main thread {main:.0f} % busy{idle}",
                value=main,
                unit="%",
                limit=100 * view.limit("main"),
                sense="flagged_above",
            ),
            *((read,) if _reads(view, trainer) else ()),
        ),
        steps=(loaders, *look) if sure else (*look, elsewhere),
        confidence=view.confidence(0.5 if not sure else 0.6 if turns else 0.7, trainer.input_rate),
        lost_share=trainer.lost,
    )


def _spells_finding(view: View, trainer: Trainer, found: Spells) -> Finding:
    """It may be simulation, evaluation or data preparation: from outside these look the same."""
    each, every = ago_text(round(found.length_s)), ago_text(round(found.every_s))
    bound = phrases.at_most(found.share) if found.share < 1 else "faster"
    text = f"If it prepares data, load it in worker processes, {loader_settings(trainer)}"
    prepare = use_workers(view, trainer, text)
    return view.found(
        trainer,
        "warn",  # it may have to be so
        f"GPU idle for {each} every {every}, main thread busy",
        evidence=(
            Evidence(
                text=f"GPU idle {each} at a time, {found.times} times so far, {100 * found.share:.0f} % of the time",
                value=100 * found.share,
                unit="%",
                limit=100 * view.limit("evaluation-phase.share"),
                sense="flagged_above",
            ),
            Evidence(
                text=f"main thread {100 * found.main:.0f} % busy during these, no workers",
                value=100 * found.main,
                unit="%",
                limit=100 * view.limit("main"),
                sense="flagged_above",
            ),
        ),
        steps=(
            *((stack(view, trainer.process, "Check what it does then"),) if _may_run_python(trainer) else ()),
            Step(text=f"If it plays or simulates, run several environments in worker processes: {bound}"),
            Step(text="Collect the next rollouts while the GPU learns from the last ones"),
            prepare,
        ),
        confidence=view.confidence(0.7),
        lost_share=found.share,
    )


def _if_loading(step: str, torch: bool) -> str:
    return f"If {'it is in the DataLoader' if torch else 'it loads data'}, {step[:1].lower()}{step[1:]}"


def _reads(view: View, trainer: Trainer) -> bool:
    return view.above(trainer.input_rate, "read_bytes_per_s")


def _may_run_python(trainer: Trainer) -> bool:
    """Whether a stack dump can help: not for a C++ program without a Python framework."""
    process = trainer.process
    known = process.libraries and not {"torch", "jax", "tensorflow"} & set(process.libraries)
    return not known or any("python" in word.rpartition("/")[2] for word in (process.name, *process.command[:1]))
