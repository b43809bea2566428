"""GPUs in use of which nothing can be said: who works on them cannot be seen, has only begun, or leaves no sign."""

from __future__ import annotations

from collections.abc import Iterator

from gputop import units
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.view import View
from gputop.model import Gpu, Missing, Process
from gputop.program import as_root

_ON_THE_HOST = "run gputop on the host, or start the container with --pid=host"
_FOREIGN = f"who works on it is outside this container: {_ON_THE_HOST}"
_HIDDEN = "who works on it is hidden, as /proc is mounted with hidepid"
_NAMELESS = f"it is at work, and the driver names no process on it: {_ON_THE_HOST}"
_NO_TRAINER = "who works on it does not train, as far as anybody can see"


def unjudged(view: View) -> Iterator[tuple[Gpu, Missing]]:
    """Each with the reason. One process that can be judged is enough; at rest, with nobody on it, it needs none."""
    of = {one.identity: trainer for trainer in view.vectors() for one in trainer.tree}
    listed = {share.uuid for process in view.frame.processes for share in process.gpus}
    for gpu in view.gpus():
        least = view.limit("no-cuda-context.nameless_percent")
        at_work = (view.mean(gpu, "busy_percent") or 0.0) >= least
        there = [one for one in view.tenants(gpu) if one.unseen != "exited"]
        reasons = [_lacks(view, gpu, one, of.get(one.identity), at_work) for one in there]
        # and still is: who has just ended is named no more
        if at_work and gpu.uuid not in listed and (gpu.busy_percent or 0.0) >= least:
            reasons = [_untold(gpu)]
        if reasons and None not in reasons:
            yield gpu, next(reason for reason in reasons if reason)


def _lacks(view: View, gpu: Gpu, process: Process, trainer: Trainer | None, at_work: bool) -> Missing | None:
    """Why a process on a GPU cannot be judged; None where it can, or where there is nothing to judge."""
    if process.unseen is not None:
        hidden = view.unlock(_HIDDEN, sudo=as_root())
        return Missing(metric="gpus", reason="denied", unlock=hidden if process.unseen == "hidden" else _FOREIGN)
    if trainer is None:
        return Missing(metric="gpus", reason="absent", unlock=_NO_TRAINER) if at_work else None
    if mute := next((one for one in gpu.missing if one.metric == "busy_percent"), None):
        return mute
    age_s = trainer.context_s or 0.0
    # what it does must hold for a while before anything is said of it
    judged_s = view.limit("engine.warm_s") + view.limit("on_s")
    if age_s >= judged_s:
        return None
    since = f"its job has been on it for {units.ago(age_s)}: it is judged from {units.ago(judged_s)} on"
    return Missing(metric="busy_percent", reason="absent", unlock=since)


def _untold(gpu: Gpu) -> Missing:
    """Why the driver names nobody on a GPU that is at work."""
    said = next((one for one in gpu.missing if one.metric == "processes"), None)
    return Missing(
        metric="gpus", reason=said.reason if said else "denied", unlock=(said.unlock if said else None) or _NAMELESS
    )
