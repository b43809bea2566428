"""Memory that grows and does not stop: the leak test over minutes to hours, of one trainer a second."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from gputop.declare import record
from gputop.diagnose.estimate import leak
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.view import View
from gputop.history import COARSE_S
from gputop.model import Identity

SHORT_S, LONG_S = (300.0, 900.0), (3600.0, 14_400.0)
_EVERY_S, _LONG_EVERY_S = 15.0, 120.0  # a mean of 15 s is what is kept for hours
_PERSISTS = 0.1  # of the window: growth that has just ended passes the test for about as long
_FAIR = 0.5  # of its share, that the first third and the last sixth have grown: else it began or ended within


@record(frozen=True, slots=True)
class Growth:
    """A leak: over what time it was seen, its rate, and in bytes what each third added and the least that counts."""

    window_s: float
    per_s: float
    thirds: tuple[float, float, float]
    least: float

    @property
    def total(self) -> float:
        """Bytes."""
        return sum(self.thirds)


@dataclass(slots=True)
class _Watched:
    """One trainer: when it is tested next, and the leaks found in it, each since when, by their window."""

    next_s: float
    long_s: float
    leaks: dict[float, tuple[float, Growth]] = field(default_factory=dict)


def growing(view: View, metric: str, capacity: Callable[[Trainer], float | None]) -> Mapping[Identity, Growth]:
    """Trainers whose metric of `Tree` has leaked for long enough, against what there is of it in all (bytes).

    Tests those whose turn it is, the longest window that tells it counts.
    """
    now_s, notes = view.frame.mono_s, view.notes(view.frame.host)
    before: Mapping[Identity, _Watched] = notes.get("watched", {})
    trainers = [one for one in view.vectors() if one.gpus]
    watched = {one.identity: before.get(one.identity) or _Watched(now_s, now_s) for one in trainers}
    notes["watched"] = watched
    due = [one for one in trainers if watched[one.identity].next_s <= now_s]
    for trainer in sorted(due, key=lambda one: watched[one.identity].next_s)[: round(view.stands_for_s)]:
        watched[trainer.identity].next_s = now_s + _EVERY_S
        if (most := capacity(trainer)) is not None:
            _test(view, trainer, metric, most, watched[trainer.identity])
    return {identity: growth for identity, one in watched.items() if (growth := _lasting(one, now_s))}


def _lasting(one: _Watched, now_s: float) -> Growth | None:
    for window_s, (since_s, growth) in sorted(one.leaks.items(), reverse=True):
        if now_s - since_s >= _PERSISTS * window_s:
            return growth
    return None


def change(values: Sequence[float | None]) -> float | None:
    """From the first to the last that is known."""
    known = [value for value in values if value is not None]
    return known[-1] - known[0] if len(known) > 1 else None


def _test(view: View, trainer: Trainer, metric: str, capacity: float, one: _Watched) -> None:
    now_s = view.frame.mono_s
    windows: tuple[float, ...] = SHORT_S
    if now_s >= one.long_s:
        one.long_s, windows = now_s + _LONG_EVERY_S, SHORT_S + LONG_S
    values = view.past(trainer, metric, windows[-1])
    for window_s in windows:
        growth = _leak(values[-round(window_s / COARSE_S) :], window_s, capacity) if _old(view, trainer) else None
        if growth is None:
            one.leaks.pop(window_s, None)
        else:
            one.leaks[window_s] = one.leaks[window_s][0] if window_s in one.leaks else now_s, growth


def _old(view: View, trainer: Trainer) -> bool:
    """Whether it is past its start, in which every program grows, and has worked unless nobody can tell."""
    started = trainer.warm or trainer.duty is None
    return started and (trainer.context_s or 0.0) >= view.limit("start_s")


def _leak(values: list[float | None], window_s: float, capacity: float) -> Growth | None:
    """The leak test, and that it leaks from the first third to now."""
    if values[-1] is None or len(values) * COARSE_S < window_s:
        return None
    found = leak(values, COARSE_S, capacity)
    if found is None or found.thirds[0] < _FAIR * found.thirds[1]:
        return None
    sixth = change(values[-len(values) // 6 - 1 :])
    fair = found.per_s * window_s / 6
    return Growth(window_s, *found) if sixth is not None and sixth >= _FAIR * fair else None
