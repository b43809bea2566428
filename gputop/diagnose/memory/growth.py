"""Memory that grows and does not stop: the leak test over minutes to hours, of a few trainers a tick."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gputop.diagnose.estimate import leak
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.view import View
from gputop.history import COARSE_S

SHORT_S, LONG_S = (300.0, 900.0), (3600.0, 14_400.0)
_EVERY_S, _LONG_EVERY_S = 15.0, 120.0  # a mean of 15 s is what is kept for hours
_A_TICK = 2  # trainers that are tested
_PERSISTS = 0.1  # of the window: growth that has just ended passes the test for about as long
_FAIR = 0.5  # of its share, that the first third and the last sixth have grown: else it began or ended within


@dataclass(frozen=True, slots=True)
class Growth:
    """A leak: over what time it was seen, its rate, and what each third of that time added, in bytes."""

    window_s: float
    per_s: float
    thirds: tuple[float, float, float]

    @property
    def total(self) -> float:
        """Bytes."""
        return sum(self.thirds)


def watch(view: View, metric: str, capacity: Callable[[Trainer], float | None]) -> None:
    """Test those whose turn it is: of a metric of `Tree`, against what there is in all (bytes)."""
    now_s = view.frame.mono_s
    turns = [(view.notes(trainer).get("next_s", now_s), trainer) for trainer in view.vectors() if trainer.gpus]
    due = sorted((turn for turn in turns if turn[0] <= now_s), key=lambda turn: turn[0])
    for _, trainer in due[:_A_TICK]:
        notes, most = view.notes(trainer), capacity(trainer)
        notes["next_s"] = now_s + _EVERY_S
        if most is not None:
            _test(view, trainer, metric, most, notes)


def grown(view: View, trainer: Trainer) -> Growth | None:
    """The leak that was found last, once it has gone on for long enough."""
    notes = view.notes(trainer)
    for window_s, (since_s, growth) in sorted(notes.get("leaks", {}).items(), reverse=True):
        if view.frame.mono_s - since_s >= _PERSISTS * window_s:
            found: Growth = growth
            return found
    return None


def change(values: Sequence[float | None]) -> float | None:
    """From the first to the last that is known."""
    known = [value for value in values if value is not None]
    return known[-1] - known[0] if len(known) > 1 else None


def _test(view: View, trainer: Trainer, metric: str, capacity: float, notes: dict[str, Any]) -> None:
    now_s, leaks = view.frame.mono_s, notes.setdefault("leaks", {})
    windows: tuple[float, ...] = SHORT_S
    if now_s >= notes.get("long_s", now_s):
        notes["long_s"], windows = now_s + _LONG_EVERY_S, SHORT_S + LONG_S
    values = view.past(trainer, metric, windows[-1])
    for window_s in windows:
        growth = _leak(values[-round(window_s / COARSE_S) :], window_s, capacity) if _old(view, trainer) else None
        if growth is None:
            leaks.pop(window_s, None)
        else:
            leaks[window_s] = leaks[window_s][0] if window_s in leaks else now_s, growth


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
    return Growth(window_s, found.per_s, found.thirds) if sixth is not None and sixth >= _FAIR * fair else None
