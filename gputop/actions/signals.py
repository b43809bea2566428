"""Signals: the choices, their effects on a training job, sending, and the outcome."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Literal

from gputop import labels, units
from gputop.actions.action import ActionResult, ActionRun, start_run
from gputop.actions.handles import Handles, Scope
from gputop.actions.target import Rights, TargetOutcome, TargetProcess, attempt, untouchable
from gputop.frozen_dataclass import frozen_dataclass
from gputop.model import Frame, Identity, Job, Process, Role
from gputop.safe import pidfd

Goal = Literal["end", "freeze", "thaw"]

_EVERY_S = 0.1
_REACHED: dict[Goal, tuple[str, str]] = {
    "end": ("exited", "exited"),
    "freeze": ("is suspended", "are suspended"),
    "thaw": ("is running again", "are running again"),
}
_NOT_YET: dict[Goal, tuple[str, str]] = {
    "end": ("is still running", "are still running"),
    "freeze": ("is not suspended", "are not suspended"),
    "thaw": ("is still suspended", "are still suspended"),
}


class Tracker:
    """Tracks processes until they reach a goal. `left` are those not there yet."""

    def __init__(self, targets: Sequence[TargetProcess], goal: Goal) -> None:
        self.left = list(targets)
        self._all, self._goal = list(targets), goal
        self._began_s = time.monotonic()
        self._last_s = 0.0  # time at which the last one reached it

    def passed_s(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._began_s

    def update(self) -> None:
        """Wait briefly, or until one of them ends, and update `left`."""
        pidfd.ended([target.fd for target in self.left if target.fd is not None], _EVERY_S)
        still = [target for target in self.left if not self._reached(target)]
        if len(still) < len(self.left):
            self._last_s = self.passed_s()
        self.left = still

    def progress(self, sent: str) -> str:
        """`TERM sent · 3 of 41 left · 2 s`."""
        number = f"{len(self.left)} of {len(self._all)} left" if len(self._all) > 1 else f"{self.left[0].pid}"
        return f"{sent} · {number} · {self.passed_s():.0f} s"

    def text(self) -> str:
        """`41207 exited after 3.2 s`, `41207 is still running after 10 s`, `3 of 41 processes are still ...`."""
        words_for = _NOT_YET if self.left else _REACHED
        some = self.left or self._all
        named, many = self._names(some), len(some) > 1
        seconds = f" after {self.passed_s():.0f} s" if self.left else f" after {self._last_s:.1f} s"
        return f"{named} {words_for[self._goal][many]}{'' if self._goal != 'end' and not self.left else seconds}"

    def sent_text(self, sent: str) -> str:
        """The same where the process is expected to continue: `USR1 sent to 41207`."""
        gone = [target for target in self._all if target not in self.left]
        if gone:
            return f"{sent}: {self._names(gone)} exited within {max(self._last_s, 0.1):.1f} s"
        return f"{sent} to {self._names(self._all)}"

    def _names(self, some: Sequence[TargetProcess]) -> str:
        if len(some) == 1 == len(self._all):
            return str(some[0].pid)
        everybody = labels.amount(len(self._all), "process")
        return everybody if len(some) == len(self._all) else f"{len(some)} of {everybody}"

    def _reached(self, target: TargetProcess) -> bool:
        if target.ended():
            return True
        if self._goal == "end":
            return False
        return (target.state() == "T") is (self._goal == "freeze")


Effect = Literal["interrupt", "end", "kill", "freeze", "none"]  # effect on a process that does not handle the signal

_WORD = {"interrupt": "interrupting", "end": "terminating", "kill": "killing", "freeze": "suspending"}
# launchers that end the other ranks when one fails, and what some do instead: torch.distributed.elastic,
# deepspeed.launcher.launch, mpirun(1)
_STOPS = {
    "torchrun": ", or restart all ranks if --max-restarts allows it",
    "accelerate": ", or restart all ranks if --max_restarts allows it",
    "deepspeed": "",
    "mpirun": "",
    "horovod": ", or continue with fewer ranks if elastic",
    "composer": "",
    "ray": ", or restart the job",
}
_PER_MACHINE = {"torchrun", "accelerate", "deepspeed", "composer"}  # each stops the ranks of its own machine only
_PASS_ON = set(_STOPS) - {"ray"}  # on termination they first end their ranks; a script may just end


def consequences(frame: Frame, chosen: Collection[Identity], effect: Effect) -> tuple[str, ...]:
    """One sentence per effect on other processes if these receive such a signal; the worst first."""
    if effect == "none":
        return ()
    picked = [process for process in frame.processes if process.identity in chosen]
    said: list[str] = []
    for job in frame.jobs:
        mine = [process for process in picked if process.job == job.key]
        if mine:
            said += _job_effects(frame, job, mine, effect)
    if effect == "freeze":
        held = sum(share.vram_bytes or 0 for process in picked for share in process.gpus)
        if held:
            said.append(f"while suspended, it keeps {units.size(held)} of GPU memory")
    return tuple(said)


def _job_effects(frame: Frame, job: Job, mine: list[Process], effect: Effect) -> Iterator[str]:
    hit = {process.identity for process in mine}
    ranks = [frame.by_identity[rank] for rank in job.ranks if rank in frame.by_identity]
    lost = [rank for rank in ranks if rank.identity in hit]
    left = [rank for rank in ranks if rank.identity not in hit]
    if job.launcher == "notebook" and lost:
        yield _notebook_effect(effect)
        return
    if lost or left:
        yield from _rank_effects(frame, job, hit, lost, left, effect)
    yield from _loader_effects(frame, job, mine, effect)
    if lost and not left and job.slurm_job and effect != "freeze":
        yield f"Slurm will record job {job.slurm_job} as failed; scancel {job.slurm_job} cancels it cleanly"


def _rank_effects(
    frame: Frame, job: Job, hit: Collection[Identity], lost: list[Process], left: list[Process], effect: Effect
) -> Iterator[str]:
    """What becomes of its other ranks: a launcher that lives on stops them, without one they hang."""
    ranks, launchers = [*lost, *left], [one for one in _members(frame, job) if one.role is Role.LAUNCHER]
    far = elsewhere(job, ranks)
    signalled = any(one.identity in hit for one in launchers)
    passes_on = effect in ("interrupt", "end") and job.launcher in _PASS_ON
    if signalled and left and (passes_on or not lost):
        yield _launcher_effect(job, left, effect)
        if far and passes_on:
            yield f"this will hang {_others(0, far)} {_where(ranks)}"
    elif not lost or not (left or far):
        return
    elif job.launcher in _STOPS and not signalled and effect != "freeze":
        yield from _stopped(job, ranks, len(left), far)
    else:
        hung = f"{_WORD[effect]} {_amount(len(lost))} will hang {_others(len(left), far)} {_where(ranks)}"
        unless = ", unless srun --kill-on-bad-exit ends them" if job.launcher == "slurm" else ""
        yield hung + (unless if effect != "freeze" else "")
        if effect == "freeze":
            yield "the job aborts unless it is resumed before the collective timeout (often 10 min)"


def _stopped(job: Job, ranks: list[Process], left: int, far: int) -> Iterator[str]:
    """What its launcher does with the ranks that are left when one fails."""
    name = job.launcher or ""
    title, instead = name.capitalize() if name == "ray" else name, _STOPS[name]
    if name not in _PER_MACHINE:
        yield f"{title} will stop {_others(left, far)}{instead}"
        return
    here = f"{_others(left, 0)}{' on this machine' if far else ''}"
    if left:
        yield f"{title} will stop {here}{instead}"
    if far:
        unless = f"unless {name} restarts all ranks, " if instead else ""
        yield f"{unless}{_others(0, far)} will hang {_where(ranks)}"


def _notebook_effect(effect: Effect) -> str:
    if effect == "interrupt":
        return "the running cell of the notebook stops; variables and GPU memory stay"
    if effect == "freeze":
        return "the notebook does not respond until it is resumed"
    return "the notebook loses all variables, also those on the GPU; Jupyter may start an empty kernel"


def elsewhere(job: Job, ranks: Sequence[Process]) -> int:
    """Number of ranks of the job not among these, as on other machines, if the ranks know the total.

    Slurm and MPI also set it for independent programs, which have no communication threads.
    """
    if not job.steps and not all(rank.talks or not rank.thread_names for rank in ranks):
        return 0
    worlds = [rank.world_size for rank in ranks if rank.rank is not None and rank.world_size is not None]
    return max(0, max(worlds, default=0) - len(ranks))


def _amount(lost: int) -> str:
    return "one rank" if lost == 1 else f"{lost} ranks"


def _others(left: int, far: int) -> str:
    """`the other 3 ranks`, `the other 7 ranks (4 running elsewhere)`."""
    others = "the other rank" if left + far == 1 else f"the other {left + far} ranks"
    if not far:
        return others
    return f"{others} ({far} running elsewhere)" if left else f"{others}, running elsewhere,"


def _where(ranks: list[Process]) -> str:
    return f"{'in NCCL' if any(rank.gpus for rank in ranks) else 'in their next collective'} until their timeout"


def _launcher_effect(job: Job, left: list[Process], effect: Effect) -> str:
    name, ranks = job.launcher or "the launcher", labels.amount(len(left), "rank")
    if effect == "freeze":
        return f"its {ranks} keep training; while it is suspended, a failed rank goes undetected"
    if effect != "kill" and job.launcher in _PASS_ON:
        return f"{name} forwards the signal: its {ranks} exit too"
    held = sum(share.vram_bytes or 0 for rank in left for share in rank.gpus)
    memory = f" and keep {units.size(held)} of GPU memory" if held else ""
    if job.launcher in _PASS_ON:
        return f"a killed {name} cannot terminate its {ranks}: they may keep running{memory}; choose the whole job"
    return f"its {ranks} may keep running{memory}: choose the whole job"


def _members(frame: Frame, job: Job) -> list[Process]:
    return [frame.by_identity[member] for member in job.members if member in frame.by_identity]


def _loader_effects(frame: Frame, job: Job, mine: list[Process], effect: Effect) -> Iterator[str]:
    hit = {process.identity for process in mine}
    members = _members(frame, job)
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
        after = "will wait for its batches" if effect == "freeze" else "fails when a DataLoader worker is gone"
        yield f"{name} ({trainer.pid}) {after}"
    if joining and effect == "end":
        yield "DataLoader workers are terminated too: a trainer that saves a checkpoint on TERM may fail without them"
    if spared and effect in ("end", "kill"):
        whose, owner = ("its", "it") if len(mine) == 1 else ("their", "them")
        when = "within about 5 s" if effect == "kill" else f"with {owner}"
        yield f"{whose} {labels.amount(spared, 'worker')} will exit {when}, no signal needed"


WATCH_S = 10.0
LOOK_S = 2.0  # seconds to see whether a process survives a signal that it handles


@frozen_dataclass(frozen=True, slots=True)
class SignalChoice:
    """One signal on offer, and its effect on a training job."""

    name: str
    text: str
    effect: Effect
    confirm: bool = False  # ask for confirmation
    brief: str = ""  # short form of the text

    @property
    def number(self) -> int:
        """Its number on this machine."""
        return int(signal.Signals[f"SIG{self.name}"])


CHOICES = (
    SignalChoice(
        "INT",
        "interrupt, like Ctrl+C; plain PyTorch saves no checkpoint",
        "interrupt",
        brief="like Ctrl+C; PyTorch saves nothing",
    ),
    SignalChoice("TERM", "terminate; saves only if the program handles SIGTERM", "end"),
    SignalChoice(
        "KILL",
        "kill now; no checkpoint, shared memory may stay in /dev/shm",
        "kill",
        confirm=True,
        brief="no checkpoint; /dev/shm may stay full",
    ),
    SignalChoice("USR1", "checkpoint if the program handles it; otherwise it is killed", "none"),
    SignalChoice("STOP", "suspend; its GPU memory stays in use", "freeze"),
    SignalChoice("CONT", "resume", "none"),
)
BY_NAME = {choice.name: choice for choice in CHOICES}


@frozen_dataclass(frozen=True, slots=True)
class SignalOrder:
    """The user's choices in the dialog."""

    choice: SignalChoice
    scope: Scope = Scope.PROCESS
    confirmed: bool = False  # confirmed KILL
    insists: bool = False  # typed the PID despite cautions
    watch_s: float = WATCH_S


