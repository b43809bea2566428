"""Since when nothing of a job moves: from the history, as means over half a minute tell that half a minute late."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gputop.diagnose.efficiency.chip import capacity
from gputop.diagnose.ranks.team import Team, blocked
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.usage.programs import plays_a_part
from gputop.diagnose.view import View
from gputop.history import FINE_S, FINE_SLOTS
from gputop.model import Gpu

_TABLE = "collective-wait"
DRAM_TOP = 0.8  # of the memory bandwidth is reached in practice [DCGM]
PIPES = ("tensor_percent", "fp32_percent", "fp64_percent")
_MEANS_S = 30.0  # over which a heartbeat or a line of a log is no movement
_OF_RANK = ("read_chars_per_s", "write_chars_per_s", "read_bytes_per_s")
BACK_S = FINE_S * FINE_SLOTS  # as far as the history keeps seconds
_OF_HOST = ("write_bytes_per_s", "receive_bytes_per_s", "send_bytes_per_s")


def waits_s(view: View, gpu: Gpu, effort: str, usual: float | None) -> float:
    """Seconds since a GPU computed or sent; since it was seen first, where it never did.

    `effort`: a metric that shows how much it does, of which `usual` is at work, where that is known.
    """
    rests, sent = view.limit(f"{_TABLE}.pipe_percent"), view.limit(f"{_TABLE}.sent")
    bounds = [(pipe, rests) for pipe in PIPES]
    bounds.append(("dram_percent", DRAM_TOP * view.limit(f"{_TABLE}.dram_percent")))
    for name, top in (("nvlink", gpu.nvlink_max_bytes_per_s), ("pcie", capacity(gpu))):
        bounds += [(f"{name}_{way}_bytes_per_s", sent * top) for way in ("tx", "rx") if top]
    if usual is not None:
        bounds.append((effort, view.limit(f"{_TABLE}.usual") * usual))
    moved = (_since_above(_seconds(view, gpu, name), bound) for name, bound in bounds)
    return min(_watched(_seconds(view, gpu, "busy_percent")), *moved)


def still_s(view: View, team: Team, late: Sequence[Trainer]) -> float:
    """For how long the others have done nothing, and nobody read or wrote, as far as it was watched."""
    return min((*_late_s(view, late), *_moved_s(view, team, late)), default=BACK_S)


def idle(view: View, one: Trainer) -> bool:
    """Whether a rank does nothing that shows: neither on its GPU, nor on a CPU but for what a stuck call costs."""
    return view.below(one.duty, f"{_TABLE}.idle") and (blocked(one) or view.below(one.cores, f"{_TABLE}.idle_cores"))


def quiet(view: View, team: Team, late: Sequence[Trainer]) -> bool:
    """Whether no rank reads or writes, nor the machine for them.

    Who syncs a file or closes it writes nothing itself: the kernel empties the page cache, to a disk or a server.
    """
    most, machine = view.limit(f"{_TABLE}.moved_bytes_per_s"), view.limit(f"{_TABLE}.machine_bytes_per_s")
    moved = [value for one in team.ranks for value in (one.read_chars, one.write_chars)]
    if not all(value is not None and value <= most for value in moved):
        return False
    if any(one.read_bytes is not None and one.read_bytes > most for one in team.ranks):
        return False  # files that it has mapped: no call reads them
    rates = [(view.mean("host", name), machine) for name in _OF_HOST]
    rates += [(view.mean(key, "write_bytes_per_s"), bound) for key, bound in _servers(view, late)]
    return all(rate is None or rate <= bound for rate, bound in rates)


def asks_a_server(view: View, team: Team) -> bool:
    """Whether a program that serves is at work on this machine: a rank that sleeps may wait for what it writes."""
    return any(
        plays_a_part(one) and one not in team.ranks and one.process.uid == team.ranks[0].process.uid
        and (one.duty or 0.0) > view.limit(f"{_TABLE}.idle")
        for one in view.vectors()
    )  # fmt: skip


def _servers(view: View, late: Sequence[Trainer]) -> Iterator[tuple[str, float]]:
    """Network mounts, to which a rank that is blocked in the kernel may write slowly: a full page cache, a close."""
    if any(map(blocked, late)):
        bound = view.limit(f"{_TABLE}.server_bytes_per_s")
        yield from ((f"mount {mount.path}", bound) for mount in view.frame.host.mounts if mount.network)


def _late_s(view: View, late: Sequence[Trainer]) -> Iterator[float]:
    for one in late:
        for gpu in one.gpus:
            busy = _seconds(view, gpu, "busy_percent")
            yield _since_above(busy, 100 * view.limit(f"{_TABLE}.idle"))
        if not blocked(one):
            yield _since_above(_seconds(view, one, "cores"), view.limit(f"{_TABLE}.idle_cores"))


def _moved_s(view: View, team: Team, late: Sequence[Trainer]) -> Iterator[float]:
    own, machine = view.limit(f"{_TABLE}.moved_bytes_per_s"), view.limit(f"{_TABLE}.machine_bytes_per_s")
    of = [(one.key, name, own) for one in team.ranks for name in _OF_RANK]
    of += [("host", name, machine) for name in _OF_HOST]
    of += [(key, "write_bytes_per_s", bound) for key, bound in _servers(view, late)]
    for key, name, bound in of:
        yield _since_more(_seconds(view, key, name), bound, _MEANS_S)


def _seconds(view: View, thing: Gpu | Trainer | str, metric: str) -> Sequence[float | None]:
    return view.window(thing, metric, BACK_S, whole=True).seconds


def _since_above(values: Sequence[float | None], bound: float) -> float:
    """Seconds since a value was above a bound, the newest value last."""
    for age, value in enumerate(reversed(values)):
        if value is not None and value > bound:
            return FINE_S * age
    return BACK_S


def _since_more(values: Sequence[float | None], bound: float, least_s: float) -> float:
    """Seconds since the mean was above a bound, over `least_s` or whatever more has passed: a moment alone counts
    little.
    """
    added = 0.0
    for age, value in enumerate(reversed(values)):
        added += value or 0.0
        if added > bound * max(least_s, age + 1.0):
            return FINE_S * age
    return BACK_S


def _watched(values: Sequence[float | None]) -> float:
    """Seconds since the first value that is known."""
    return FINE_S * next((len(values) - place for place, value in enumerate(values) if value is not None), 0)
