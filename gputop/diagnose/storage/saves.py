"""A rule about training that stands still while a checkpoint is written."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import mean, pstdev

from gputop.diagnose.finding import Evidence, Finding, Step
from gputop.diagnose.rule import Level, rule
from gputop.diagnose.storage.pauses import Pause, Pauses
from gputop.diagnose.storage.signs import moved
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.view import View
from gputop.known import added
from gputop.model import Missing
from gputop.units import ago, size

_COST = 0.01  # share of the time that nobody minds
_HIDDEN = "what a process writes is shown to its owner"


@rule(
    "checkpoint-stall",
    "Does training stand still for its checkpoints?",
    level=Level.CAUSE,
    state="checkpoint",
    short="SAVE",
    confirmed_by=("saves",),
    number="R30",
    rows=(13,),
    needs=("busy_percent",),
    partly=("write_chars_per_s",),
    lasting=True,
)
def checkpoint_stall(view: View) -> Iterator[Finding]:
    """The GPUs stop again and again, at even distances, and nearly every time a lot is written."""
    for trainer in view.trainers():
        if not trainer.gpus:
            continue
        view.knows(trainer, "duty")
        pauses = _followed(view, trainer)
        since_s = view.frame.mono_s - view.limit("window_s")
        long = [one for one in pauses.known if one.start_s >= since_s and one.idle_s >= view.limit("idle_s")]
        saves = [one for one in long if saved(view, pauses, one)]
        if len(saves) >= view.limit("saves") and len(saves) >= view.limit("share") * len(long):
            yield from _judged(view, trainer, saves)
        elif len(long) >= view.limit("saves") and _hidden(trainer) and _regular(view, long):
            view.abstain(trainer, Missing(metric="write_chars_per_s", reason="denied", unlock=view.unlock(_HIDDEN)))


def saved(view: View, pauses: Pauses, one: Pause) -> bool:
    """Whether a checkpoint was written in a pause: a lot, and far more than is written all the time anyway."""
    much = one.written >= view.limit("checkpoint-stall.written_bytes")
    return much and pauses.burst(one) >= view.limit("checkpoint-stall.burst")


def _followed(view: View, trainer: Trainer) -> Pauses:
    """Its pauses, up to now."""
    notes, now_s = view.notes(trainer), math.floor(view.frame.mono_s)
    pauses: Pauses | None = notes.get("pauses")
    if pauses is None:
        pauses = notes["pauses"] = Pauses(view.limit("idle_percent"), view.limit("lag_s"))
    new = int(min(900, now_s - pauses.seen_s if pauses.seen_s is not None else trainer.context_s or 0.0))
    if new > 0:
        busy = view.history.values(trainer.key, "busy_percent", new)
        pauses.follow(now_s - new + 1, busy, written(view, trainer, new))
    return pauses


def written(view: View, trainer: Trainer, seconds: int) -> Sequence[float | None]:
    """Bytes that its job wrote in each of the last seconds; of the whole machine where those are not to be seen."""
    ranks = view.mates(trainer)

    def work() -> Sequence[float | None]:
        if any(_hidden(one) for one in ranks):
            return view.history.values("host", "write_bytes_per_s", seconds)
        columns = [_to_files(view, one, seconds) for one in ranks]
        return columns[0] if len(columns) == 1 else [added(row) or 0.0 for row in zip(*columns, strict=True)]

    return view.once(("written", trainer.process.job or trainer.identity, seconds), work)


def _to_files(view: View, one: Trainer, seconds: int) -> Sequence[float | None]:
    """What a rank wrote to files: what is for storage, or more than its processes may have read from each other.

    Not all file systems count what is for storage, and a start of loaders sends them much through pipes.
    """
    stored, chars, read = (
        view.history.values(one.key, f"{kind}_per_s", seconds) for kind in ("write_bytes", "write_chars", "read_chars")
    )
    return [
        None if wrote is None else max(kept or 0.0, wrote - (got or 0.0))
        for kept, wrote, got in zip(stored, chars, read, strict=True)
    ]


def _hidden(trainer: Trainer) -> bool:
    return trainer.write_chars is None and any(one.metric == "write_chars_per_s" for one in trainer.missing)


def _regular(view: View, pauses: Sequence[Pause]) -> bool:
    """Whether they come at even distances."""
    gaps = [after.start_s - before.start_s for before, after in pairwise(pauses)]
    return view.below(pstdev(gaps) / mean(gaps), "variation")


def _judged(view: View, trainer: Trainer, saves: Sequence[Pause]) -> Iterator[Finding]:
    every_s = mean(after.start_s - before.start_s for before, after in pairwise(saves))
    over = view.frame.mono_s - saves[-1].start_s > view.limit("missed") * every_s
    if over or not _regular(view, saves):
        return
    idle_s, bytes_each = mean(one.idle_s for one in saves), mean(one.written for one in saves)
    share = idle_s / every_s
    limit = view.limit("warn_share")
    hidden = any(_hidden(one) for one in view.mates(trainer))
    yield view.found(
        trainer,
        "warn" if share >= limit else "info",
        f"stands still for {ago(round(idle_s))} every {ago(round(every_s))}, while a checkpoint is written",
        evidence=(
            Evidence(
                text=f"that is {100 * share:.1f} % of its time: {ago(3600 * share)} lost an hour",
                value=100 * share,
                unit="%",
                limit=100 * limit,
            ),
            Evidence(
                text=f"{size(bytes_each)} are written each time, {moved(bytes_each / idle_s)}",
                value=bytes_each,
                unit="B",
                limit=view.limit("written_bytes"),
            ),
            Evidence(text=f"seen {len(saves)} times", value=float(len(saves)), limit=view.limit("saves")),
        ),
        steps=tuple(_steps(idle_s, every_s, share)),
        confidence=view.confidence(0.8, None if hidden else 1.0),
        lost_share=share,
    )


def _steps(idle_s: float, every_s: float, share: float) -> Iterator[Step]:
    yield Step(
        text='write it beside the training, from a copy in host memory (with init_process_group("cpu:gloo,cuda:nccl"))',
        command="torch.distributed.checkpoint.async_save(state, checkpoint_id=PATH)",
    )
    if share > _COST:
        rare_s = idle_s / _COST
        yield Step(
            text=f"save less often: every {ago(round(rare_s))} instead of every {ago(round(every_s))} would cost 1 %"
        )
    yield Step(text="several ranks: let each write its part (torch.distributed.checkpoint), not rank 0 all of it")
    yield Step(text="write to a local NVMe disk, and copy it to where it belongs in the background")
    yield Step(text="keep the state of the optimizer for the checkpoints that you resume from, not for all of them")
