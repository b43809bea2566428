"""What each trainer of an experiment has of the CPUs, counted as the rules count it in `diagnose.room`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from gputop.declare import record
from gputop.diagnose.experiments.loads import Load, Past, mean
from gputop.diagnose.limits import Limits
from gputop.diagnose.room import affinity, idle_of, least_idle, least_share, meet, shares_quota
from gputop.diagnose.starved import at_work
from gputop.diagnose.tree import key
from gputop.model import Frame, Process


@record(frozen=True, slots=True, kw_only=True)
class Own:
    """For one trainer where all of them get as many."""

    cpus: float
    idle: float | None  # those that nobody uses
    alone: bool  # nobody else has them
    crowded: bool  # with more loaders than CPUs: those of its experiment, or of all together


@record(frozen=True, slots=True, kw_only=True)
class _Seat:
    process: Process
    load: Load
    duty: float | None
    touched: float | None  # share of looks at which its GPUs had done some work
    cores: float


@record(frozen=True, slots=True, kw_only=True)
class _Scene:
    cpus: int | None  # of the machine
    free: float | None  # of these, in nobody's use
    working: Sequence[_Seat]  # all that do not rest
    programs: int
    fed: float  # how busy a GPU is that waits for nothing, 0-1
    loaders: int  # of all experiments, where there are several


def owned(frame: Frame, past: Past, limits: Limits, loads: Sequence[Load], programs: int) -> list[tuple[Load, Own]]:
    """Of each experiment that does not rest, what the trainer with the fewest CPUs has.

    `programs`: others for whom as many are left as for a trainer.
    """
    seats = [_seat(past, load, one) for load in loads for one in load.trainers]
    scene = _Scene(
        cpus=frame.host.cpus_total,
        free=idle_of(frame.host.cpus_total, mean(past, "host", "cpu_percent")),
        working=[seat for seat in seats if seat.duty is None or _works(seat, limits["starved"])],
        programs=programs,
        fed=limits["gpu-bound-healthy"]["busy_percent"] / 100,
        loaders=sum(load.loaders for load in loads) if len(loads) > 1 else 0,
    )
    found = []
    for load in loads:
        each = [_own(scene, seat) for seat in scene.working if seat.load is load]
        if each:
            found.append((load, min(each, key=lambda own: own.cpus)))
    return found


def _seat(past: Past, load: Load, process: Process) -> _Seat:
    about = key(process.identity)
    busy, cores = mean(past, about, "busy_percent"), mean(past, about, "cores")
    duty, touched = None if busy is None else busy / 100, mean(past, about, "worked")
    return _Seat(process=process, load=load, duty=duty, touched=touched, cores=cores or 0.0)


def _works(seat: _Seat, table: Mapping[str, float]) -> bool:
    return at_work(seat.duty, seat.touched, seat.load.loaders, seat.cores, table.__getitem__)


def _own(scene: _Scene, seat: _Seat) -> Own:
    here, allowed = affinity(seat.process), seat.process.allowed_cpus
    beside = [one for one in scene.working if one is seat or meet(here, affinity(one.process))]
    sharers = [one for one in beside if shares_quota(seat.process, one.process, one.load is seat.load)]
    total, all_beside = len(here) or scene.cpus, len(beside) + scene.programs
    left = (allowed or math.inf) - sum(one.cores for one in sharers)
    rivals, waiting = (sum(one is seat or (one.duty or 0.0) < scene.fed for one in some) for some in (beside, sharers))
    many = seat.load.loaders > math.ceil(seat.load.allowed) if seat.load.allowed else False
    return Own(
        cpus=least_share(allowed or total or 1.0, len(sharers), total, all_beside),
        idle=None if scene.free is None else least_idle(scene.free, rivals, left, waiting),
        alone=all_beside == 1,
        crowded=many or scene.loaders > (scene.cpus or math.inf),
    )
