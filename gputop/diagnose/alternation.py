"""Detect a main thread that alternates with its GPU: the GPU waits for the work of that thread.

A main thread that waits for its GPU spins, or sleeps if it synchronizes with blocking calls. If it sleeps, the core it
uses and the GPU's busy share add up to 100 %. That may be a coincidence, so every other cause of the wait must be
excluded.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from gputop.diagnose.finding import Evidence
from gputop.diagnose.starvation import is_oversubscribed, waits_for_cpu
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.view import View
from gputop.diagnose.wchan import Wait, sleeping_threads

_TABLE = "alternation"
_WINDOW_S = 30.0
_LEAST = 8  # value pairs needed for a correlation


def alternates(view: View, trainer: Trainer) -> bool:
    """Whether the main thread works while its GPU is idle, for nearly all of that time, and sleeps while it is busy."""
    main, duty = trainer.main, trainer.duty
    if main is None or duty is None or trainer.loaders or trainer.peers:
        return False
    if trainer.duty_by is not None and trainer.duty_by.lower_bound:
        return False  # the GPU may be busier than the substitute says
    if not view.above(main + duty, f"{_TABLE}.least") or not view.below(main + duty, f"{_TABLE}.most"):
        return False
    if main < view.limit(f"{_TABLE}.explains") * trainer.lost or not _only_main_thread_works(view, trainer):
        return False
    seen = _correlation(view, trainer)
    if seen is not None and seen >= view.limit(f"{_TABLE}.together"):
        return False  # both work at the same time, then both wait
    if is_oversubscribed(view, trainer) or waits_for_cpu(view, trainer) or _waits_for_io(view, trainer):
        return False
    apart = seen is not None and seen <= view.limit(f"{_TABLE}.apart")
    return apart or not _may_receive_data(view, trainer)


def evidence(view: View, trainer: Trainer) -> Evidence:
    """Main-thread share plus GPU share, against the range that means alternation."""
    main, duty = 100 * (trainer.main or 0.0), 100 * (trainer.duty or 0.0)
    least, most = 100 * view.limit(f"{_TABLE}.least"), 100 * view.limit(f"{_TABLE}.most")
    text = f"main thread {main:.0f} % of a core + GPU {duty:.0f} % = {main + duty:.0f} %"
    text += f", alternating at {least:.0f} % to {most:.0f} %"
    return Evidence(text=text, value=main + duty, unit="%", limit=least, sense="flagged_above")


def high_activity_while_busy(view: View, trainer: Trainer) -> bool:
    """Whether much of the chip works while its GPU is busy: a large kernel does not wait for the next launch.

    False if the GPU has no metric for it, as is `low_activity_while_busy`.
    """
    return _activity_while_busy(view, trainer) is True


def low_activity_while_busy(view: View, trainer: Trainer) -> bool:
    """Whether little of the chip works while its GPU is busy: small kernels, each of which waits for its launch."""
    return _activity_while_busy(view, trainer) is False


def _activity_while_busy(view: View, trainer: Trainer) -> bool | None:
    if not trainer.duty:
        return None
    if trainer.sm is not None:
        return trainer.sm / trainer.duty > view.limit(f"{_TABLE}.busy_sm")
    if trainer.power_share is not None:
        return trainer.power_share / trainer.duty > view.limit(f"{_TABLE}.busy_power_share")
    if trainer.memory_busy is not None:  # as on a vGPU
        return trainer.memory_busy / trainer.duty > view.limit(f"{_TABLE}.busy_memory")
    return None


def _only_main_thread_works(view: View, trainer: Trainer) -> bool:
    """Whether no other thread and no child process works for the trainer: the main thread might wait for those."""
    return trainer.cores is not None and trainer.cores - (trainer.main or 0.0) <= view.limit(f"{_TABLE}.others")


def _waits_for_io(view: View, trainer: Trainer) -> bool:
    """Whether the main thread is seen to wait for storage, a socket, a pipe or a child."""
    blocked = view.mean(trainer.process, "blocked_percent", _WINDOW_S)
    delayed = view.mean(trainer.process, "io_wait_percent", _WINDOW_S)
    if blocked is None and (view.mean("host", "io_pressure", _WINDOW_S) or 0.0) >= view.limit("starved.io_percent"):
        return True
    if max(blocked or 0.0, delayed or 0.0) >= 100 * view.limit("starved.blocked"):
        return True
    most = sleeping_threads(view, trainer).most_frequent(*Wait)
    return most is not None and most[1] >= view.limit(f"{_TABLE}.elsewhere")


def _may_receive_data(view: View, trainer: Trainer) -> bool:
    """Whether the trainer may receive data over the network.

    A spinning thread is as busy as its GPU, so half of the apparent alternation may be waiting. A thread that is seen
    to sleep does not spin, and a trainer that reads files has its data from those; otherwise little traffic is enough
    for doubt.
    """
    received = view.mean("host", "receive_bytes_per_s", _WINDOW_S) or 0.0
    work = (trainer.main or 0.0) - (trainer.duty or 0.0)  # the working share if the thread spins
    spins = (trainer.main or 0.0) >= view.limit(f"{_TABLE}.spins") * (trainer.duty or 0.0)
    reads = (trainer.input_rate or 0.0) >= view.limit("loader-in-main.read_bytes_per_s")
    doubt = spins and work < trainer.lost / 2 and not reads and not sleeping_threads(view, trainer).seen
    return received >= view.limit("starved.quiet_bytes_per_s" if doubt else "starved.receives_bytes_per_s")


def _correlation(view: View, trainer: Trainer) -> float | None:
    """Correlation of main-thread and GPU activity per second; None if either varies too little (short steps)."""
    seconds = max(1.0, min(_WINDOW_S, trainer.phase_s))
    main, busy = (view.history.values(trainer.key, name, seconds) for name in ("main", "busy_percent"))
    pairs = [(100 * one, other) for one, other in zip(main, busy, strict=True) if one is not None and other is not None]
    if len(pairs) < _LEAST:
        return None
    some, others = [first for first, _ in pairs], [second for _, second in pairs]
    one, other = _deviation(some), _deviation(others)
    if min(one, other) < view.limit(f"{_TABLE}.sigma"):
        return None
    means = sum(some) / len(some), sum(others) / len(others)
    together: float = sum((first - means[0]) * (second - means[1]) for first, second in pairs) / len(pairs)
    return together / (one * other)


def _deviation(values: Sequence[float]) -> float:
    mean = sum(values) / len(values)
    return math.sqrt(sum((value - mean) ** 2 for value in values) / len(values))