@frozen_dataclass(frozen=True, kw_only=True)
class Signalled(ActionResult):
    """The result: an outcome per process, and the PIDs that should have ended but have not."""

    outcomes: tuple[TargetOutcome, ...] = ()
    still: tuple[int, ...] = ()


class Signal:
    """The action."""

    id = "signal"
    title = "Signal"

    def why_not(self, process: Process, rights: Rights) -> str | None:
        """Why nothing can be sent: read-only, PID 1, a kernel thread, not verified, ended, another user's."""
        return untouchable(process, rights)

    def run(self, handles: Handles, options: SignalOrder, tell: Callable[[ActionRun], object]) -> ActionRun:
        """Send it to every process in the scope, then track them until they have ended, stopped or continued."""
        title = f"{options.choice.name} to {handles.process.pid}"
        return start_run(title, handles, lambda run: _send(handles, options, run), tell)


SIGNAL = Signal()


def warnings(handles: Handles, scope: Scope, choice: SignalChoice) -> tuple[str, ...]:
    """Warnings before sending: other affected processes, and processes that will not react as expected. Reads /proc."""
    said = list(_reactions(handles, scope, choice))
    chosen = {process.identity for process in handles.processes(scope)}
    return (*consequences(handles.frame, chosen, choice.effect), *said)


