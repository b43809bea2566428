"""A rule about a GPU that works as it should: it is the limit itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from gputop.diagnose.card import KEPT
from gputop.diagnose.efficiency.chip import at_work, dram_of_top, duty, tensor_of_top
from gputop.diagnose.finding import Evidence, Finding, Step
from gputop.diagnose.pauses import Pause, Pauses
from gputop.diagnose.rule import Level, rule
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.view import View
from gputop.units import ago

_LAST, _MISSED = 6, 3  # pauses that show how often they come; intervals without one, after which they are over
_RECUR = 2  # pauses
_LEAST_S = 60.0  # of which a share is told
_BIGGER = (
    Step(text="nothing is urgent; what is left to win: mixed precision if it is off, torch.compile, a larger batch"),
    Step(text="Scale out to more GPUs with DDP; batch size and num_workers are per rank: divide them or scale the LR"),
)


@rule(
    "gpu-bound-healthy",
    "Is the GPU itself the limit, as it should be?",
    level=Level.HEALTHY,
    state="healthy",
    short="OK",
    number="R08",
    rows=(3, 7, 22, 25, 35, 50),
    needs=("busy_percent", "sm_active_percent or power_watts or memory_busy_percent"),
    partly=("sm_clock_mhz",),
)
def gpu_bound_healthy(view: View) -> Iterator[Finding]:
    """Busy without gaps, and a second signal says that it gets something done."""
    for trainer in view.trainers():
        paused = view.pauses(trainer).now
        if paused is not None and paused.length_s >= view.limit("pause_s"):
            continue
        busy, sigma = _between(view, trainer)
        if not view.knows(trainer, "duty") or not (view.above(busy, "busy_percent") or _surely(view, trainer)):
            continue
        if sigma is not None and not view.below(sigma, "sigma"):
            continue
        cost = _cost(view, trainer)
        if any((one.value or 0.0) >= view.limit("paused_percent") for one in cost):
            continue  # it stops again and again: that is no healthy run, whatever it does in between
        if len(trainer.works_on) < len(trainer.gpus):
            continue  # it may be there to use them all
        if trainer.clock_share is not None and trainer.clock_share < view.limit("least_clock_share"):
            continue  # it is busy because it is slow
        kind = _kind(view, trainer)
        if kind is None:
            continue
        yield view.found(
            trainer,
            "info",
            f"keeps its GPU busy: {kind}",
            evidence=(
                duty(trainer, busy, view.limit("busy_percent")),
                *at_work(trainer, limits={"memory busy": view.limit("memory_busy")}),
                *cost,
            ),
            steps=_BIGGER,
            confidence=0.8 if trainer.sm is not None else 0.6 if trainer.power_share is not None else 0.5,
            healthy=True,
            lost_share=0.0,
        )


def _surely(view: View, trainer: Trainer) -> bool:
    """Whether SM activity stands in for utilization and is high: the GPU is busier than its multiprocessors."""
    by = trainer.duty_by
    return by is not None and by.lower_bound and view.above(trainer.sm, "alone_sm")


def _between(view: View, trainer: Trainer) -> tuple[float | None, float | None]:
    """How busy it is, percent, and how far samples are from that: between its pauses, where there are any."""
    pauses, window_s = view.pauses(trainer), view.limit("window_s")
    if not _counted(view, trainer, max(window_s, KEPT * trainer.spacing_s)):
        return view.mean(trainer, "busy_percent"), None if trainer.shape is None else trainer.shape.sigma
    mean, sigma, known_s = pauses.between(window_s)
    return (mean, sigma) if known_s >= window_s / 2 else (view.mean(trainer, "busy_percent"), None)


def _counted(view: View, trainer: Trainer, seconds: float) -> list[Pause]:
    """Its pauses, without the gaps between its steps."""
    return [one for one in view.pauses(trainer).lately(seconds) if one.idle_s >= view.limit("checkpoint-stall.idle_s")]


def _cost(view: View, trainer: Trainer) -> tuple[Evidence, ...]:
    """What pauses cost that come back: of the last minutes, or of a longer time, whichever is worse.

    One alone, as after an epoch, is no trouble.
    """
    limit, found = view.limit("paused_percent"), []
    for seconds, least in ((view.limit("paused_s"), _RECUR), (view.limit("often_s"), _RECUR + 1)):
        counted = _counted(view, trainer, seconds)
        if len(counted) >= least and not _over(view, trainer, counted):
            lost, of_s = _lost(view.pauses(trainer), counted, seconds)
            text = f"{len(counted)} pauses: {100 * lost:.1f} % of GPU time lost in {ago(of_s)}"
            text += f" (healthy < {limit:.0f} %)"
            found.append(Evidence(text=text, value=100 * lost, unit="%", limit=limit))
    return tuple(sorted(found, key=lambda one: -(one.value or 0.0))[:1])


def _over(view: View, trainer: Trainer, counted: Sequence[Pause]) -> bool:
    """Whether they have stopped coming back: nothing for several times as long as between any two of the last ones."""
    ends = [one.end_s for one in counted[-_LAST:]]
    longest_s = max(later - earlier for earlier, later in pairwise(ends))
    since_s = (view.pauses(trainer).seen_s or 0.0) - ends[-1]
    return since_s > max(_MISSED * longest_s, view.limit("window_s"))


def _lost(pauses: Pauses, counted: Sequence[Pause], seconds: float) -> tuple[float, float]:
    """The share of GPU time that these cost, and of how many seconds: of all that were seen, as long as only two show
    how often they come, else since the first of them."""
    if len(counted) == _RECUR:
        return pauses.lost(counted, seconds), pauses.watched_s(seconds)
    of_s = max(_LEAST_S, (pauses.seen_s or 0.0) - counted[0].end_s)
    return sum(one.idle_s for one in counted[1:]) / of_s, of_s


def _kind(view: View, trainer: Trainer) -> str | None:
    """What the GPU is bound by; None where it is busy with little, or with something another rule tells better."""
    if trainer.sm is None:
        if trainer.power_share is None and trainer.memory_busy is not None:  # as on a vGPU
            return "its memory traffic says that it works" if view.above(trainer.memory_busy, "memory_busy") else None
        known = view.knows(trainer, "power_share", "clock_share")
        by_power = view.above(trainer.power_share, "power_share") and view.above(trainer.clock_share, "clock_share")
        return "its power says that it works" if known and by_power else None
    tensor, dram = tensor_of_top(trainer) or 0.0, dram_of_top(trainer) or 0.0
    in_fp32 = (trainer.fp32 or 0.0) >= view.limit("fp32") and (trainer.tensor or 0.0) < view.limit("no_tensor")
    by_memory = view.above(dram, "dram")
    if in_fp32 or (by_memory and tensor < view.limit("little_tensor")):
        return None
    if view.above(tensor, "compute"):
        return "compute-bound"
    if by_memory:
        return "bound by its memory"
    return "a mix of compute and memory" if view.above(tensor, "tensor") or view.above(trainer.sm, "sm") else None
