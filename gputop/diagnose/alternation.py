"""Whether a main thread and its GPU work by turns: then that thread's work is what the GPU waits for.

A main thread that waits for its GPU spins, or sleeps where it synchronizes in a blocking way. One that sleeps uses as
much of a core as the GPU is idle. That may be chance, so nothing else may be there that the GPU could wait for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from gputop.diagnose.finding import Evidence
from gputop.diagnose.starvation import oversubscribed, waits_for_cpu
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.view import View
from gputop.diagnose.wchan import Wait, sleeping_threads

_TABLE = "alternation"
_WINDOW_S = 30.0
_LEAST = 8  # pairs of values that have a correlation


def by_turns(view: View, trainer: Trainer) -> bool:
    """Whether its main thread works while its GPU is idle, for nearly all of that time, and sleeps while it is busy."""
    main, duty = trainer.main, trainer.duty
    if main is None or duty is None or trainer.loaders or trainer.peers:
        return False
    if trainer.duty_by is not None and trainer.duty_by.lower_bound:
        return False  # its GPU may be busier than that
    if not view.above(main + duty, f"{_TABLE}.least") or not view.below(main + duty, f"{_TABLE}.most"):
        return False
    if main < view.limit(f"{_TABLE}.explains") * trainer.lost or not _alone(view, trainer):
        return False
    seen = _correlation(view, trainer)
    if seen is not None and seen >= view.limit(f"{_TABLE}.together"):
        return False  # both work, and then both wait
    if oversubscribed(view, trainer) or waits_for_cpu(view, trainer) or _sleeps_elsewhere(view, trainer):
        return False
    apart = seen is not None and seen <= view.limit(f"{_TABLE}.apart")
    return apart or not _may_receive(view, trainer)


def evidence(view: View, trainer: Trainer) -> Evidence:
    """The sum that says so."""
    main, duty = 100 * (trainer.main or 0.0), 100 * (trainer.duty or 0.0)
    least, most = 100 * view.limit(f"{_TABLE}.least"), 100 * view.limit(f"{_TABLE}.most")
    text = f"main thread {main:.0f} % of a core + GPU {duty:.0f} % = {main + duty:.0f} %"
    return Evidence(text=f"{text}: they alternate ({least:.0f}-{most:.0f} %)", value=main + duty, unit="%", limit=least)


def works_while_busy(view: View, trainer: Trainer) -> bool:
    """Whether much of the chip works while its GPU is busy: a large kernel does not wait for the next to be launched.

    Where the card does not tell it is not known to, nor is it known to do little.
    """
    return _while_busy(view, trainer) is True


def little_while_busy(view: View, trainer: Trainer) -> bool:
    """Whether little of it does: small kernels, each of which waits to be launched."""
    return _while_busy(view, trainer) is False


def _while_busy(view: View, trainer: Trainer) -> bool | None:
    if not trainer.duty:
        return None
    if trainer.sm is not None:
        return trainer.sm / trainer.duty > view.limit(f"{_TABLE}.busy_sm")
    if trainer.power_share is not None:
        return trainer.power_share / trainer.duty > view.limit(f"{_TABLE}.busy_power_share")
    if trainer.memory_busy is not None:  # as on a vGPU
        return trainer.memory_busy / trainer.duty > view.limit(f"{_TABLE}.busy_memory")
    return None


def _alone(view: View, trainer: Trainer) -> bool:
    """Whether no other thread and no child works for it: the main thread might wait for these."""
    return trainer.cores is not None and trainer.cores - (trainer.main or 0.0) <= view.limit(f"{_TABLE}.others")


def _sleeps_elsewhere(view: View, trainer: Trainer) -> bool:
    """Whether its main thread is seen to wait for storage, a socket, a pipe or a child."""
    blocked = view.mean(trainer.process, "blocked_percent", _WINDOW_S)
    delayed = view.mean(trainer.process, "io_wait_percent", _WINDOW_S)
    if blocked is None and (view.mean("host", "io_pressure", _WINDOW_S) or 0.0) >= view.limit("starved.io_percent"):
        return True
    if max(blocked or 0.0, delayed or 0.0) >= 100 * view.limit("starved.blocked"):
        return True
    most = sleeping_threads(view, trainer).most(*Wait)
    return most is not None and most[1] >= view.limit(f"{_TABLE}.elsewhere")


def _may_receive(view: View, trainer: Trainer) -> bool:
    """Whether data may come over the network meanwhile.

    A thread that spins is as busy as its GPU: then half of what seems to be turns may be waiting. That shows where it
    is seen to sleep, and who reads files has its data from these; else a little traffic is enough of a doubt.
    """
    received = view.mean("host", "receive_bytes_per_s", _WINDOW_S) or 0.0
    work = (trainer.main or 0.0) - (trainer.duty or 0.0)  # what is left of it if it spins
    spins = (trainer.main or 0.0) >= view.limit(f"{_TABLE}.spins") * (trainer.duty or 0.0)
    reads = (trainer.taken or 0.0) >= view.limit("loader-in-main.read_bytes_per_s")
    doubt = spins and work < trainer.lost / 2 and not reads and not sleeping_threads(view, trainer).seen
    return received >= view.limit("starved.quiet_bytes_per_s" if doubt else "starved.receives_bytes_per_s")


def _correlation(view: View, trainer: Trainer) -> float | None:
    """Of how busy both are in the same seconds; None where neither varies enough to tell, as with short steps."""
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