def _reactions(handles: Handles, scope: Scope, choice: SignalChoice) -> Iterator[str]:
    targets = [held for held in handles.held(scope) if isinstance(held, TargetProcess)]
    trainers = [target for target in targets if target.process.role is Role.TRAINER]
    # a loader reacts as its trainer does, except to a message it was not set up for
    asked = targets if choice.effect == "none" else trainers or targets[:1]
    found: dict[str, list[int]] = {}
    for target in asked:
        for reaction in _reacts(target, choice):
            found.setdefault(reaction, []).append(target.pid)
    for reaction, pids in found.items():
        yield f"{pids[0] if len(pids) == 1 else f'each of {len(pids)} processes'} {reaction}"


def _reacts(target: TargetProcess, choice: SignalChoice) -> Iterator[str]:
    reaction, state = target.reaction(choice.number), target.state()
    if choice.name == "USR1" and reaction == "default":
        yield "does not handle USR1 and will be killed by it"
    elif choice.effect in ("interrupt", "end") and reaction == "ignored":
        yield f"ignores {choice.name}"
    if choice.effect in ("interrupt", "end") and state == "T":
        yield f"is suspended: {choice.name} arrives when it is resumed (CONT)"
    elif choice.effect != "none" and state == "D":
        yield "is blocked in the kernel (state D): it exits only after that"


