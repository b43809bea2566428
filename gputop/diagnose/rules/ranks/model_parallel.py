"""Rules on one model over several GPUs: DataParallel, and stages of which one works at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gputop.diagnose.finding import Evidence, Finding, Step
from gputop.diagnose.gpu_turns import Turns
from gputop.diagnose.program_kind import is_auxiliary
from gputop.diagnose.rule import Level, rule
from gputop.diagnose.start_command import torchrun_command
from gputop.diagnose.steps import stack
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.view import View
from gputop.model import Gpu, Job


class _Card(NamedTuple):
    gpu: Gpu
    busy: float  # 0-1
    held: int | None  # bytes, by the process


@rule(
    "dataparallel",
    "Does one process drive several GPUs with nn.DataParallel?",
    level=Level.RANKS,
    state="dataparallel",
    short="DP",
    confirmed_by=("data-parallel",),
    instead_of=("starved-cause-unknown", "small-job"),
    needs=("busy_percent",),
    partly=("world_size",),
)
def dataparallel(view: View) -> Iterator[Finding]:
    """The first GPU has more work or memory, the others are similar, and all are active at the same time.

    Stages of a split model differ from each other, or are active in turn.
    """
    for trainer in view.trainers():
        others = trainer.is_rank or trainer.process.talks or len(trainer.job.ranks if trainer.job else ()) > 1
        if len(trainer.gpus) < 2 or trainer.peers or trainer.turns or others or is_auxiliary(trainer):
            continue
        libraries = trainer.process.libraries
        if not view.knows(trainer, "duty") or (libraries and "torch" not in libraries):
            continue
        cards = _cards(view, trainer)
        if len(cards) > 1 and _works_together(view, cards):
            busier, fuller = _first_is_busier(view, cards), _first_is_fuller(view, cards)
            if (busier or fuller) and view.knows(trainer, "is_rank"):
                yield _dataparallel_finding(view, trainer, cards, certain=bool(busier and fuller))


def _cards(view: View, trainer: Trainer) -> list[_Card]:
    """GPUs it works on, the first one first: a mere context or a parked tensor does not count."""
    seconds = min(view.limit("window_s"), max(1.0, trainer.phase_s))
    held = {share.uuid: share.vram_bytes for share in trainer.process.gpus}
    found = []
    for gpu in view.frame.gpus:
        if gpu.uuid not in trainer.uuids:
            continue
        busy = view.mean(gpu, "busy_percent", seconds)
        if busy is not None and view.above(busy, "busy_percent"):
            found.append(_Card(gpu, busy / 100, held.get(gpu.uuid)))
    return found


def _works_together(view: View, cards: Sequence[_Card]) -> bool:
    """Whether they work at the same time, all but the first equally."""
    others = cards[1:]
    busy, held = [card.busy for card in others], [card.held for card in others if card.held]
    same = max(busy) - min(busy) <= view.limit("alike")
    same = same and (not held or max(held) <= view.limit("alike_held") * min(held))
    return same and view.above(sum(card.busy for card in cards), "together") and cards[0].busy >= 0.9 * max(busy)


def _first_is_busier(view: View, cards: Sequence[_Card]) -> bool:
    return view.above(cards[0].busy / max(card.busy for card in cards[1:]), "skew")


def _first_is_fuller(view: View, cards: Sequence[_Card]) -> bool | None:
    """Whether the first holds more than any other; None if memory per process is unknown."""
    held = [card.held for card in cards]
    if None in held or not all(held):
        return None
    return view.above((held[0] or 0) / max(one or 0 for one in held[1:]), "skew")


def _dataparallel_finding(view: View, trainer: Trainer, cards: Sequence[_Card], *, certain: bool) -> Finding:
    count, held = len(cards), [card.held for card in cards]
    busy = "/".join(f"{100 * card.busy:.0f}" for card in cards)
    most = max(card.busy for card in cards[1:])
    evidence = [
        Evidence(
            text=f"GPUs {', '.join(card.gpu.index for card in cards)} of one process busy {busy} %",
            value=100 * cards[0].busy,
            unit="%",
            limit=100 * view.limit("skew") * most,
            sense="flagged_from",
        )
    ]
    if None not in held:
        memory = "/".join(f"{(one or 0) / 2**30:.1f}" for one in held)
        evidence.append(Evidence(text=f"device memory {memory} GiB", value=float(held[0] or 0), unit="B"))
    evidence.append(Evidence(text="single process, no communication threads"))
    return view.found(
        trainer,
        "warn",
        f"probably nn.DataParallel, one process drives {count} GPUs",
        evidence=tuple(evidence),
        steps=(
            Step(
                text="Use DistributedDataParallel, one process per GPU",
                command=torchrun_command(trainer.process, count),
            ),
            Step(
                text="Wrap the model after init_process_group and torch.cuda.set_device(local_rank)",
                command="DistributedDataParallel(model.cuda(local_rank), device_ids=[local_rank])",
            ),
            Step(text="Shard the data with DistributedSampler and call set_epoch(epoch) every epoch"),
            Step(
                text=f"Divide batch size and num_workers per rank by {count}; global batch and LR stay",
            ),
            stack(view, trainer.process, "To confirm, look for data_parallel.py in its stack"),
        ),
        confidence=view.confidence(0.8 if certain or None in held else 0.6, trainer.process.libraries or None, *held),
        lost_share=trainer.lost,
    )


@rule(
    "model-parallel",
    "Do the stages of a split model run one after the other?",
    level=Level.RANKS,
    state="in turns",
    short="TURNS",
    instead_of=("gpu-bound-healthy", "small-job"),
    needs=("busy_percent",),
)
def model_parallel(view: View) -> Iterator[Finding]:
    """GPUs busy in turns, with shares that add up to one GPU: naive model parallelism, as with device_map="auto".

    The input is not at fault: waiting GPUs have no work before their turn.
    """
    for trainer in view.trainers():
        if len(trainer.gpus) > 1 and not view.knows(trainer, "duty"):
            continue
        found = trainer.turns
        alone = found is not None and {*found.uuids} <= {*trainer.uuids}
        if found is not None and alone and view.above(found.total, "least"):
            yield _pipeline_finding(view, trainer, found)
    for job in view.jobs():
        first = next((one for one in view.ranks(job) if one.warm and one.turns is not None), None)
        found = first.turns if first is not None else None
        if first is None or found is None or {*found.uuids} <= {*first.uuids}:
            continue
        if view.above(found.total, "least"):
            yield _pipeline_finding(view, job, found)


def _pipeline_finding(view: View, thing: Trainer | Job, found: Turns) -> Finding:
    count, total = len(found.uuids), 100 * found.total
    cards = [gpu.index for gpu in view.frame.gpus if gpu.uuid in found.uuids]
    each = "/".join(f"{100 * share:.0f}" for share in found.shares)
    how = "one after the other" if found.seen else "evenly, turns shorter than a sample"
    evidence = [
        Evidence(
            text=f"GPUs {', '.join(cards)} busy {each} %, {how}; {total:.0f} % of {100 * count} % in total",
            value=total,
            unit="%",
            limit=100.0 * count,
            sense="healthy_from",
        )
    ]
    if isinstance(thing, Trainer):
        evidence.append(Evidence(text="one process drives all GPUs"))
    return view.found(
        thing,
        "info",
        f"{'naive' if found.seen else 'likely naive'} model parallelism, 1 of {count} GPUs active at a time",
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
