"""A rule about training that stops while a checkpoint is written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import mean, median, pstdev
from typing import NamedTuple

from gputop.diagnose.finding import Evidence, Finding, Severity, Step
from gputop.diagnose.pauses import Pause, Pauses
from gputop.diagnose.rule import Level, rule
from gputop.diagnose.storage.signs import moved
from gputop.diagnose.storage.written import Written, hidden
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.view import View
from gputop.model import Missing
from gputop.units import ago, size

_COST = 0.01  # share of the time that nobody minds
_ALIKE = 2.0  # times as long or as short: pauses of another kind
_LATEST = 12  # saves, by which distance and length are judged: how often it saves may change
_HIDDEN = "what a process writes is shown to its owner"


class Saves(NamedTuple):
    """Checkpoints that a trainer waited for, and what they come to."""

    pauses: Sequence[Pause]
    every_s: float  # distance, mean
    idle_s: float  # GPU time lost in each, mean
    share: float  # of GPU time


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
    """The GPUs stop again and again, and each time a checkpoint's worth of bytes is written because of that."""
    for trainer in view.trainers():
        if not trainer.gpus:
            continue
        view.knows(trainer, "duty")
        pauses = view.pauses(trainer)
        settle(view, trainer, pauses)
        long = [one for one in pauses.lately(view.limit("window_s")) if one.idle_s >= view.limit("idle_s")]
        found = _saves(view, pauses, long)
        if found is not None:
            yield _found(view, trainer, found)
        elif len(long) > view.limit("saves") and hidden(trainer) and _regular(view, long):
            view.abstain(trainer, Missing(metric="write_chars_per_s", reason="denied", unlock=view.unlock(_HIDDEN)))


def settle(view: View, trainer: Trainer, pauses: Pauses) -> None:
    """Work out what its job wrote because of each pause, until that is final, and whether it saved."""
    lag_s = view.limit("checkpoint-stall.lag_s")
    open_ones = [place for place, one in enumerate(pauses.known) if not one.settled]
    if not open_ones:
        return
    first = open_ones[0]
    written = Written.of(view, trainer, pauses.known[first].start_s, lag_s)
    for place in range(first, len(pauses.known)):
        one = pauses.known[place]
        before = pauses.known[place - 1] if place else None
        after = pauses.known[place + 1] if place + 1 < len(pauses.known) else None
        if not one.settled:
            written.settle(before, one, after)
        if one.cause in (None, "workers") and saved(view, one):
            one.cause = "save"


def saved(view: View, one: Pause) -> bool:
    """Whether a checkpoint was written in a pause: a lot, and far more than is written all the time anyway."""
    if one.between is None or one.written < view.limit("checkpoint-stall.written_bytes"):
        return False
    usual = one.between * one.length_s
    return one.written + usual >= view.limit("checkpoint-stall.burst") * usual


def _saves(view: View, pauses: Pauses, long: Sequence[Pause]) -> Saves | None:
    """Those that recur: two are enough, as what was written speaks for itself, and more must come evenly."""
    saves = [one for one in long if one.cause == "save" and one.settled][-_LATEST:]
    if len(saves) < view.limit("saves"):
        return None
    every_s = mean(after.start_s - before.start_s for before, after in pairwise(saves))
    usual_s = median(one.length_s for one in saves)
    others = [
        one
        for one in long
        if one.cause is None
        and one.start_s >= saves[0].start_s
        and usual_s / _ALIKE <= one.length_s <= usual_s * _ALIKE
    ]
    if len(saves) < view.limit("share") * (len(saves) + len(others)):
        return None  # it pauses for another reason, and writes meanwhile by chance
    if view.frame.mono_s - saves[-1].start_s > view.limit("missed") * every_s:
        return None
    idle_s, early = mean(one.saving_s for one in saves), len(saves) <= view.limit("saves")
    share = min(1.0, idle_s / every_s)
    if early:  # how often they come is not sure yet: what they took of all that was seen is
        share = min(share, sum(one.saving_s for one in saves) / pauses.watched_s(view.limit("window_s")))
    elif not _regular(view, saves):
        return None
    return Saves(saves, every_s, idle_s, share) if view.above(share, "least_share") else None


def _regular(view: View, pauses: Sequence[Pause]) -> bool:
    """Whether they come at even distances."""
    gaps = [after.start_s - before.start_s for before, after in pairwise(pauses)]
    return view.below(pstdev(gaps) / mean(gaps), "variation")


def _severity(view: View, share: float) -> Severity:
    if share >= view.limit("engine.lost_crit"):
        return "crit"
    return "warn" if share >= view.limit("warn_share") else "info"


def _found(view: View, trainer: Trainer, saves: Saves) -> Finding:
    bytes_each = median(one.written for one in saves.pauses)
    times, early = len(saves.pauses), len(saves.pauses) <= view.limit("saves")
    unseen = any(hidden(one) for one in view.mates(trainer))
    limit = view.limit("warn_share")
    return view.found(
        trainer,
        _severity(view, saves.share),
        f"stops for {_seconds(saves.idle_s)} every {ago(round(saves.every_s))} to write a checkpoint",
        evidence=(
            Evidence(
                text=f"GPU idle {_seconds(saves.idle_s)} for each save: {100 * saves.share:.1f} % of GPU time lost"
                f" (tolerable < {100 * limit:.0f} %)",
                value=100 * saves.share,
                unit="%",
                limit=100 * limit,
            ),
            Evidence(
                text=f"{size(bytes_each)} written each time, {moved(bytes_each / max(saves.idle_s, 0.1))}"
                f" (a checkpoint ≥ {size(view.limit('written_bytes'))})",
                value=bytes_each,
                unit="B",
                limit=view.limit("written_bytes"),
            ),
            Evidence(
                text=f"{times} saves seen{': how often they come is not certain yet' if early else ''}",
                value=float(times),
                limit=view.limit("saves"),
            ),
        ),
        steps=tuple(_steps(saves)),
        confidence=view.confidence(0.65 if early else 0.8, None if unseen else 1.0),
        lost_share=saves.share,
    )


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 9.95 else ago(round(seconds))


def _steps(saves: Saves) -> Iterator[Step]:
    if saves.share > _COST:
        rare_s = saves.idle_s / _COST
        yield Step(
            text=f"Save less often: every {ago(round(rare_s))} instead of every {ago(round(saves.every_s))} costs 1 %"
        )
    yield Step(text="Keep optimizer state only in the checkpoints to resume from, not in each one")
    yield Step(
        text='Write in the background from a copy in host memory (needs init_process_group("cpu:gloo,cuda:nccl"))',
        command="torch.distributed.checkpoint.async_save(state, checkpoint_id=PATH)",
    )
    yield Step(text="Write to a local NVMe disk first, then copy to shared storage in the background")
    yield Step(
        text="With several ranks, let each write its shard (torch.distributed.checkpoint), not rank 0 everything"
    )
