"""A rule about a GPU that works as it should: it is the limit itself."""

from __future__ import annotations

from collections.abc import Iterator

from gputop.diagnose.efficiency.chip import at_work, dram_of_top, duty, tensor_of_top
from gputop.diagnose.finding import Finding, Step
from gputop.diagnose.rule import Level, rule
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.view import View

_BIGGER = (
    Step(text="nothing is urgent; what is left to win: mixed precision if it is off, torch.compile, a larger batch"),
    Step(text="Scale out to more GPUs with DDP; batch size and num_workers are per rank: divide them or scale the LR"),
)


@rule(
    "gpu-bound-healthy",
    "Is the GPU itself the limit, as it should be?",
    level=Level.HEALTHY,
    state="healthy",
    short="OK",
    number="R08",
    rows=(3, 7, 22, 25, 35, 50),
    needs=("busy_percent", "sm_active_percent or power_watts or memory_busy_percent"),
    partly=("sm_clock_mhz",),
)
def gpu_bound_healthy(view: View) -> Iterator[Finding]:
    """Busy without gaps, and a second signal says that it gets something done."""
    for trainer in view.trainers():
        busy = view.mean(trainer, "busy_percent")
        if not view.knows(trainer, "duty") or not (view.above(busy, "busy_percent") or _surely(view, trainer)):
            continue
        if trainer.shape is not None and not view.below(trainer.shape.sigma, "sigma"):
            continue
        if len(trainer.works_on) < len(trainer.gpus):
            continue  # it may be there to use them all
        kind = _kind(view, trainer)
        if kind is None:
            continue
        yield view.found(
            trainer,
            "info",
            f"keeps its GPU busy: {kind}",
            evidence=(
                duty(trainer, busy, view.limit("busy_percent")),
                *at_work(trainer, limits={"memory busy": view.limit("memory_busy")}),
            ),
            steps=_BIGGER,
            confidence=0.8 if trainer.sm is not None else 0.6 if trainer.power_share is not None else 0.5,
            healthy=True,
            lost_share=0.0,
        )


def _surely(view: View, trainer: Trainer) -> bool:
    """Whether SM activity stands in for utilization and is high: the GPU is busier than its multiprocessors."""
    by = trainer.duty_by
    return by is not None and by.lower_bound and view.above(trainer.sm, "alone_sm")


def _kind(view: View, trainer: Trainer) -> str | None:
    """What the GPU is bound by; None where it is busy with little, or with something another rule tells better."""
    if trainer.sm is None:
        if trainer.power_share is None and trainer.memory_busy is not None:  # as on a vGPU
            return "its memory traffic says that it works" if view.above(trainer.memory_busy, "memory_busy") else None
        known = view.knows(trainer, "power_share", "clock_share")
        by_power = view.above(trainer.power_share, "power_share") and view.above(trainer.clock_share, "clock_share")
        return "its power says that it works" if known and by_power else None
    tensor, dram = tensor_of_top(trainer) or 0.0, dram_of_top(trainer) or 0.0
    in_fp32 = (trainer.fp32 or 0.0) >= view.limit("fp32") and (trainer.tensor or 0.0) < view.limit("no_tensor")
    by_memory = view.above(dram, "dram")
    if in_fp32 or (by_memory and tensor < view.limit("little_tensor")):
        return None
    if view.above(tensor, "compute"):
        return "compute-bound"
    if by_memory:
        return "bound by its memory"
    return "a mix of compute and memory" if view.above(tensor, "tensor") or view.above(trainer.sm, "sm") else None
