"""A rule on evaluation: recurring phases of less or no GPU work, without a checkpoint."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, takewhile
from statistics import mean, pstdev
from typing import NamedTuple

from gputop import num_workers
from gputop.diagnose.cpu_budget import equal_share
from gputop.diagnose.finding import Evidence, Finding, Step
from gputop.diagnose.job_tree import key
from gputop.diagnose.program_kind import is_notebook, serves
from gputop.diagnose.rule import Level, rule
from gputop.diagnose.steps import stack
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.view import FINE_SPAN_S, View, past_seconds
from gputop.model import Identity
from gputop.units import ago_text

_MEAN_S = 5  # of so many seconds: steps are shorter, and so are most pauses
_DEEP, _BACK = 20.0, 10.0  # points below the usual level at which a dip begins, and at which it ends
_KNOWN_S = 30.0  # seconds needed to know the usual level
_USUAL_S = 300.0  # seconds that it averages
_LONGEST_S = 1800.0  # a longer dip is the new usual level
_UNKNOWN = 3  # consecutive seconds without samples: more is a gap, in which anything may have happened
_KEPT = 32


@dataclass(slots=True)
class UtilisationDip:
    """One interval of less work, in percent busy; `usual` is the level before it."""

    start_s: float
    usual: float
    end_s: float | None = None
    values: list[float] = field(default_factory=list)  # one per second

    @property
    def length_s(self) -> float:
        """Seconds it lasted; 0 while it lasts."""
        return 0.0 if self.end_s is None else self.end_s - self.start_s

    @property
    def busy(self) -> float:
        """GPU busy in it, percent."""
        return sum(self.values) / len(self.values) if self.values else 0.0


@dataclass(slots=True)
class Dips:
    """All remembered dips of a trainer, newest last."""

    least_s: float  # shorter ones are pauses
    followed_s: float | None = None  # tracked up to
    known: deque[UtilisationDip] = field(default_factory=lambda: deque(maxlen=_KEPT))
    open: UtilisationDip | None = None  # the ongoing one
    turned_s: float = 0.0  # when the last one began or ended
    usual: float | None = None
    usual_s: float = 0.0
    _last: deque[float] = field(default_factory=lambda: deque(maxlen=_MEAN_S))
    _unknown: int = 0  # consecutive seconds

    def follow(self, first_s: float, busy: Iterable[float | None]) -> UtilisationDip | None:
        """Take in consecutive seconds (None: unknown); return the dip that ended in them."""
        ended = None
        for place, percent in enumerate(busy):
            self.followed_s = first_s + place
            if percent is not None:
                self._unknown = 0
            else:
                self._unknown += 1
                if self._unknown > _UNKNOWN:
                    self._last.clear()
                    self.open = None  # its end is unknown
                if not self._last:
                    continue
                percent = self._last[-1]
            ended = self._second(first_s + place, percent) or ended
        return ended

    def _second(self, now_s: float, percent: float) -> UtilisationDip | None:
        leaves = self._last[0] if len(self._last) == _MEAN_S else None
        self._last.append(percent)
        if self.open is not None and now_s - self.open.start_s > _LONGEST_S:
            self.open, self.usual, self.usual_s = None, None, 0.0
            self.known.clear()
        if len(self._last) < _MEAN_S:
            return None
        mean = sum(self._last) / len(self._last)
        if self.open is None:
            if self.usual is None or self.usual_s < _KNOWN_S or mean > self.usual - _DEEP:
                self._learn(leaves)
                return None
            low = next(place for place, value in enumerate(self._last) if value < self.usual - _BACK)
            self.turned_s = now_s - len(self._last) + 1 + low
            self.open = UtilisationDip(self.turned_s, self.usual, values=[*self._last][low:])
            return None
        one = self.open
        one.values.append(percent)
        if mean < one.usual - _BACK:
            return None
        back = len([*takewhile(lambda value: value >= one.usual - _BACK, reversed(self._last))])
        del one.values[len(one.values) - back :]
        self.open, one.end_s = None, now_s - back + 1
        self.turned_s = one.end_s
        if one.length_s < self.least_s:
            return None
        self.known.append(one)
        return one

    def _learn(self, percent: float | None) -> None:
        """Update the usual level with a value that is certainly no dip."""
        if percent is None:
            return
        self.usual_s = min(self.usual_s + 1, _USUAL_S)
        usual = percent if self.usual is None else self.usual
        self.usual = usual + (percent - usual) / self.usual_s


_SHORT_OF = ("loader_blocked", "loader_wait", "run_wait", "throttled")  # means over its tree: storage and CPUs
_BYTES = ("write_bytes_per_s", "write_chars_per_s", "read_chars_per_s")


class DipContext(NamedTuple):
    """One dip, and what the trainer and its job did in it."""

    dip: UtilisationDip
    written: float  # bytes
    others: bool  # a different set of loaders worked in it
    short_of: bool  # CPUs or storage: a dip with that is not a different kind of work


@rule(
    "evaluation-phase",
    "Does a training run evaluate periodically?",
    level=Level.BESIDE,
    state="evaluates",
    short="EVAL",
    needs=("busy_percent",),
    lasting=True,
    first=True,
)
def evaluation_phase(view: View) -> Iterator[Finding]:
    """Periodic drops of GPU utilization, as for checkpoints, but with a different kind of work during them.

    During such a phase no rule judges the trainer.
    """
    for trainer in view.trainers():
        if trainer.peers or is_notebook(trainer) or serves(trainer):
            view.notes(trainer).clear()  # others contribute to GPU busy
            continue
        view.knows(trainer, "duty")
        notes = view.notes(trainer)
        dips: Dips = notes.get("dips") or notes.setdefault("dips", Dips(view.limit("least_s")))
        around: list[DipContext] = notes.setdefault("around", [])
        teams: list[tuple[float, frozenset[Identity]]] = notes.setdefault("teams", [])
        _note_team(teams, view.frame.mono_s, trainer)
        around += [_dip_context(view, trainer, ended, teams) for ended in _ended_dips(view, trainer, dips)]
        del around[: -int(view.limit("kept"))]
        phases = _phases(view, trainer, around)
        inside = dips.open is not None and _is_expected(view, phases, dips.open)
        if inside or notes.get("inside"):
            view.evaluating.add(trainer.identity)
        if inside != bool(notes.get("inside")):
            view.begin(trainer, dips.turned_s)
        notes["inside"] = inside
        if phases:
            yield _finding(view, trainer, phases)


def _note_team(teams: list[tuple[float, frozenset[Identity]]], now_s: float, trainer: Trainer) -> None:
    """Record a change of the loaders, with its time."""
    if not teams or teams[-1][1] != trainer.team:
        teams.append((now_s, trainer.team))
        del teams[:-8]


def _ended_dips(view: View, trainer: Trainer, dips: Dips) -> Iterator[UtilisationDip]:
    """The dips that ended since the last evaluation."""
    now_s = math.floor(view.frame.mono_s)
    new = int(min(FINE_SPAN_S, now_s - dips.followed_s if dips.followed_s is not None else trainer.context_s or 0.0))
    if new > 0:
        busy = view.history.values(trainer.key, "busy_percent", new)
        ended = dips.follow(now_s - new + 1, busy)
        if ended is not None:
            yield ended


def _dip_context(
    view: View, trainer: Trainer, dip: UtilisationDip, teams: Sequence[tuple[float, frozenset[Identity]]]
) -> DipContext:
    def inside(about: str, metric: str) -> list[float]:
        return [value or 0.0 for value in past_seconds(view, about, metric, dip.start_s, dip.length_s)]

    hidden = trainer.write_chars is None  # other processes' writes are visible to their user: then this is all of them
    written = sum(inside("host", "write_bytes_per_s")) if hidden else 0.0
    for one in () if hidden else trainer.job.ranks if trainer.job is not None else (trainer.identity,):
        stored, chars, read = (inside(key(one), name) for name in _BYTES)
        # storage writes, or writes beyond what its processes may have read from each other
        written += sum(max(kept, wrote - got) for kept, wrote, got in zip(stored, chars, read, strict=True))
    before = [team for when, team in teams if when < dip.start_s]
    during = [team for when, team in teams if dip.start_s <= when < (dip.end_s or math.inf)]
    old = before[-1] if before else frozenset()
    others = any(team - old for team in during)
    short = any(mean(inside(trainer.key, name)) >= view.limit(name) for name in _SHORT_OF)
    return DipContext(dip, written, others, short)


def _phases(view: View, trainer: Trainer, around: Sequence[DipContext]) -> list[DipContext]:
    """The newest dips if they look like evaluations; empty if they do not, or if evaluation has ended."""
    since_s = view.frame.mono_s - view.limit("window_s")
    found = [
        one
        for one in around
        if one.dip.start_s >= since_s
        and one.written < view.limit("checkpoint-stall.written_bytes")
        and (one.dip.busy >= view.limit("busy_percent") or not _is_explained(view, trainer, one.dip))
        and not one.short_of
    ]
    if len(found) < view.limit("times") or 2 * len(found) <= len(around):
        return []
    gaps = [after.dip.start_s - before.dip.start_s for before, after in pairwise(found)]
    lengths = [one.dip.length_s for one in found]
    even = pstdev(gaps) <= view.limit("variation") * mean(gaps)
    alike = pstdev(lengths) <= view.limit("lengths") * mean(lengths)
    share = view.limit("others_share" if all(one.others for one in found) else "share")
    short = mean(lengths) <= share * mean(gaps) and min(gaps) >= view.limit("every_s")
    over = view.frame.mono_s - found[-1].dip.start_s > view.limit("missed") * mean(gaps)
    return found if even and alike and short and not over else []


def _is_explained(view: View, trainer: Trainer, dip: UtilisationDip) -> bool:
    """Whether a rule explains the idle GPUs: a checkpoint, or starting workers."""
    pauses = view.pauses(trainer).since(dip.start_s)
    return any(one.cause is not None and one.start_s < (dip.end_s or math.inf) for one in pauses)


def _is_expected(view: View, phases: Sequence[DipContext], dip: UtilisationDip) -> bool:
    """Whether an ongoing dip is the next of these: at their interval, and no longer than they are."""
    if not phases:
        return False
    gap_s = mean(after.dip.start_s - before.dip.start_s for before, after in pairwise(phases))
    since_s = dip.start_s - phases[-1].dip.start_s
    longest_s = view.limit("longer") * mean(one.dip.length_s for one in phases)
    return since_s >= gap_s / 2 and view.frame.mono_s - dip.start_s <= longest_s


def _worker_steps(view: View, trainer: Trainer) -> Iterator[Step]:
    """More loaders for evaluation: the training loaders are idle, so CPUs are free."""
    if wanted := num_workers.initial(equal_share(view, trainer)):
        command = f"DataLoader(val, num_workers={wanted}, persistent_workers=True)"
        yield Step(text="Use persistent workers for the validation DataLoader", command=command)


def _finding(view: View, trainer: Trainer, phases: Sequence[DipContext]) -> Finding:
    every_s = mean(after.dip.start_s - before.dip.start_s for before, after in pairwise(phases))
    length_s, busy = mean(one.dip.length_s for one in phases), mean(one.dip.busy for one in phases)
    usual, share = mean(one.dip.usual for one in phases), length_s / every_s
    loaders = all(one.others for one in phases)
    evidence = [
        Evidence(
            text=f"GPU busy {busy:.0f} % in these phases (training {usual:.0f} %)",
            value=busy,
            unit="%",
            limit=usual,
            sense="healthy_from",
        ),
        Evidence(
            text=f"{len(phases)} phases, {100 * share:.0f} % of the time; no checkpoint written in them",
            value=float(len(phases)),
            limit=view.limit("times"),
            sense="flagged_from",
        ),
    ]
    if loaders:
        evidence.append(Evidence(text="other DataLoader workers run during these phases"))
    times = f"{ago_text(round(length_s))} every {ago_text(round(every_s))}"
    still = busy < view.limit("busy_percent")  # evaluation on the CPU or other work: its GPU waits
    severity = (view.by_share(share) or "info") if still else "info"
    return view.found(
        trainer,
        "warn" if severity == "crit" else severity,
        f"periodic GPU idle phases, {times}" if still else f"periodic evaluation, {times}",
        evidence=tuple(evidence),
        steps=tuple(_offload_steps(view, trainer, share) if still else _cheaper_steps(view, trainer, share)),
        confidence=view.confidence(0.8 if loaders and not still else 0.6),
        lost_share=share if still else None,
    )


def _cheaper_steps(view: View, trainer: Trainer, share: float) -> Iterator[Step]:
    yield stack(view, trainer.process, "Confirm with a stack dump during the next phase")
    yield Step(text="Raise the evaluation batch size: without gradients more fits into device memory")
    yield from _worker_steps(view, trainer)
    yield Step(text=f"Evaluate less often or on a subset: it takes {100 * share:.0f} % of run time")


def _offload_steps(view: View, trainer: Trainer, share: float) -> Iterator[Step]:
    yield stack(view, trainer.process, "Dump the stack during the next phase")
    yield Step(text="Check the usual causes: evaluation or metrics on the CPU, dataset reshuffling, image logging")
    yield Step(
        text=f"Run it less often, on the GPU, or in a separate process: it takes {100 * share:.0f} % of run time"
    )
