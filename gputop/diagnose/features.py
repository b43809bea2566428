"""Compute the feature vector of a trainer from the engine state."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from gputop.diagnose.engine_state import EngineState
from gputop.diagnose.finding import Subject
from gputop.diagnose.gpu_tracker import GpuTracker, reference_mhz
from gputop.diagnose.gpu_turns import Turns
from gputop.diagnose.job_tree import key
from gputop.diagnose.phases import TrainerPhases
from gputop.diagnose.running_means import Means
from gputop.diagnose.trainer import Trainer
from gputop.model import Frame, Gpu, Job, Process, Role
from gputop.optional_sums import total
from gputop.units import cpus_of

WINDOW_S = 30.0
_COMPILED_S = 10.0  # seconds after a compiler was last seen: compilers come and go
# field of Trainer, metric of Gpu, divisor
_GPU_MEANS = (
    ("memory_busy", "memory_busy_percent", 100.0),
    ("sm", "sm_active_percent", 100.0),
    ("occupancy", "sm_occupancy_percent", 100.0),
    ("tensor", "tensor_percent", 100.0),
    ("dram", "dram_percent", 100.0),
    ("fp32", "fp32_percent", 100.0),
    ("pcie_rx", "pcie_rx_bytes_per_s", 1.0),
    ("pcie_tx", "pcie_tx_bytes_per_s", 1.0),
    ("nvlink", "nvlink_rx_bytes_per_s", 1.0),
)
# field of Trainer, metric of Tree
_TREE_MEANS = {
    "touched": "worked",
    "cores": "cores",
    "main": "main",
    "own": "own",
    "loader_cpu": "loader_cpu",
    "loader_low": "loader_low",
    "loader_blocked": "loader_blocked",
    "loader_delayed": "loader_delayed",
    "loader_wait": "loader_wait",
    "main_wait": "main_wait",
    "run_wait": "run_wait",
    "compute_threads": "compute_threads",
    "throttled": "throttled",
    "read_bytes": "read_bytes_per_s",
    "read_chars": "read_chars_per_s",
    "read_calls": "read_calls_per_s",
    "write_chars": "write_chars_per_s",
}
# (subject, seconds, least known seconds) to its means
Asked = Callable[[str, float, float], Means]


def trainer(
    frame: Frame, means: Asked, past: EngineState, tree: Sequence[Process], jobs: dict[str, Job], warm_s: float
) -> Trainer:
    """The feature vector of the trainer of a tree; it is judged from a context age of `warm_s` on."""
    process, identity = tree[0], tree[0].identity
    known = past.trainers[identity]
    seconds = max(1.0, min(WINDOW_S, frame.mono_s - known.phase_s))
    gpus = _gpus(frame, process)
    age_s = None if known.context_s is None else frame.mono_s - known.context_s
    settled = age_s is not None and age_s >= warm_s
    about, uuids = key(identity), tuple(gpu.uuid for gpu in gpus)
    at_work = tuple(gpu for gpu in gpus if gpu.uuid in known.works_on) or gpus
    sums, measured = means(about, seconds, WINDOW_S), _measured_gpus(frame, known, at_work)
    busy, switches, own = sums.get("busy_percent"), sums.get("switches"), sums.get("own")
    team = frozenset(one.identity for one in tree if one.role is Role.LOADER)
    return Trainer(
        process=process,
        identity=identity,
        subject=Subject(kind="process", gpus=uuids, processes=(identity,), job=process.job),
        key=about,
        job=jobs.get(process.job or ""),
        tree=tuple(tree),
        gpus=gpus,
        uuids=uuids,
        works_on=at_work,
        peers=_peers(past, at_work, process),
        settled=settled,
        warm=settled and (known.worked or _never_reports(gpus)),
        context_s=age_s,
        **_phase_features(frame.mono_s, known),
        missing=sum((one.missing for one in tree[:2]), ()) + sum((gpu.missing for gpu in gpus), ()),
        duty=None if busy is None else busy / 100,
        **_rhythm_features(known.turns or (past.cards.get(at_work[0].uuid) if at_work else None)),
        allowed=_allowed_cpus(tree),
        loaders=len(team),
        team=team,
        switches=switches / own if switches is not None and own else None,
        **_tree_features(sums),
        **_gpu_features(past, measured, lambda uuid: means(uuid, seconds, WINDOW_S), known.turns),
    )


def _allowed_cpus(tree: Sequence[Process]) -> float | None:
    """CPUs that it and its loaders may use: either may be pinned while the other is not."""
    trainer = tree[0]
    own, known = cpus_of(trainer.affinity), trainer.allowed_cpus
    others = [one for one in tree if one.role is Role.LOADER and one.affinity not in (None, trainer.affinity)]
    if not others or not own or known is None or known < len(own):
        return known  # fewer than the affinity: a quota, which applies to all of them
    sets = [(cpus_of(one.affinity), one.allowed_cpus) for one in others]
    quotas = [allowed for cpus, allowed in sets if allowed is not None and allowed < len(cpus)]
    return min([float(len(own.union(*(cpus for cpus, _ in sets)))), *quotas])


def _phase_features(now_s: float, known: TrainerPhases) -> dict[str, Any]:
    """Its current phase, and the length of it."""
    return {
        "compiling": now_s - known.compiled_s < _COMPILED_S,
        "phase_s": now_s - known.phase_s,
        "seen_s": now_s - max(known.phase_s, known.first_s),
        "work_s": known.work_s,
        "turns": known.turns,
    }


def _rhythm_features(card: GpuTracker | Turns | None) -> dict[str, Any]:
    """Rhythm of the first GPU it works on, or of the sum of GPUs that work in turns."""
    if card is None:
        return {"shape": None, "period": None, "spacing_s": 1.0}
    return {"shape": card.shape, "period": card.period, "spacing_s": card.spacing_s}


def _peers(past: EngineState, gpus: Sequence[Gpu], process: Process) -> int:
    """Number of other processes that compute on its GPUs, without those that only have a context there."""
    theirs = {
        one.pid
        for gpu in gpus
        for one in past.tenants.get(gpu.uuid, ())
        if (known := past.trainers.get(one.identity)) is None or not known.works_on or gpu.uuid in known.works_on
    }
    return len(theirs - {process.pid})


def _tree_features(sums: Means) -> dict[str, Any]:
    """Means over its process tree."""
    return {name: sums.get(metric) for name, metric in _TREE_MEANS.items()}


def _measured_gpus(frame: Frame, known: TrainerPhases, at_work: Sequence[Gpu]) -> Sequence[Gpu]:
    """The GPUs that its metrics describe: for ranks that work in turns, all of the job."""
    return at_work if known.turns is None else [gpu for gpu in frame.gpus if gpu.uuid in known.turns.uuids]


def _gpu_features(
    past: EngineState, gpus: Sequence[Gpu], of: Callable[[str], Means], in_turns: Turns | None
) -> dict[str, Any]:
    """Means over GPUs; `of` gives those of one uuid. GPUs that work in turns are summed."""
    cards = [of(gpu.uuid) for gpu in gpus]
    powers = [_power_share(past, gpu, means) for gpu, means in zip(gpus, cards, strict=True)]
    over = _sum if in_turns else _mean
    instead = past.substitutes.of
    values: dict[str, Any] = {
        "duty_by": next((instead[gpu.uuid] for gpu in gpus if gpu.uuid in instead), None),
        "cards": {gpu.uuid: past.cards[gpu.uuid] for gpu in gpus if gpu.uuid in past.cards},
        "power_share": over(powers, 1.0),
        "clock_share": _mean([_clock_share(past, gpu, of) for gpu in gpus]),
    }
    for name, metric, unit in _GPU_MEANS:
        mean = over([card.get(metric) for card in cards], 100.0 if unit == 100.0 else math.inf)
        values[name] = None if mean is None else mean / unit
    return values


def _never_reports(gpus: Sequence[Gpu]) -> bool:
    """Whether none of its GPUs ever reports utilization, as MIG instances: rules on it abstain with that reason."""
    return bool(gpus) and all(any(one.metric == "busy_percent" for one in gpu.missing) for gpu in gpus)


def _gpus(frame: Frame, process: Process) -> tuple[Gpu, ...]:
    """The GPUs it has compute contexts on."""
    found = (frame.by_uuid.get(share.uuid) for share in process.gpus if share.kind != "graphics")
    return tuple(gpu for gpu in found if gpu is not None)


def _mean(values: Sequence[float | None], _: float = 0.0) -> float | None:
    """The mean; None if any value is."""
    added = total(values)
    return added / len(values) if values and added is not None else None


def _sum(values: Sequence[float | None], whole: float) -> float | None:
    """The sum, at most `whole`; None if any value is."""
    added = total(values) if values else None
    return None if added is None else min(added, whole)


def _power_share(past: EngineState, gpu: Gpu, means: Means) -> float | None:
    watts, card = means.get("power_watts"), past.cards.get(gpu.uuid)
    idle = card.idle_watts(gpu) if card else None
    if watts is None or idle is None or gpu.power_limit_watts is None or gpu.power_limit_watts <= idle:
        return None
    return max(0.0, watts - idle) / (gpu.power_limit_watts - idle)


def _clock_share(past: EngineState, gpu: Gpu, of: Callable[[str], Means]) -> float | None:
    clock, highest = of(gpu.uuid).get("sm_clock_mhz"), reference_mhz(gpu)
    if clock is None and gpu.parent_uuid in past.highest_mhz:  # a MIG instance runs at the clock of its card
        clock, highest = of(gpu.parent_uuid).get("sm_clock_mhz"), past.highest_mhz[gpu.parent_uuid]
    return clock / highest if clock is not None and highest else None
