"""A rule about a GPU that is busy all the time with little of itself at work."""

from __future__ import annotations

from collections.abc import Iterator

from gputop.diagnose.efficiency.chip import DRAM_TOP, at_work, dram_of_top, duty, partitioned
from gputop.diagnose.finding import Evidence, Finding, Severity, Step
from gputop.diagnose.rule import Level, rule
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.usage.programs import serves
from gputop.diagnose.view import View
from gputop.model import Missing

_RANKS = "a torch trace tells waiting for other ranks, which keeps a GPU busy, from small kernels"


@rule(
    "busy-not-effective",
    "Is a GPU busy with little of itself at work?",
    level=Level.EFFICIENCY,
    state="little work",
    short="FEW",
    confirmed_by=("small-grids",),
    number="R09",
    rows=(54, 57),
    needs=("busy_percent", "sm_active_percent or power_watts"),
    partly=("memory_busy_percent", "sm_clock_mhz", "world_size", "facts"),
)
def busy_not_effective(view: View) -> Iterator[Finding]:
    """Kernels all the time, and few multiprocessors at work; where no unit tells, little power at a full clock."""
    for trainer in view.trainers():
        busy = view.mean(trainer, "busy_percent")
        if not view.knows(trainer, "duty") or not view.above(busy, "busy_percent"):
            continue
        if trainer.peers or serves(trainer):
            continue
        units = _severity(view, trainer)
        proxy = trainer.sm is None and not partitioned(trainer) and _draws_little(view, trainer)
        if units is None and not proxy:
            continue
        if not view.knows(trainer, "ranked"):
            continue
        if trainer.ranked and not view.told(trainer, "small-grids"):
            view.abstain(trainer, Missing(metric="facts", reason="absent", unlock=_RANKS))
            continue
        yield view.found(
            trainer,
            units or "info",
            "keeps its GPU busy with little of it at work",
            evidence=(
                duty(trainer, busy, view.limit("busy_percent")),
                *at_work(trainer, limits=_decided(view, units)),
                *_clock(view, trainer),
            ),
            steps=_STEPS,
            confidence=0.75 if units else 0.5,
        )


def _severity(view: View, trainer: Trainer) -> Severity | None:
    """By the units of the chip: None where they tell nothing, or that much of it works."""
    if trainer.sm is not None and trainer.sm < view.limit("few_sm"):
        return "warn"
    tensor, dram = trainer.tensor, dram_of_top(trainer)
    little = view.below(trainer.sm, "sm") and view.below(tensor, "tensor") and view.below(dram, "dram")
    return "info" if little else None


def _decided(view: View, severity: Severity | None) -> dict[str, float]:
    """The limits that the units of the chip were below."""
    if severity == "warn":
        return {"SMs": view.limit("few_sm")}
    limits = {"SMs": view.limit("sm"), "tensor cores": view.limit("tensor")}
    return limits | {"memory bandwidth": DRAM_TOP * view.limit("dram")} if severity else {}


def _draws_little(view: View, trainer: Trainer) -> bool:
    """By power: little is common among busy cards, so it takes memory that rests and a clock that is up as well."""
    return (
        view.knows(trainer, "power_share", "memory_busy", "clock_share")
        and view.below(trainer.power_share, "power_share")
        and view.below(trainer.memory_busy, "memory_busy")
        and view.above(trainer.clock_share, "clock_share")
    )


def _clock(view: View, trainer: Trainer) -> Iterator[Evidence]:
    if trainer.sm is None and trainer.clock_share is not None:
        share, limit = min(100.0, 100 * trainer.clock_share), 100 * view.limit("clock_share")
        yield Evidence(text=f"clock {share:.0f} % of its highest", value=share, unit="%", limit=limit)


_STEPS = (
    Step(text="give each kernel more to do: a larger batch, or sequences packed together"),
    Step(text="fuse small kernels", command="model = torch.compile(model)"),
    Step(
        text="and launch them together", command='model = torch.compile(model, mode="reduce-overhead")  # CUDA graphs'
    ),
    Step(text="in a trace, look for kernels with fewer blocks than the GPU has multiprocessors"),
)
