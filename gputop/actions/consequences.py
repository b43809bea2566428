"""What a signal will do to a training job beyond the process it is sent to, in plain sentences. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Literal

from gputop import units, words
from gputop.model import Frame, Identity, Job, Process, Role

Effect = Literal["interrupt", "end", "kill", "freeze", "none"]  # what a signal does to who does not handle it

_WORD = {"interrupt": "stopping", "end": "ending", "kill": "killing", "freeze": "freezing"}
# what a launcher does when one of its ranks ends: torch.distributed.elastic, deepspeed.launcher.launch, mpirun(1)
_ON_LOSS = {
    "torchrun": "torchrun may notice first: then it ends them, or starts all ranks anew if --max-restarts is left",
    "accelerate": "accelerate may notice first: then it ends them, or starts all ranks anew if --max_restarts is left",
    "deepspeed": "deepspeed may notice first and end them",
    "mpirun": "mpirun may notice first and end them",
    "horovod": "horovod may notice first: then it ends them, or goes on with fewer if it is elastic",
    "composer": "composer may notice first and end them",
    "slurm": "if it was started by srun --kill-on-bad-exit, Slurm ends them",
    "ray": "Ray may notice first: then it ends them, or starts the job anew",
}
_PASS_ON = set(_ON_LOSS) - {"slurm", "ray"}  # asked to end, they first end their ranks; a script may just end


def consequences(frame: Frame, chosen: Collection[Identity], effect: Effect) -> tuple[str, ...]:
    """One sentence for each thing that will happen to others if these get a signal of this effect; worst first."""
    if effect == "none":
        return ()
    picked = [process for process in frame.processes if process.identity in chosen]
    said: list[str] = []
    for job in frame.jobs:
        mine = [process for process in picked if process.job == job.key]
        if mine:
            said += _of_job(frame, job, mine, effect)
    if effect == "freeze":
        held = sum(share.vram_bytes or 0 for process in picked for share in process.gpus)
        if held:
            said.append(f"frozen, it goes on holding {units.size(held)} of GPU memory")
    return tuple(said)


def _of_job(frame: Frame, job: Job, mine: list[Process], effect: Effect) -> Iterator[str]:
    hit = {process.identity for process in mine}
    ranks = [frame.by_identity[rank] for rank in job.ranks if rank in frame.by_identity]
    lost = [rank for rank in ranks if rank.identity in hit]
    left = [rank for rank in ranks if rank.identity not in hit]
    if job.launcher == "notebook" and lost:
        yield _notebook(effect)
        return
    far = elsewhere(job, ranks)
    if lost and (left or far):
        yield f"{_WORD[effect]} {_amount(len(lost))} will hang {_others(len(left), far)} {_where(ranks)}"
        yield from _then(job, effect)
    elif left and any(process.role is Role.LAUNCHER for process in mine):
        yield _launcher(job, left, effect)
        if far and effect in ("interrupt", "end") and job.launcher in _PASS_ON:
            yield f"that will hang {_others(0, far)} {_where(ranks)}"
    yield from _loaders(frame, job, mine, effect)
    if lost and not left and job.slurm_job and effect != "freeze":
        yield f"Slurm will count job {job.slurm_job} as failed: scancel {job.slurm_job} ends it in order"


def _notebook(effect: Effect) -> str:
    if effect == "interrupt":
        return "the notebook's running cell stops; its variables and GPU memory stay"
    if effect == "freeze":
        return "the notebook stops answering until it is thawed"
    return "the notebook loses all variables, what is on the GPU too; Jupyter may start a new, empty kernel"


def elsewhere(job: Job, ranks: Sequence[Process]) -> int:
    """How many ranks of the job are not among these, as on other machines; as far as its ranks were told how many.

    Slurm and MPI tell that to programs, too, that have nothing to do with each other: these have no threads to talk.
    """
    if not job.steps and not all(rank.talks or not rank.thread_names for rank in ranks):
        return 0
    worlds = [rank.world_size for rank in ranks if rank.rank is not None and rank.world_size is not None]
    return max(0, max(worlds, default=0) - len(ranks))


def _amount(lost: int) -> str:
    return "one rank" if lost == 1 else f"{lost} ranks"


def _others(left: int, far: int) -> str:
    """`the other 3`, `the other 7 (4 of them elsewhere)`."""
    others = "the other one" if left + far == 1 else f"the other {left + far}"
    if not far:
        return others
    return f"{others} ({far} of them elsewhere)" if left else f"{others}, elsewhere,"


def _where(ranks: list[Process]) -> str:
    return f"{'in NCCL' if any(rank.gpus for rank in ranks) else 'in their next collective'} until their timeout"


def _then(job: Job, effect: Effect) -> Iterator[str]:
    """What comes of ranks that hang."""
    if effect == "freeze":
        yield "the timeout (often 10 min) then ends the job, also if it was only frozen for a look"
    elif job.launcher in _ON_LOSS:
        yield _ON_LOSS[job.launcher]


def _launcher(job: Job, left: list[Process], effect: Effect) -> str:
    name, ranks = job.launcher or "the launcher", words.amount(len(left), "rank")
    if effect == "freeze":
        return f"its {ranks} train on; while it is frozen nobody notices if one of them fails"
    if effect != "kill" and job.launcher in _PASS_ON:
        return f"{name} passes it on: its {ranks} end too"
    held = sum(share.vram_bytes or 0 for rank in left for share in rank.gpus)
    memory = f" and hold {units.size(held)} of GPU memory" if held else ""
    if job.launcher in _PASS_ON:
        return f"killed, {name} cannot end its {ranks}: they may stay behind{memory}; choose the whole job"
    return f"its {ranks} may stay behind{memory}: choose the whole job"


def _loaders(frame: Frame, job: Job, mine: list[Process], effect: Effect) -> Iterator[str]:
    hit = {process.identity for process in mine}
    members = [frame.by_identity[member] for member in job.members if member in frame.by_identity]
    trainers = {process.pid: process for process in members if process.role is Role.TRAINER}
    spared = joining = 0
    starving: dict[int, Process] = {}
    parents = {process.pid: process.parent_pid for process in members}
    for loader in (process for process in members if process.role is Role.LOADER):
        above = parents.get(loader.pid, 0)
        while above not in trainers and above in parents:
            above = parents[above]
        trainer = trainers.get(above)
        if trainer is None:
            continue
        if trainer.identity in hit:
            spared += loader.identity not in hit
            joining += loader.identity in hit
        elif loader.identity in hit:
            starving[trainer.pid] = trainer
    for trainer in starving.values():
        name = f"rank {trainer.rank}" if trainer.rank is not None and len(job.ranks) > 1 else "its trainer"
        after = "waits for its batches" if effect == "freeze" else "ends with an error when a loader is gone"
        yield f"{name} ({trainer.pid}) {after}"
    if joining and effect == "end":
        yield "loaders are ended too: a trainer that saves a checkpoint when asked to end may fail for want of them"
    if spared and effect in ("end", "kill"):
        late = " within about 5 s" if effect == "kill" else ""
        yield f"{words.amount(spared, 'loader')} will end with {'it' if len(mine) == 1 else 'them'}{late}"
