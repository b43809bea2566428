"""A rule about a model in stages, of which one works at a time."""

from __future__ import annotations

from collections.abc import Iterator

from gputop.diagnose.finding import Evidence, Finding, Step
from gputop.diagnose.rule import Level, rule
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.turns import Turns
from gputop.diagnose.view import View
from gputop.model import Job


@rule(
    "model-parallel",
    "Do the stages of one model work in turns?",
    level=Level.RANKS,
    state="in turns",
    short="TURNS",
    instead_of=("gpu-bound-healthy", "small-job"),
    number=None,
    rows=(17,),
    needs=("busy_percent",),
)
def model_parallel(view: View) -> Iterator[Finding]:
    """Busy in turns, so that their shares add up to one GPU's: naive model parallelism, as of device_map="auto".

    It is no fault of the input: the GPUs that wait have nothing to do before their turn.
    """
    for trainer in view.trainers():
        if len(trainer.gpus) > 1 and not view.knows(trainer, "duty"):
            continue
        found = trainer.turns
        alone = found is not None and {*found.uuids} <= {*trainer.uuids}
        if found is not None and alone and view.above(found.total, "least"):
            yield _told(view, trainer, found)
    for job in view.jobs():
        first = next((one for one in view.ranks(job) if one.warm and one.turns is not None), None)
        found = first.turns if first is not None else None
        if first is None or found is None or {*found.uuids} <= {*first.uuids}:
            continue
        if view.above(found.total, "least"):
            yield _told(view, job, found)


def _told(view: View, thing: Trainer | Job, found: Turns) -> Finding:
    count, total = len(found.uuids), 100 * found.total
    cards = [gpu.index for gpu in view.frame.gpus if gpu.uuid in found.uuids]
    each = "/".join(f"{100 * share:.0f}" for share in found.shares)
    how = "one after the other" if found.seen else "evenly: turns are shorter than a sample"
    evidence = [
        Evidence(
            text=f"GPUs {', '.join(cards)} busy {each} %, {how}: in sum {total:.0f} % of {100 * count} %",
            value=total,
            unit="%",
            limit=100.0 * count,
        )
    ]
    if isinstance(thing, Trainer):
        evidence.append(Evidence(text="one process drives all of them"))
    return view.found(
        thing,
        "info",
        f"{'naive' if found.seen else 'likely naive'} model parallelism: one of {count} GPUs works at a time",
        evidence=tuple(evidence),
        steps=_STEPS,
        confidence=0.8 if found.seen else 0.55,
        gpus=found.uuids,
    )


_STEPS = (
    Step(
        text="Fit the model on fewer GPUs: 8-bit or 4-bit weights, LoRA, activation checkpointing",
        command="BitsAndBytesConfig(load_in_4bit=True)",
    ),
    Step(
        text="Split each batch into micro-batches, at least as many as stages, with a pipeline schedule",
        command="torch.distributed.pipelining.Schedule1F1B(stage, n_microbatches=8, loss_fn=loss_fn)",
    ),
    Step(
        text="Or shard the model so that all GPUs work at once: FSDP, or tensor parallelism over NVLink",
        command="torch.distributed.fsdp.fully_shard(model)",
    ),
    Step(
        text="For inference, use an engine with tensor parallelism", command="vllm serve MODEL --tensor-parallel-size N"
    ),
)
