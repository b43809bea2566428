"""A rule about matrix products in fp32 beside idle tensor cores."""

from __future__ import annotations

from collections.abc import Iterator

from gputop.diagnose.efficiency.chip import BY_UNITS, duty
from gputop.diagnose.finding import Evidence, Finding, Severity, Step
from gputop.diagnose.rule import Level, rule
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.usage.programs import serves, torchlike
from gputop.diagnose.view import View

# how other frameworks are told TF32 and bfloat16
_OTHERS = {
    "tensorflow": (
        "tf.config.experimental.enable_tensor_float_32_execution(True)",
        'tf.keras.mixed_precision.set_global_policy("mixed_bfloat16")',
    ),
    "jax": ('jax.config.update("jax_default_matmul_precision", "tensorfloat32")', "x.astype(jax.numpy.bfloat16)"),
}
_TORCH = ('torch.set_float32_matmul_precision("high")', 'with torch.autocast("cuda", dtype=torch.bfloat16):')


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
        if not view.knows(trainer, "fp32", "tensor", unlock=BY_UNITS) or not view.above(trainer.fp32, "fp32"):
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
        steps=tuple(_steps(trainer)),
        confidence=0.8,
    )


def _steps(trainer: Trainer) -> Iterator[Step]:
    torch, libraries = torchlike(trainer), trainer.process.libraries
    others = next((_OTHERS[name] for name in _OTHERS if name in libraries), None)
    tf32, half = _TORCH if torch else others or (None, None)
    if torch or others:
        yield Step(text="one line, almost the same numbers: TF32", command=tf32)
        yield Step(text="faster still, without a GradScaler: bfloat16", command=half)
    else:
        yield Step(text="a mode of less precision, if it has one and its results allow it: TF32, mixed, bfloat16")
    yield Step(text="dimensions in multiples of 8, vocabularies in multiples of 64; no casts back and forth")
    compiled = ", and bfloat16 with torch.compile" if torch else ""
    yield Step(
        text=f"then compare steps a second in fp32{',' if torch else ' and'} bfloat16{compiled}: "
        "where bfloat16 gives less than a fifth more, it waits for something else"
    )
