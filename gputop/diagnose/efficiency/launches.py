"""A rule about a GPU that waits for the kernels that one Python thread launches."""

from __future__ import annotations

from collections.abc import Iterator

from gputop.diagnose.efficiency.chip import at_work
from gputop.diagnose.efficiency.stalls import writes
from gputop.diagnose.efficiency.transfers import transfers
from gputop.diagnose.finding import Evidence, Finding, Severity, Step
from gputop.diagnose.rule import Level, rule
from gputop.diagnose.starved import at_most, busy, oversubscribed, shared, told_to_load, waits_for_cpu
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.usage.programs import serves
from gputop.diagnose.view import View
from gputop.words import amount


@rule(
    "overhead-bound",
    "Does a GPU wait for kernels to be launched?",
    level=Level.EFFICIENCY,
    state="launch wait",
    short="LAUNCH",
    confirmed_by=("launch-bound",),
    number="R12",
    rows=(26, 52, 55, 57, 65),
    needs=("busy_percent", "main_thread_percent", "sm_active_percent or power_watts"),
    partly=("cpu_percent", "read_chars_per_s"),
)
def overhead_bound(view: View) -> Iterator[Finding]:
    """The main thread never rests, loaders do, nothing is read, and the GPU is idle in gaps too short to see."""
    for trainer in view.trainers():
        if not view.knows(trainer, "duty", "main") or not view.below(trainer.duty, "duty"):
            continue
        if not view.above(trainer.duty, "least_duty") or not view.above(trainer.main, "main"):
            continue
        if not _even(view, trainer) or not _loads_nothing(view, trainer) or not _works_little(view, trainer):
            continue
        if oversubscribed(view, trainer) or waits_for_cpu(view, trainer) or shared(view, trainer) or serves(trainer):
            continue
        severity, against = view.by_share(trainer.lost), view.against
        if severity is not None and not writes(against, trainer) and not transfers(against, trainer):
            yield _held_up(view, trainer, severity)


def _held_up(view: View, trainer: Trainer, severity: Severity) -> Finding:
    main = 100 * (trainer.main or 0.0)
    return view.found(
        trainer,
        severity,
        "is held up by its main thread: the GPU waits for kernels to be launched",
        evidence=(
            busy(view, trainer, "duty"),
            Evidence(text=f"main thread {main:.0f} % of a core", value=main, unit="%", limit=100 * view.limit("main")),
            _loaders(view, trainer),
            *at_work(trainer),
        ),
        steps=(
            Step(
                text=f"launch many kernels at once, with CUDA graphs: {at_most(trainer)}",
                command='model = torch.compile(model, mode="reduce-overhead")',
            ),
            Step(text="double the batch: if samples a second double too, this was it"),
            Step(text="a fused optimizer; no Python loops over tensors; fewer .item() and .cpu()"),
            Step(text="make sure: the stack of its main thread must not be in the DataLoader", action="stack"),
        ),
        # without loaders a program may prepare its data itself, from memory: that looks the same
        confidence=0.6 if trainer.loaders else 0.5,
        lost_share=trainer.lost,
    )


def _even(view: View, trainer: Trainer) -> bool:
    """Whether gaps are too short to be seen: longer ones are those of something else."""
    shape = trainer.shape
    return trainer.flat and shape is not None and view.below(shape.sigma, "sigma") and view.below(shape.empty, "empty")


def _loads_nothing(view: View, trainer: Trainer) -> bool:
    if trainer.loaders:
        return view.knows(trainer, "loader_cpu") and view.below(trainer.loader_cpu, "loader_cpu")
    if told_to_load(view, trainer):
        return False
    return view.knows(trainer, "read_chars") and trainer.read_chars < view.limit("loader-in-main.read_bytes_per_s")  # type: ignore[operator]


def _works_little(view: View, trainer: Trainer) -> bool:
    """Whether little of the chip is used while it is: a large kernel would not wait for the next one."""
    if trainer.sm is not None:
        return view.below(trainer.sm, "sm")
    return view.knows(trainer, "power_share") and view.below(trainer.power_share, "power_share")


def _loaders(view: View, trainer: Trainer) -> Evidence:
    if not trainer.loaders:
        return Evidence(text="no loaders, and it reads nothing", value=trainer.read_chars, unit="B/s")
    each = 100 * (trainer.loader_cpu or 0.0)
    text = f"{amount(trainer.loaders, 'loader')}, idle: {'each ' if trainer.loaders > 1 else ''}{each:.0f} % of a core"
    return Evidence(text=text, value=each, unit="%", limit=100 * view.limit("loader_cpu"))
