"""Users of GPUs that are in no job: processes that cannot be seen, or that do not train, and nameless ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gputop.diagnose import unjudged
from gputop.diagnose.concerns import names
from gputop.diagnose.finding import Finding
from gputop.diagnose.state import JobState, Word, found
from gputop.diagnose.view import View
from gputop.model import Gpu, Process
from gputop.words import script


def loose(view: View, findings: Sequence[Finding], judged: set[str]) -> Iterator[JobState]:
    """Processes that compute on GPUs and are in no job that is seen, alike ones together."""
    seen = {one.identity for trainer in view.vectors() for one in trainer.tree}
    groups: dict[tuple[str, tuple[str, ...], str | None], list[Process]] = {}
    for process in view.frame.processes:
        gpus = tuple(share.uuid for share in process.gpus if share.kind != "graphics")
        if gpus and process.identity not in seen:
            groups.setdefault((process.unseen or "", gpus, process.user), []).append(process)
    for (_, gpus, user), alike in groups.items():
        first, identities = alike[0], {one.identity for one in alike}
        state, why, due = _stranger(view, first, gpus, judged)
        # what is so of its GPU says nothing of the pace of what runs there
        bad = found([one for one in findings if names(one.subject, identities, ())])
        name = script(first) or f"PID {first.pid}"
        yield JobState(
            key=f"{first.pid}.{first.started_ticks}",
            name=name if len(alike) == 1 else f"{len(alike)} processes",
            user=user,
            gpus=gpus,
            processes=tuple(one.identity for one in alike),
            state=bad.state if bad else state,
            why=bad.why if bad else why,
            due=due,
        )


def _stranger(view: View, process: Process, gpus: Sequence[str], judged: set[str]) -> tuple[Word, str, bool]:
    """Why a process without a job has no verdict, and whether one is owed: not beside a job that is judged."""
    alone = not judged.intersection(gpus)
    if process.unseen == "exited":
        return "unknown", "no training job: the process has exited, the driver still lists it", False
    if process.unseen is not None:
        return "unknown", unjudged.why_unseen(view, process.unseen), alone
    at_work = any(unjudged.at_work(view, gpu) for gpu in view.gpus() if gpu.uuid in gpus)
    return "unknown", "no training job: neither its libraries nor its processes are those of one", alone and at_work


def nameless(view: View) -> Iterator[JobState]:
    """GPUs at work of which the driver names no process."""
    for gpu in view.gpus():
        if (missing := unjudged.nameless(view, gpu)) is not None:
            why = _why(view, gpu, missing.unlock or "")
            yield JobState(key=gpu.uuid, name=f"GPU {gpu.index}", gpus=(gpu.uuid,), state="unknown", why=why)


def _why(view: View, gpu: Gpu, unlock: str) -> str:
    busy = view.mean(gpu, "busy_percent")
    return unlock if busy is None else f"GPU busy {busy:.0f} %, {unlock}"
