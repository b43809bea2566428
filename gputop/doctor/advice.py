"""Initial settings for this machine: the DataLoader line, and the sweep that finds the best one."""

from __future__ import annotations

from collections.abc import Iterator

from gputop import labels
from gputop.doctor.check import CheckLine, check
from gputop.doctor.machine import DoctorContext
from gputop.doctor.share import Share, gpus, share
from gputop.num_workers import MOST_FIRST, PREFETCH


@check("loader", "How many DataLoader workers to start with?")
def loader(machine: DoctorContext) -> Iterator[CheckLine]:
    """Half of the CPUs per job, at most 8: guides differ (all cores but a few, 4-8, half), so start low and sweep."""
    got = share(machine)
    value = {
        "num_workers": got.workers,
        "prefetch_factor": PREFETCH if got.workers else None,
        "pin_memory": gpus(machine) > 0,
        "persistent_workers": got.workers > 0,
        "allowed_cpus": got.allowed,
        "jobs": got.jobs,
        "sweep": list(_sweep(got)),
    }
    yield CheckLine("advice", f"start with num_workers={got.workers}: {_why(got)}", value=value)
    yield CheckLine("advice", _line(got, pinned=gpus(machine) > 0))
    sweep = ", ".join(map(str, _sweep(got)))
    yield CheckLine("advice", f"then measure {sweep} workers with gputop loader; keep the fewest that reach full speed")


def _why(got: Share) -> str:
    """The number in words: 2 of the 4 CPUs that each of 2 jobs has."""
    jobs = f"{got.allowed} allowed CPUs, {labels.amount(got.jobs, 'job')}, {got.per_gpu}"
    if not got.workers:
        return "a job has fewer than 2 CPUs" + (f" ({jobs})" if got.jobs > 1 else "")
    each = f"{got.allowed / got.jobs:.3g} CPUs"
    half = f"half of the {each} of each job ({jobs})" if got.jobs > 1 else f"half of the {each}"
    return f"{half}, and at most {MOST_FIRST} workers to begin with"


def _line(got: Share, *, pinned: bool) -> str:
    """The DataLoader call, without options that need workers or a GPU if there are none: PyTorch rejects them."""
    parts = [f"num_workers={got.workers}"]
    if pinned:
        parts.append("pin_memory=True")
    if got.workers:
        parts += ["persistent_workers=True", f"prefetch_factor={PREFETCH}"]
    return f"DataLoader(data, {', '.join(parts)})"


def _sweep(got: Share) -> tuple[int, ...]:
    """Worker counts around the initial one, at most the CPUs of a job."""
    most = max(1, got.allowed // got.jobs)
    start = max(1, got.workers)
    return tuple(sorted({0, max(1, start // 2), start, min(most, start * 3 // 2), min(most, start * 2)}))
