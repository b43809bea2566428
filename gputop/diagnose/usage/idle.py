"""A rule about a training run that keeps a CPU busy and not its GPU."""

from __future__ import annotations

from collections.abc import Iterator

from gputop.diagnose.finding import Evidence, Finding, Step
from gputop.diagnose.room import rests
from gputop.diagnose.rule import Level, rule
from gputop.diagnose.starved import loading
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.usage.programs import notebook, serves
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
    for trainer in view.trainers():
        calm = _same_loaders(view, trainer)
        if not trainer.gpus or trainer.compiling or notebook(trainer) or serves(trainer):
            continue
        if not view.knows(trainer, "duty", "cores"):
            continue
        busy, cores = view.mean(trainer, "busy_percent"), view.mean(trainer, "cores")
        writes = (trainer.write_chars or 0.0) >= view.limit("writes_bytes_per_s")
        if loading(trainer) and not rests(view, trainer):
            continue  # a little work, and loaders that work hard: it waits for its input
        if calm and not writes and view.below(busy, "busy_percent") and view.above(cores, "cores"):
            yield _elsewhere(view, trainer, busy or 0.0, cores or 0.0)


def _same_loaders(view: View, trainer: Trainer) -> bool:
    """Whether its loaders are those of a while ago: new ones mean the end of an epoch, or an evaluation."""
    notes, now_s = view.notes(trainer), view.frame.mono_s
    if notes.get("loaders") != trainer.team:
        notes["changed_s"] = now_s if "loaders" in notes else -view.limit("window_s") + now_s
        notes["loaders"] = trainer.team
    return bool(now_s - notes["changed_s"] >= view.limit("window_s"))


def _elsewhere(view: View, trainer: Trainer, busy: float, cores: float) -> Finding:
    pid, main = trainer.process.pid, 100 * (trainer.main or 0.0)
    seconds = view.limit("window_s")
    return view.found(
        trainer,
        "warn",
        "runs, but not on its GPU",
        evidence=(
            Evidence(
                text=f"GPU busy {busy:.0f} % of the last {seconds:.0f} s",
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
        ),
        steps=(
            Step(text="see what its main thread does", command=f"py-spy dump --pid {pid}", action="stack"),
            Step(text="then where the time goes, over some seconds", action="profile"),
            Step(text="usual reasons: tokenising or indexing in the main process, tensors left on the CPU in the loop, "
                 "validation on the CPU, decoding of a first batch"),
        ),
        confidence=view.confidence(0.7, trainer.main),
        lost_share=1 - busy / 100,
    )  # fmt: skip
