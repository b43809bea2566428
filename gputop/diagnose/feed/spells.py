"""Whether a trainer works on the CPU for many seconds, then on its GPU, and so on: as who learns by playing does."""

from __future__ import annotations

from itertools import pairwise
from statistics import mean, pstdev
from typing import NamedTuple

from gputop.diagnose.pauses import Pause
from gputop.diagnose.starved import lone, shared
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.usage.programs import notebook, plays_a_part, serves
from gputop.diagnose.view import View, past_seconds

_TABLE = "loader-in-main"


class Spells(NamedTuple):
    """How long its GPU has no work, how often, how many times that was seen, and how busy its main thread was then."""

    length_s: float
    every_s: float
    times: int
    main: float

    @property
    def share(self) -> float:
        """The share of the GPU's time that is lost so."""
        return min(1.0, self.length_s / self.every_s)


def spells(view: View, trainer: Trainer) -> Spells | None:
    """Those of a trainer without loaders, alone on its GPU; None where there are too few, or they are explained.

    Shorter shares of its time may be an evaluation, which is another rule's subject.
    """
    if trainer.loaders or trainer.compiling or not lone(trainer) or shared(view, trainer):
        return None
    if serves(trainer) or notebook(trainer) or plays_a_part(trainer):
        return None
    long = [one for one in view.pauses(trainer).lately(view.limit(f"{_TABLE}.spells_s")) if _long(view, one)]
    if len(long) < view.limit(f"{_TABLE}.spells"):
        return None
    every_s = mean(after.start_s - before.start_s for before, after in pairwise(long))
    ended = [one.length_s for one in long if one.ended]
    found = Spells(mean(ended), every_s, len(long), mean(_main(view, trainer, one) for one in long))
    over = view.frame.mono_s - long[-1].end_s > view.limit("evaluation-phase.missed") * every_s
    alike = pstdev(ended) <= view.limit("evaluation-phase.lengths") * found.length_s
    much = found.share > view.limit("evaluation-phase.share") and found.main >= view.limit(f"{_TABLE}.main")
    return found if alike and much and not over else None


def _long(view: View, pause: Pause) -> bool:
    """Whether one takes seconds, and no checkpoint and no start of loaders is why."""
    written = pause.written >= view.limit("checkpoint-stall.written_bytes")
    return pause.length_s >= view.limit(f"{_TABLE}.spell_s") and pause.cause is None and not written


def _main(view: View, trainer: Trainer, pause: Pause) -> float:
    """Cores that its main thread used in one."""
    seconds = past_seconds(view, trainer.key, "main", pause.start_s, pause.length_s)
    return mean(known) if (known := [value for value in seconds if value is not None]) else 0.0
