"""A rule on a job that is small for its GPU."""

from __future__ import annotations

from collections.abc import Iterator

from gputop import units
from gputop.diagnose.chip_activity import duty, partitioned, unit_activity
from gputop.diagnose.finding import Evidence, Finding, Step
from gputop.diagnose.program_kind import is_notebook, serves
from gputop.diagnose.rule import Level, rule
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.view import View
from gputop.model import Missing

_TABLE = "small-job"


def small(view: View, trainer: Trainer) -> bool:
    """Whether a trainer needs little of GPU, CPU and device memory, and does not just wait for its loaders."""
    shape, held = trainer.shape, _memory_share(trainer)
    if not view.below(trainer.duty, f"{_TABLE}.duty") or shape is None or trainer.peers or held is None:
        return False
    waits = trainer.loaders > 0 and (trainer.main or 0.0) <= view.limit(f"{_TABLE}.waiting")
    return (
        not waits
        and view.below(shape.sigma, f"{_TABLE}.sigma")
        and view.below(shape.high, f"{_TABLE}.peak_percent")
        and view.below(held, f"{_TABLE}.vram")
        and _draws_little(view, trainer)
        and view.below(trainer.saturation, f"{_TABLE}.saturation")
    )


@rule(
    "small-job",
    "Does a job underuse its GPU?",
    level=Level.EFFICIENCY,
    state="small",
    short="SMALL",
    needs=("busy_percent", "cpu_percent", "allowed_cpus", "power_watts or memory_busy_percent", "vram_bytes"),
)
def small_job(view: View) -> Iterator[Finding]:
    """For 15 minutes: GPU busy half of the time or less, evenly, with low power, CPU and memory use."""
    for trainer in view.trainers():
        if not view.knows(trainer, "duty") or not view.below(trainer.duty, "duty"):
            continue
        if trainer.seen_s < view.limit("for_s") or not view.knows(trainer, "cores", "allowed"):
            continue
        if trainer.memory_busy is None and not view.knows(trainer, "power_share"):
            continue
        if not view.above(trainer.duty, "least") or partitioned(trainer) or is_notebook(trainer) or serves(trainer):
            continue
        if _memory_share(trainer) is None:
            view.abstain(trainer, Missing(metric="vram_bytes", reason="unsupported"))
            continue
        busy = view.mean(trainer, "busy_percent")
        if view.below(busy, "busy_percent") and small(view, trainer):
            yield _small_finding(view, trainer, busy or 0.0)


def _draws_little(view: View, trainer: Trainer) -> bool:
    """By power; if unknown, as on a vGPU, by the time its memory is in use."""
    if trainer.power_share is None:
        return view.below(trainer.memory_busy, f"{_TABLE}.memory_busy")
    return view.below(trainer.power_share, f"{_TABLE}.power_share")


def _memory_share(trainer: Trainer) -> float | None:
    """Share of the memory of its GPUs that it holds."""
    total, uuids = sum(gpu.vram_total_bytes or 0 for gpu in trainer.works_on), {gpu.uuid for gpu in trainer.works_on}
    held = [share.vram_bytes for share in trainer.process.gpus if share.kind != "graphics" and share.uuid in uuids]
    return sum(part or 0 for part in held) / total if total and None not in held else None


def _main_thread(trainer: Trainer) -> Iterator[Evidence]:
    """Its main thread, which may load the data itself."""
    if trainer.main is not None:
        yield Evidence(text=f"main thread {100 * trainer.main:.0f} % of a core", value=100 * trainer.main, unit="%")


def _small_finding(view: View, trainer: Trainer, busy: float) -> Finding:
    held, cpus = 100 * (_memory_share(trainer) or 0.0), 100 * (trainer.saturation or 0.0)
    several = max(2, min(8, int(90 / max(1.0, busy)), int(90 / max(1.0, held))))
    return view.found(
        trainer,
        "info",
        "underuses its GPU, small model or batch",
        evidence=(
            duty(trainer, busy, view.limit("busy_percent"), "flagged_below"),
            *_main_thread(trainer),
            Evidence(text=f"device memory {held:.0f} % used", value=held, unit="%", limit=100 * view.limit("vram"),
                     sense="flagged_below"),
            Evidence(text=f"allowed CPUs {cpus:.0f} % used, not the limit", value=cpus, unit="%"),
            *unit_activity(trainer),
            Evidence(text=f"for at least {units.ago_text(trainer.seen_s)}", value=trainer.seen_s, unit="s"),
        ),
        steps=(
            Step(text="Use a larger batch if training allows"),
            Step(text=f"Or run about {several} such jobs of one user on this GPU at once, under MPS",
                 command="nvidia-cuda-mps-control -d"),
            Step(text="Or use a smaller GPU or a MIG slice"),
        ),
        confidence=0.7,
        lost_share=trainer.lost,
        cost="idle",
    )  # fmt: skip
