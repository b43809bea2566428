"""GPUs in use of which nothing can be said: who works on them cannot be seen, has only begun, or leaves no sign."""

from __future__ import annotations

from collections.abc import Iterator

from gputop import units
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.view import View
from gputop.model import Gpu, Missing, Process
from gputop.program import as_root

ON_THE_HOST = "run gputop on the host, or start the container with --pid=host"
_FOREIGN = f"its process is outside this container: {ON_THE_HOST}"
_HIDDEN = "its process is hidden: /proc is mounted with hidepid"
_NAMELESS = "the driver names no process on it"
_LISTS_NOBODY = "the driver does not list the processes of this GPU"
_NO_TRAINER = "no training job: its process is not one"


def unjudged(view: View) -> Iterator[tuple[Gpu, Missing]]:
    """Each with the reason. One process that can be judged is enough; at rest, with nobody on it, it needs none."""
    of = {one.identity: trainer for trainer in view.vectors() for one in trainer.tree}
    for gpu in view.gpus():
        there = [one for one in view.tenants(gpu) if one.unseen != "exited"]
        busy = at_work(view, gpu)
        reasons = [_lacks(view, gpu, one, of.get(one.identity), busy) for one in there]
        if untold := nameless(view, gpu):
            reasons = [untold]
        if reasons and None not in reasons:
            yield gpu, next(reason for reason in reasons if reason)


def at_work(view: View, gpu: Gpu) -> bool:
    """Whether something computes on a GPU."""
    return (view.mean(gpu, "busy_percent") or 0.0) >= view.limit("no-cuda-context.nameless_percent")


def nameless(view: View, gpu: Gpu) -> Missing | None:
    """Why the driver names no process on a GPU that is at work; None where it names one, or the GPU is idle."""
    if any(share.uuid == gpu.uuid for process in view.frame.processes for share in process.gpus):
        return None
    # at work now as well: a process that has just ended is listed no more
    now = (gpu.busy_percent or 0.0) >= view.limit("no-cuda-context.nameless_percent")
    return untold(view, gpu) if now and at_work(view, gpu) else None


def why_unseen(view: View, unseen: str) -> str:
    """Why a process that the driver names cannot be judged."""
    return view.unlock(_HIDDEN, sudo=as_root()) if unseen == "hidden" else _FOREIGN


def _lacks(view: View, gpu: Gpu, process: Process, trainer: Trainer | None, busy: bool) -> Missing | None:
    """Why a process on a GPU cannot be judged; None where it can, or where there is nothing to judge."""
    if process.unseen is not None:
        return Missing(metric="gpus", reason="denied", unlock=why_unseen(view, process.unseen))
    if trainer is None:
        return Missing(metric="gpus", reason="absent", unlock=_NO_TRAINER) if busy else None
    if mute := next((one for one in gpu.missing if one.metric == "busy_percent"), None):
        return mute
    age_s = trainer.context_s or 0.0
    # what it does must hold for a while before anything is said of it
    judged_s = view.limit("engine.warm_s") + view.limit("on_s")
    if age_s >= judged_s:
        return None
    since = f"its job has been on it for {units.ago(age_s)}: it is judged from {units.ago(judged_s)} on"
    return Missing(metric="busy_percent", reason="absent", unlock=since)


def untold(view: View, gpu: Gpu) -> Missing:
    """Why the driver names nobody on a GPU, or may not name somebody: it cannot, or its PIDs are those of the host.

    Only where the PIDs here are others than the driver's does it help to look from the host.
    """
    if said := gpu.unlisted:
        return Missing(metric="gpus", reason=said.reason, unlock=said.unlock or _LISTS_NOBODY)
    return Missing(
        metric="gpus",
        reason="denied",
        unlock=f"{_NAMELESS}: {ON_THE_HOST}" if view.frame.host.own_pids else _NAMELESS,
    )
