"""A rule about matrix products in fp32 beside idle tensor cores."""

from __future__ import annotations

from collections.abc import Iterator

from gputop.diagnose.efficiency.chip import duty
from gputop.diagnose.finding import Evidence, Finding, Severity, Step
from gputop.diagnose.rule import Level, rule
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.usage.programs import serves
from gputop.diagnose.view import View

_UNLOCK = "only Hopper and newer tell what their units do (GPM); a torch trace tells it on every card"


@rule(
    "tensor-cores-idle",
    "Is matrix math done in fp32?",
    level=Level.EFFICIENCY,
    state="fp32 math",
    short="FP32",
    confirmed_by=("full-precision",),
    number="R10",
    rows=(50, 54, 57, 58, 59),
    needs=("busy_percent", "fp32_percent", "tensor_percent", "compute_capability"),
)
def tensor_cores_idle(view: View) -> Iterator[Finding]:
    """Busy, its fp32 pipe at work and its tensor cores not, on a card that has them; fp64 programs mean it so."""
    for trainer in view.trainers():
        busy = view.mean(trainer, "busy_percent")
        if not view.knows(trainer, "duty") or not view.above(busy, "busy_percent"):
            continue
        if not _has_them(view, trainer) or trainer.peers or serves(trainer):
            continue
        if not view.knows(trainer, "fp32", "tensor", unlock=_UNLOCK) or not view.above(trainer.fp32, "fp32"):
            continue
        double = [view.mean(gpu, "fp64_percent") or 0.0 for gpu in trainer.gpus]
        if max(double, default=0.0) > view.limit("fp64_percent"):
            continue
        if view.below(trainer.tensor, "tensor"):
            idle = (trainer.tensor or 0.0) < view.limit("idle_tensor")
            yield _in_fp32(view, trainer, busy or 0.0, "warn" if idle else "info")


def _has_them(view: View, trainer: Trainer) -> bool:
    known = bool(trainer.gpus) and all(view.knows(gpu, "compute_capability") for gpu in trainer.gpus)
    return known and all((gpu.compute_capability or (0, 0)) >= (7, 0) for gpu in trainer.gpus)


def _in_fp32(view: View, trainer: Trainer, busy: float, severity: Severity) -> Finding:
    fp32, tensor = 100 * (trainer.fp32 or 0.0), 100 * (trainer.tensor or 0.0)
    return view.found(
        trainer,
        severity,
        "does its matrix math in fp32, beside idle tensor cores"
        if severity == "warn"
        else "does much of its math in fp32",
        evidence=(
            Evidence(text=f"fp32 pipe {fp32:.0f} %", value=fp32, unit="%", limit=100 * view.limit("fp32")),
            Evidence(text=f"tensor cores {tensor:.0f} %", value=tensor, unit="%", limit=100 * view.limit("tensor")),
            duty(trainer, busy),
        ),
        steps=(
            Step(text="one line, almost the same numbers: TF32", command='torch.set_float32_matmul_precision("high")'),
            Step(
                text="faster still, without a GradScaler: bfloat16",
                command='with torch.autocast("cuda", dtype=torch.bfloat16):',
            ),
            Step(text="dimensions in multiples of 8, vocabularies in multiples of 64; no casts back and forth"),
            Step(
                text="then compare steps a second in fp32, bfloat16, and bfloat16 with torch.compile: "
                "where bfloat16 gives less than a fifth more, it waits for something else"
            ),
        ),
        confidence=0.8,
    )
