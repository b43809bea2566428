"""A rule about a GPU whose memory is the limit."""

from __future__ import annotations

from collections.abc import Iterator

from gputop.diagnose.efficiency.chip import at_work, dram_of_top, duty, partitioned, tensor_of_top
from gputop.diagnose.finding import Evidence, Finding, Step
from gputop.diagnose.rule import Level, rule
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.usage.programs import serves, torchlike
from gputop.diagnose.view import View

_FUSED = {"tensorflow": "tf.function(step, jit_compile=True)", "jax": "jax.jit(step)"}


@rule(
    "mem-bw-bound",
    "Is a GPU bound by the bandwidth of its memory?",
    level=Level.EFFICIENCY,
    state="memory-bound",
    short="MEM",
    confirmed_by=("memory-bound-kernels",),
    number="R11 and R11b",
    rows=(51, 53),
    needs=("busy_percent", "dram_percent or memory_busy_percent"),
    partly=("tensor_percent", "power_watts"),
)
def mem_bw_bound(view: View) -> Iterator[Finding]:
    """Its memory moves nearly what it can, its tensor cores do little; seen on an idle GPU, it may be copies."""
    for trainer in view.trainers():
        busy = view.mean(trainer, "busy_percent")
        if not view.knows(trainer, "duty") or busy is None or trainer.peers or serves(trainer):
            continue
        if view.above(busy, "busy_percent"):
            moves = view.above(dram_of_top(trainer), "dram") and view.knows(trainer, "tensor")
            by_units = moves and view.below(tensor_of_top(trainer), "tensor")
            if by_units or (trainer.dram is None and _by_proxy(view, trainer)):
                yield _bound(view, trainer, busy, by_units)
        elif view.below(busy, "idle_percent"):
            moves = view.above(dram_of_top(trainer), "dram")
            if moves or (trainer.dram is None and _in_use(view, trainer)):
                yield _copies(view, trainer, busy)


def _in_use(view: View, trainer: Trainer) -> bool:
    """The same by time, where the card does not tell how much is moved."""
    return view.knows(trainer, "memory_busy") and view.above(trainer.memory_busy, "idle_memory_busy")


def _by_proxy(view: View, trainer: Trainer) -> bool:
    """Time with memory traffic saturates early, so it takes a power between that of waiting and that of computing."""
    return (
        not partitioned(trainer)
        and view.knows(trainer, "memory_busy", "power_share")
        and view.above(trainer.memory_busy, "memory_busy")
        and view.above(trainer.power_share, "power_share")
        and view.below(trainer.power_share, "most_power_share")
    )


def _traffic(view: View, trainer: Trainer) -> Evidence:
    if trainer.dram is not None:
        moved = 100 * trainer.dram
        text = f"memory moves {moved:.0f} % of what it could; 80 % is reached in practice"
        return Evidence(text=text, value=moved, unit="%", limit=80 * view.limit("dram"))
    active = 100 * (trainer.memory_busy or 0.0)
    text = f"memory in use {active:.0f} % of the time; how much it moves this card does not tell"
    return Evidence(text=text, value=active, unit="%", limit=100 * view.limit("memory_busy"))


def _bound(view: View, trainer: Trainer, busy: float, by_units: bool) -> Finding:
    return view.found(
        trainer,
        "info",
        "is bound by the bandwidth of its GPU's memory",
        evidence=(_traffic(view, trainer), duty(trainer, busy), *at_work(trainer, memory=False)),
        steps=tuple(_fewer_bytes(trainer)),
        confidence=0.8 if by_units else 0.5,
    )


def _fewer_bytes(trainer: Trainer) -> Iterator[Step]:
    """So that less goes through memory; in the words of the framework, where that is known."""
    fuse, torch = "fuse elementwise operations, so that less goes through memory", torchlike(trainer)
    if torch:
        yield Step(text=fuse, command="model = torch.compile(model)")
        yield Step(text="a fused optimizer", command="torch.optim.AdamW(model.parameters(), fused=True)")
        yield Step(
            text="attention that keeps its scores on the chip",
            command="torch.nn.functional.scaled_dot_product_attention(q, k, v)",
        )
    else:
        known = (_FUSED[name] for name in _FUSED if name in trainer.process.libraries)
        yield Step(text=fuse, command=next(known, None))
    yield Step(text=f"bfloat16 activations halve the bytes{'; channels_last for convolutions' if torch else ''}")


def _copies(view: View, trainer: Trainer, busy: float) -> Finding:
    return view.found(
        trainer,
        "info",
        "moves much through its GPU's memory while few kernels run: copies, perhaps",
        evidence=(_traffic(view, trainer), duty(trainer, busy, view.limit("idle_percent"))),
        steps=(Step(text="a torch trace shows copies beside kernels: look for memcpy between host and device"),),
        confidence=0.4,
    )