def _send(handles: Handles, order: SignalOrder, run: ActionRun) -> Signalled:
    choice = order.choice
    if choice.confirm and not order.confirmed:
        return Signalled(text=f"nothing sent: {choice.name} needs a second confirmation", good=False)
    if why := handles.why_not(order.scope):
        return Signalled(text=f"nothing sent: {why}", good=False)
    held = handles.held(order.scope)
    if choice.name == "CONT":
        held.reverse()  # a launcher that continues before its ranks might consider them dead
    outcomes = tuple(attempt(one, order.insists, "nothing sent", lambda it: it.signal(choice.number)) for one in held)
    done = {outcome.pid for outcome in outcomes if outcome.kind == "done"}
    watch = Tracker([one for one in held if isinstance(one, TargetProcess) and one.pid in done], _goal(choice))
    only_tells = _is_message(handles, choice)
    limit_s = min(LOOK_S, order.watch_s) if only_tells else order.watch_s
    while watch.left and watch.passed_s() < limit_s and not run.cancelled:
        run.say(watch.progress(f"{choice.name} sent"))
        watch.update()
    said = tuple(outcome.text for outcome in outcomes if outcome.text)
    if not done:
        return Signalled(text=_nothing_sent(outcomes), good=False, lines=said, outcomes=outcomes)
    message = only_tells or (run.cancelled and watch.left)
    text = watch.sent_text(f"{choice.name} sent") if message else watch.text()
    still = () if message else tuple(target.pid for target in watch.left)
    if run.cancelled and watch.left:
        text += "; stopped watching before the end"
    missed = len(outcomes) - len(done)
    return Signalled(
        text=f"{text}; {labels.amount(missed, 'process')} skipped" if missed else text,
        good=not (missed or still),
        lines=(*said, *(f"{target.pid} {_why_still(target, choice)}" for target in watch.left if target.pid in still)),
        outcomes=outcomes,
        still=still,
    )


def _goal(choice: SignalChoice) -> Goal:
    return "freeze" if choice.effect == "freeze" else "thaw" if choice.name == "CONT" else "end"


def _is_message(handles: Handles, choice: SignalChoice) -> bool:
    """Whether it is a mere message, after which the process is expected to continue."""
    notebook = any(job.key == handles.process.job and job.launcher == "notebook" for job in handles.frame.jobs)
    return choice.name == "USR1" or (choice.effect == "interrupt" and notebook)


def _nothing_sent(outcomes: tuple[TargetOutcome, ...]) -> str:
    if len(outcomes) == 1:
        return outcomes[0].text
    return f"nothing sent to any of {labels.amount(len(outcomes), 'process')}"


def _why_still(target: TargetProcess, choice: SignalChoice) -> str:
    state = target.state()
    if state == "D":
        return "is blocked in the kernel (state D), often on storage or the driver: it exits only after that"
    if choice.effect == "kill":
        return "is being removed by the kernel; freeing its memory takes time"
    if state == "T" and _goal(choice) == "end":
        return f"is suspended: {choice.name} arrives when it is resumed (CONT)"
    if target.reaction(choice.number) == "ignored":
        return f"ignores {choice.name}"
    return "may be saving a checkpoint; KILL would end it without one" if _goal(choice) == "end" else "did not react"
