"""A rule about a GPU that waits for the kernels that one Python thread launches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gputop.diagnose.alternation import by_turns, little_while_busy
from gputop.diagnose.alternation import evidence as together
from gputop.diagnose.dataloader import aside
from gputop.diagnose.efficiency.chip import at_work
from gputop.diagnose.efficiency.stalls import writes
from gputop.diagnose.efficiency.transfers import transfers
from gputop.diagnose.finding import Evidence, Finding, Severity, Step
from gputop.diagnose.looking import stack
from gputop.diagnose.rule import Level, rule
from gputop.diagnose.starved import (
    EITHER,
    at_most,
    busy,
    each_loader,
    gaps,
    lone,
    oversubscribed,
    shared,
    told_of,
    told_to_load,
    waits_for_cpu,
)
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.usage.programs import serves, torchlike
from gputop.diagnose.view import View

# how the frameworks launch many kernels at once
_AT_ONCE: dict[str, tuple[str, str | None]] = {
    "torch": ("with CUDA graphs", 'model = torch.compile(model, mode="reduce-overhead")'),
    "tensorflow": ("compiled into one program", "@tf.function(jit_compile=True)"),
    "jax": ("compiled into one program", "step = jax.jit(step)"),
}
_SURE = "make sure: the stack of its main thread must not be in the DataLoader"


@rule(
    "overhead-bound",
    "Does a GPU wait for kernels to be launched?",
    level=Level.EFFICIENCY,
    state="launch wait",
    short="LAUNCH",
    confirmed_by=("launch-bound",),
    number="R12",
    rows=(26, 52, 55, 57, 65),
    needs=("busy_percent", "main_thread_percent", "sm_active_percent or power_watts or memory_busy_percent"),
    partly=("cpu_percent", "read_chars_per_s"),
)
def overhead_bound(view: View) -> Iterator[Finding]:
    """The main thread never rests, loaders do, nothing is read, and the GPU is idle in gaps too short to see.

    Or that thread rests only while the GPU is busy, and the GPU has small kernels.
    """
    for trainer in view.trainers():
        if not view.knows(trainer, "duty", "main") or not view.below(trainer.duty, "duty"):
            continue
        if not view.above(trainer.duty, "least_duty"):
            continue
        turns = not view.above(trainer.main, "main") and by_turns(view, trainer)
        if turns:
            small = not gaps(view, trainer) and little_while_busy(view, trainer)
        else:
            small = view.above(trainer.main, "main") and _even(view, trainer) and _works_little(view, trainer)
        if not small or not _loads_nothing(view, trainer) or view.once(("loads", trainer.identity), lambda: False):
            continue
        if oversubscribed(view, trainer) or waits_for_cpu(view, trainer) or shared(view, trainer) or serves(trainer):
            continue
        if not lone(trainer) and not _sure(view, trainer):
            continue  # its main thread may spin until others are done
        severity, against = view.by_share(trainer.lost), view.against
        if severity is not None and not writes(against, trainer) and not transfers(against, trainer):
            yield _held_up(view, trainer, severity, turns)


def _held_up(view: View, trainer: Trainer, severity: Severity, turns: bool) -> Finding:
    main = 100 * (trainer.main or 0.0)
    sure = _sure(view, trainer)
    return view.found(
        trainer,
        severity if sure or severity != "crit" else "warn",
        "is held up by its main thread: the GPU waits for kernels to be launched" if sure else EITHER,
        evidence=(
            busy(view, trainer, "duty"),
            together(view, trainer)
            if turns
            else Evidence(
                text=f"main thread {main:.0f} % of a core", value=main, unit="%", limit=100 * view.limit("main")
            ),
            _loaders(view, trainer),
            *at_work(trainer),
        ),
        steps=(*_fewer(trainer), stack(view, trainer.process, _SURE))
        if sure
        else (*_which(view, trainer), *_fewer(trainer, "in the model: ")),
        confidence=0.6 if trainer.loaders else 0.5,
        lost_share=trainer.lost,
    )


def _sure(view: View, trainer: Trainer) -> bool:
    """Whether it does launch. Without loaders it may load its data itself, from memory, or simulate a world."""
    return trainer.loaders > 0 or told_of(view, trainer, "launch-bound")


def _which(view: View, trainer: Trainer) -> tuple[Step, ...]:
    """What tells the two apart, and what helps against the other one."""
    look = stack(view, trainer.process, "see where its main thread is: in the model, in its data, or in a simulation")
    apart = aside(view, trainer, "in its data: load in processes of their own")
    return look, apart if torchlike(trainer) else replace(apart, command=None)


def _fewer(trainer: Trainer, where: str = "") -> tuple[Step, ...]:
    """What makes fewer launches, in the framework that it uses."""
    libraries = ("torch",) if torchlike(trainer) else trainer.process.libraries
    framework = next((name for name in _AT_ONCE if name in libraries), "")
    how, command = _AT_ONCE.get(framework, ("with CUDA graphs", None))
    python = "a fused optimizer; no Python loops over tensors; fewer .item() and .cpu()"
    return (
        Step(text=f"{where}launch many kernels at once, {how}: {at_most(trainer)}", command=command),
        Step(text="double the batch: if samples a second double too, this was it"),
        Step(text=python if framework == "torch" else "no loops over arrays; fetch fewer values from the GPU"),
    )


def _even(view: View, trainer: Trainer) -> bool:
    """Whether gaps are too short to be seen: longer ones are those of something else.

    Where it is busy for a tenth of the time samples of less than 5 % are not empty: those of an even series are alike.
    """
    shape = trainer.shape
    if shape is None or not trainer.flat or not view.below(shape.sigma, "sigma"):
        return False
    return view.below(shape.empty, "empty") or (shape.mean > 0 and view.below(shape.sigma / shape.mean, "varies"))


def _loads_nothing(view: View, trainer: Trainer) -> bool:
    if trainer.loaders:
        return view.knows(trainer, "loader_cpu") and view.below(trainer.loader_cpu, "loader_cpu")
    if told_to_load(view, trainer):
        return False
    return view.knows(trainer, "read_chars") and trainer.read_chars < view.limit("loader-in-main.read_bytes_per_s")  # type: ignore[operator]


def _works_little(view: View, trainer: Trainer) -> bool:
    """Whether little of the chip is used while it is: a large kernel would not wait for the next one.

    By its multiprocessors; else by its power; else, as on a vGPU, by how long its memory is in use.
    """
    if trainer.sm is not None:
        return view.below(trainer.sm, "sm")
    if trainer.power_share is None and trainer.memory_busy is not None:
        return view.below(trainer.memory_busy, "memory_busy")
    return view.knows(trainer, "power_share") and view.below(trainer.power_share, "power_share")


def _loaders(view: View, trainer: Trainer) -> Evidence:
    if not trainer.loaders:
        return Evidence(text="no loaders, and it reads nothing", value=trainer.read_chars, unit="B/s")
    each = 100 * (trainer.loader_cpu or 0.0)
    text = f"{each_loader(trainer)} {each:.0f} % of a core, not fully used"
    return Evidence(text=text, value=each, unit="%", limit=100 * view.limit("loader_cpu"))
