"""A rule about loaders that are started anew for every epoch."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from gputop import units
from gputop.diagnose.finding import Evidence, Finding, Step
from gputop.diagnose.rule import Level, rule
from gputop.diagnose.starved import shared
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.view import View
from gputop.model import Identity
from gputop.words import amount

_BEFORE_S, _AFTER_S = 1.0, 10.0  # of a restart: the seconds around it that it may have cost, too
_KNOWN_S = 5.0  # of time between restarts, to know how busy the GPU is then
_KEPT = 32
_LOOKS = 2.2  # one that falls into the change lies between the last of the old and the first of the new; uneven ones


@dataclass(slots=True)
class Restarts:
    """What is remembered of one trainer's loaders."""

    team: frozenset[Identity] = frozenset()
    since_s: float = 0.0  # when it was seen first
    seen_s: float = 0.0  # when all of the team were there last
    between: frozenset[Identity] = frozenset()  # others that came since then
    pending: tuple[float, float] | None = None  # a restart that is not weighed yet: from when until when
    last_s: float | None = None  # the end of the one before it
    cost: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=_KEPT))  # (when, seconds lost)

    def look(self, here: frozenset[Identity], now_s: float, within_s: float) -> tuple[float, float] | None:
        """From when until when a team has been replaced by another of the same size, where it just has."""
        if self.team and self.team <= here:  # another loader, of an evaluation, may come and go beside them
            if now_s - self.since_s <= within_s:
                self.team = here  # it was still growing
            self.seen_s, self.between = now_s, frozenset()
            return None
        if not self.team or now_s - self.seen_s > within_s:
            self._begin(here, now_s)
            return None
        self.between |= here - self.team
        if len(here) != len(self.team) or here & self.team:
            return None
        # had others come and gone meanwhile, it was an evaluation with loaders of its own
        again = (self.seen_s, now_s) if self.between <= here else None
        self._begin(here, now_s)
        return again

    def _begin(self, team: frozenset[Identity], now_s: float) -> None:
        self.team, self.since_s, self.seen_s, self.between = team, now_s, now_s, frozenset()


@rule(
    "worker-respawn",
    "Are loaders started anew for every epoch?",
    level=Level.STARVED,
    state="restarts",
    short="WAIT",
    number="R48",
    rows=(45,),
    needs=("busy_percent",),
    lasting=True,
)
def worker_respawn(view: View) -> Iterator[Finding]:
    """All of them vanish and as many others come, again and again, and the GPU waits for them each time."""
    for trainer in view.trainers():
        notes = view.notes(trainer)
        restarts: Restarts = notes.get("restarts") or notes.setdefault("restarts", Restarts())
        if not trainer.loaders and not restarts.team:
            continue
        now_s = view.frame.mono_s
        again = restarts.look(trainer.team, now_s, view.limit("within_s") + _LOOKS * view.stands_for_s)
        pending = restarts.pending
        if pending is not None and (again or now_s - pending[1] >= _AFTER_S):
            _weigh(view, trainer, restarts, pending, again[0] if again else now_s)
        restarts.pending = again or restarts.pending
        if restarts.last_s is None or not view.knows(trainer, "duty"):
            continue
        if len(restarts.cost) >= view.limit("times") and not shared(view, trainer):
            yield from _again(view, trainer, restarts)


def _weigh(view: View, trainer: Trainer, restarts: Restarts, restart: tuple[float, float], until_s: float) -> None:
    """The seconds of GPU time that a restart cost: what the GPU was less busy around it than between restarts."""
    (from_s, at_s), before_s, now_s = restart, restarts.last_s, view.frame.mono_s
    restarts.last_s, restarts.pending = at_s, None
    since_s = 60.0 if before_s is None else min(60.0, now_s - before_s)
    values = view.history.values(trainer.key, "busy_percent", since_s)
    values = values[: len(values) - round(now_s - until_s)]  # the next one has begun since
    count = min(len(values), round(until_s - from_s + _BEFORE_S))
    near = [value for value in values[len(values) - count :] if value is not None]
    settled = 0 if before_s is None else round(_AFTER_S)
    rest = [value for value in values[settled : len(values) - count] if value is not None]
    usual = sum(rest) / len(rest) if len(rest) >= _KNOWN_S else trainer.shape.high if trainer.shape else 100.0
    written = view.history.values(trainer.identity, "write_bytes_per_s", now_s - from_s + _BEFORE_S)
    if not near or not usual or sum(value or 0.0 for value in written) >= view.limit("written_bytes"):
        return  # a checkpoint, which is another rule's subject; what goes to new loaders is not for storage
    restarts.cost.append((at_s, max(0.0, sum(1 - value / usual for value in near))))


def _again(view: View, trainer: Trainer, restarts: Restarts) -> Iterator[Finding]:
    times = [at_s for at_s, _ in restarts.cost]
    every_s = (times[-1] - times[0]) / (len(times) - 1)
    cost_s = sum(seconds for _, seconds in restarts.cost) / len(times)
    if view.frame.mono_s - times[-1] > view.limit("late") * every_s or not view.above(cost_s, "cost_s"):
        return
    lost = min(1.0, cost_s / every_s)
    yield view.found(
        trainer,
        "warn" if lost >= view.limit("lost") else "info",
        "starts its loaders anew again and again: every epoch, or for an evaluation",
        evidence=(
            Evidence(
                text=f"{amount(len(restarts.team), 'loader')} replaced {len(times)} times,"
                f" every {units.ago(round(every_s))}",
                value=float(len(times)),
                limit=view.limit("times"),
            ),
            Evidence(
                text=f"the GPU loses {cost_s:.1f} s each time ({100 * lost:.0f} %)",
                value=100 * lost,
                unit="%",
                limit=100 * view.limit("lost"),
            ),
        ),
        steps=(
            Step(text="keep them for the next epoch", command="DataLoader(..., persistent_workers=True)"),
            Step(text="open large files and indexes in the loaders lazily: what is pickled to them is sent each time"),
        ),
        confidence=0.9 if every_s > _BEFORE_S + view.stands_for_s + _AFTER_S + _KNOWN_S else 0.75,
        lost_share=lost,
    )
