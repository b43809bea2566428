"""A rule about a training run that keeps a CPU busy and not its GPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gputop.diagnose.finding import Evidence, Finding, Severity, Step
from gputop.diagnose.looking import profile, stack
from gputop.diagnose.room import rests
from gputop.diagnose.rule import Level, rule
from gputop.diagnose.starved import begins, loading
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.usage.programs import notebook, plays_a_part
from gputop.diagnose.usage.start import LOADS
from gputop.diagnose.view import View


@rule(
    "gpu-idle-cpu-busy",
    "Is a program busy with everything but its GPU?",
    level=Level.USE,
    state="GPU idle",
    short="IDLE",
    number="R02",
    rows=(2, 44),
    needs=("busy_percent", "cpu_percent"),
)
def gpu_idle_cpu_busy(view: View) -> Iterator[Finding]:
    """A context that has worked before, no work for a minute, and a core or more at work on something else."""
    from gputop.diagnose.feed.alone import loads_itself  # late: it asks this package what a program is

    for trainer in view.trainers():
        calm = _same_loaders(view, trainer)
        if not trainer.gpus or trainer.compiling or notebook(trainer) or plays_a_part(trainer):
            continue
        if not view.knows(trainer, "duty", "cores"):
            continue
        busy, cores = view.mean(trainer, "busy_percent"), view.mean(trainer, "cores")
        writes = (trainer.write_chars or 0.0) >= view.limit("writes_bytes_per_s")
        if (loading(trainer) or loads_itself(view, trainer)) and not rests(view, trainer):
            continue  # a little work, and somebody works hard for the next: it waits for its input
        if calm and not writes and view.below(busy, "busy_percent") and view.above(cores, "cores"):
            yield _elsewhere(view, trainer, busy or 0.0, cores or 0.0)


def _same_loaders(view: View, trainer: Trainer) -> bool:
    """Whether its loaders are those of a while ago: new ones mean the end of an epoch, or an evaluation."""
    notes, now_s = view.notes(trainer), view.frame.mono_s
    if notes.get("loaders") != trainer.team:
        notes["changed_s"] = now_s if "loaders" in notes else -view.limit("window_s") + now_s
        notes["loaders"] = trainer.team
    return bool(now_s - notes["changed_s"] >= view.limit("window_s"))


class _Doing(NamedTuple):
    """What it may be doing instead: how bad that is, in words, and what to do about it."""

    severity: Severity
    headline: str
    confidence: float
    evidence: tuple[Evidence, ...]
    steps: Sequence[Step]


def _doing(view: View, trainer: Trainer) -> _Doing:
    """Only who has worked before, reads little and does no work at all is seen to do something else."""
    works = view.mean(trainer, "worked") or 0.0
    if works >= view.limit("works"):
        each = Evidence(text=f"some work in {100 * works:.0f} % of the seconds", value=100 * works, unit="%")
        return _Doing("info", "hardly uses its GPU", 0.6, (each,), _SMALL)
    if view.above(trainer.read_chars, "loads_bytes_per_s") and view.below(trainer.cores, "loads_cores"):
        read, limit = trainer.read_chars or 0.0, view.limit("loads_bytes_per_s")
        reads = Evidence(text=f"reads {read / 1e6:.0f} MB/s", value=read, unit="B/s", limit=limit)
        return _Doing("info", "does not use its GPU while it loads weights or data", 0.6, (reads,), LOADS)
    if begins(view, trainer):
        return _Doing("info", "does not use its GPU yet: it may compile or prepare its data", 0.6, (), _FIRST)
    return _Doing("warn", "runs, but not on its GPU", 0.7, (), (_REASONS,))


def _elsewhere(view: View, trainer: Trainer, busy: float, cores: float) -> Finding:
    main = 100 * (trainer.main or 0.0)
    seconds, doing = view.limit("window_s"), _doing(view, trainer)
    return view.found(
        trainer,
        doing.severity,
        doing.headline,
        evidence=(
            Evidence(
                text=f"{trainer.reading(busy)} of the last {seconds:.0f} s",
                value=busy,
                unit="%",
                limit=view.limit("busy_percent"),
            ),
            Evidence(
                text=f"{cores:.1f} CPU cores in use, its main thread {main:.0f} %",
                value=cores,
                unit="cores",
                limit=view.limit("cores"),
            ),
            *doing.evidence,
        ),
        steps=(
            stack(view, trainer.process, "see what its main thread does"),
            profile(view, trainer.process, "then where the time goes, over some seconds"),
            *doing.steps,
        ),
        confidence=view.confidence(doing.confidence, trainer.main),
        lost_share=1 - busy / 100,
    )


_REASONS = Step(
    text="usual reasons: tokenising or indexing in the main process, tensors left on the CPU in the loop, "
    "validation on the CPU, decoding of a first batch, torch.compile, XLA or TensorRT building"
)
_FIRST = (
    Step(text="torch.compile, XLA and TensorRT build for minutes before the first steps: wait for these"),
    _REASONS,
)
_SMALL = (
    Step(text="if it is small by nature, run several like it on this GPU, with MPS between them"),
    Step(text="or use a smaller GPU, or a slice of one (MIG 1g)"),
    Step(text="a larger batch, if the run may have one"),
)
