"""A rule about one process that drives several GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gputop.diagnose.command import started_for_each_gpu
from gputop.diagnose.finding import Evidence, Finding, Step
from gputop.diagnose.looking import stack
from gputop.diagnose.rule import Level, rule
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.usage.programs import plays_a_part
from gputop.diagnose.view import View
from gputop.model import Gpu


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
    number="R31",
    rows=(17,),
    needs=("busy_percent",),
    partly=("world_size",),
)
def dataparallel(view: View) -> Iterator[Finding]:
    """The first GPU has more to do or more to hold, the others are all alike, and they work at the same time.

    A model cut in pieces looks otherwise: its pieces differ, or work one after the other.
    """
    for trainer in view.trainers():
        others = trainer.ranked or trainer.process.talks or len(trainer.job.ranks if trainer.job else ()) > 1
        if len(trainer.gpus) < 2 or trainer.peers or trainer.turns or others or plays_a_part(trainer):
            continue
        libraries = trainer.process.libraries
        if not view.knows(trainer, "duty") or (libraries and "torch" not in libraries):
            continue
        cards = _cards(view, trainer)
        if len(cards) > 1 and _together(view, cards):
            busier, fuller = _busier(view, cards), _fuller(view, cards)
            if (busier or fuller) and view.knows(trainer, "ranked"):
                yield _told(view, trainer, cards, certain=bool(busier and fuller))


def _cards(view: View, trainer: Trainer) -> list[_Card]:
    """Those it works on, the first one first: a context that was only opened, or a parked tensor, is no work."""
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


def _together(view: View, cards: Sequence[_Card]) -> bool:
    """Whether they work at the same time, and all but the first do the same."""
    others = cards[1:]
    busy, held = [card.busy for card in others], [card.held for card in others if card.held]
    same = max(busy) - min(busy) <= view.limit("alike")
    same = same and (not held or max(held) <= view.limit("alike_held") * min(held))
    return same and view.above(sum(card.busy for card in cards), "together") and cards[0].busy >= 0.9 * max(busy)


def _busier(view: View, cards: Sequence[_Card]) -> bool:
    return view.above(cards[0].busy / max(card.busy for card in cards[1:]), "skew")


def _fuller(view: View, cards: Sequence[_Card]) -> bool | None:
    """Whether the first holds more than any other; None where nobody tells who holds what."""
    held = [card.held for card in cards]
    if None in held or not all(held):
        return None
    return view.above((held[0] or 0) / max(one or 0 for one in held[1:]), "skew")


def _told(view: View, trainer: Trainer, cards: Sequence[_Card], *, certain: bool) -> Finding:
    count, held = len(cards), [card.held for card in cards]
    busy = "/".join(f"{100 * card.busy:.0f}" for card in cards)
    most = max(card.busy for card in cards[1:])
    evidence = [
        Evidence(
            text=f"GPUs {', '.join(card.gpu.index for card in cards)} of one process: busy {busy} %",
            value=100 * cards[0].busy,
            unit="%",
            limit=100 * view.limit("skew") * most,
        )
    ]
    if None not in held:
        memory = "/".join(f"{(one or 0) / 2**30:.1f}" for one in held)
        evidence.append(Evidence(text=f"it holds {memory} GiB on them", value=float(held[0] or 0), unit="B"))
    evidence.append(Evidence(text="it is one process, without a thread that talks to others"))
    return view.found(
        trainer,
        "warn",
        f"drives {count} GPUs from one process: it looks like nn.DataParallel",
        evidence=tuple(evidence),
        steps=(
            Step(
                text="use DistributedDataParallel: one process for each GPU",
                command=started_for_each_gpu(trainer.process, count),
            ),
            Step(
                text="in the program, after init_process_group and torch.cuda.set_device(local_rank)",
                command="DistributedDataParallel(model.cuda(local_rank), device_ids=[local_rank])",
            ),
            Step(text="Shard the data with DistributedSampler, and call its set_epoch(epoch) at each epoch"),
            Step(
                text=f"Per rank: batch size and num_workers divided by {count}; the global batch, and so the learning "
                "rate, stays",
            ),
            stack(view, trainer.process, "to be sure look for data_parallel.py in its stack"),
        ),
        confidence=view.confidence(0.8 if certain or None in held else 0.6, trainer.process.libraries or None, *held),
        lost_share=trainer.lost,
    )
