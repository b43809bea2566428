"""Signals: which there are, sent through pidfds, and what came of it: `41207 ended after 3.2 s`.

hold = Hold(frame, process, rights)        # the dialog opens: the target is frozen
hold.refusal or SIGNAL.why_not(process, rights)   # why nothing can be sent
hold.reaches                               # [ ] its 8 loaders   [ ] the whole job: 4 ranks, 32 loaders, torchrun
CHOICES                                    # ( ) 15 TERM  ask to end
warnings(hold, scope, choice)              # ! killing one rank will hang the other 3 in NCCL until their timeout
hold.cautions(scope)                       # not empty: the pid must be typed; then insists=True
choice.confirm                             # KILL: ask a second time; then confirmed=True
run = SIGNAL.run(hold, Order(choice, scope), tell)   # tell(run) whenever run.line or run.result is new
run.result.still                           # not empty: still there after 10 s; the same hold can send KILL
hold.close()
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator

from gputop import words
from gputop.actions.action import Result, Run, begin
from gputop.actions.aim import untouchable
from gputop.actions.consequences import Effect, consequences
from gputop.actions.hold import Hold, Scope
from gputop.actions.target import Outcome, Rights, Target, attempt
from gputop.actions.watch import Goal, Watch
from gputop.declare import record
from gputop.model import Process, Role

WATCH_S = 10.0
LOOK_S = 2.0  # how long it takes to see whether a process survives a signal that it handles


@record(frozen=True, slots=True)
class Choice:
    """One signal that is offered, and what it does to a training job."""

    name: str
    text: str
    effect: Effect
    confirm: bool = False  # ask a second time
    brief: str = ""  # the same where the text does not fit

    @property
    def number(self) -> int:
        """Its number on this machine."""
        return int(signal.Signals[f"SIG{self.name}"])


CHOICES = (
    Choice(
        "INT",
        "interrupt, as Ctrl+C does; plain PyTorch saves no checkpoint",
        "interrupt",
        brief="as Ctrl+C; plain PyTorch saves nothing",
    ),
    Choice("TERM", "ask to end", "end"),
    Choice(
        "KILL",
        "end now; no checkpoint, shared memory may stay in /dev/shm",
        "kill",
        confirm=True,
        brief="no checkpoint; /dev/shm may stay full",
    ),
    Choice("USR1", "checkpoint, where the program handles it; else it ends", "none"),
    Choice("STOP", "freeze; its GPU memory stays in use", "freeze"),
    Choice("CONT", "thaw", "none"),
)
BY_NAME = {choice.name: choice for choice in CHOICES}


@record(frozen=True, slots=True)
class Order:
    """What a person decided in the dialog."""

    choice: Choice
    scope: Scope = Scope.PROCESS
    confirmed: bool = False  # said yes a second time, for KILL
    insists: bool = False  # typed the pid although there are cautions
    watch_s: float = WATCH_S


@record(frozen=True, kw_only=True)
class Signalled(Result):
    """What came of a signal: an outcome for each process, and who is still there though it should have ended."""

    outcomes: tuple[Outcome, ...] = ()
    still: tuple[int, ...] = ()


class Signal:
    """The action."""

    id = "signal"
    title = "Signal"

    def why_not(self, process: Process, rights: Rights) -> str | None:
        """Why nothing can be sent to it: read-only, pid 1, a kernel thread, not verified, ended, somebody else's."""
        return untouchable(process, rights)

    def run(self, hold: Hold, options: Order, tell: Callable[[Run], object]) -> Run:
        """Send it to everybody in the scope, then watch until they have ended, stopped or gone on."""
        title = f"{options.choice.name} to {hold.process.pid}"
        return begin(title, hold, lambda run: _send(hold, options, run), tell)


SIGNAL = Signal()


def warnings(hold: Hold, scope: Scope, choice: Choice) -> tuple[str, ...]:
    """What a person should know before sending: who else is hit, and who will not do what is asked. Reads /proc."""
    said = list(_reactions(hold, scope, choice))
    chosen = {process.identity for process in hold.who(scope)}
    return (*consequences(hold.frame, chosen, choice.effect), *said)


def _reactions(hold: Hold, scope: Scope, choice: Choice) -> Iterator[str]:
    targets = [held for held in hold.held(scope) if isinstance(held, Target)]
    trainers = [target for target in targets if target.process.role is Role.TRAINER]
    # a loader does as its trainer does, but for a message that it was never told of
    asked = targets if choice.effect == "none" else trainers or targets[:1]
    found: dict[str, list[int]] = {}
    for target in asked:
        for reaction in _reacts(target, choice):
            found.setdefault(reaction, []).append(target.pid)
    for reaction, pids in found.items():
        yield f"{pids[0] if len(pids) == 1 else f'each of {len(pids)} processes'} {reaction}"


def _reacts(target: Target, choice: Choice) -> Iterator[str]:
    reaction, state = target.reaction(choice.number), target.state()
    if choice.name == "USR1" and reaction == "default":
        yield "does not handle USR1: it will end"
    elif choice.effect in ("interrupt", "end") and reaction == "ignored":
        yield f"ignores {choice.name}"
    if choice.effect in ("interrupt", "end") and state == "T":
        yield f"is frozen: it gets {choice.name} when it is thawed (CONT)"
    elif choice.effect != "none" and state == "D":
        yield "waits in the kernel (state D): it may end only when that is over"


def _send(hold: Hold, order: Order, run: Run) -> Signalled:
    choice = order.choice
    if choice.confirm and not order.confirmed:
        return Signalled(text=f"nothing sent: {choice.name} needs a second yes", good=False)
    if why := hold.why_not(order.scope):
        return Signalled(text=f"nothing sent: {why}", good=False)
    held = hold.held(order.scope)
    if choice.name == "CONT":
        held.reverse()  # a launcher that wakes before its ranks might take them for dead
    outcomes = tuple(attempt(one, order.insists, "nothing sent", lambda it: it.signal(choice.number)) for one in held)
    done = {outcome.pid for outcome in outcomes if outcome.kind == "done"}
    watch = Watch([one for one in held if isinstance(one, Target) and one.pid in done], _goal(choice))
    only_tells = _only_tells(hold, choice)
    limit_s = min(LOOK_S, order.watch_s) if only_tells else order.watch_s
    while watch.left and watch.passed_s() < limit_s and not run.cancelled:
        run.say(watch.progress(f"{choice.name} sent"))
        watch.look()
    said = tuple(outcome.text for outcome in outcomes if outcome.text)
    if not done:
        return Signalled(text=_none(outcomes), good=False, lines=said, outcomes=outcomes)
    message = only_tells or (run.cancelled and watch.left)
    text = watch.told(f"{choice.name} sent") if message else watch.text()
    still = () if message else tuple(target.pid for target in watch.left)
    if run.cancelled and watch.left:
        text += "; not watched to the end"
    missed = len(outcomes) - len(done)
    return Signalled(
        text=f"{text}; {words.amount(missed, 'process')} left out" if missed else text,
        good=not (missed or still),
        lines=(*said, *(f"{target.pid} {_why_still(target, choice)}" for target in watch.left if target.pid in still)),
        outcomes=outcomes,
        still=still,
    )


def _goal(choice: Choice) -> Goal:
    return "freeze" if choice.effect == "freeze" else "thaw" if choice.name == "CONT" else "end"


def _only_tells(hold: Hold, choice: Choice) -> bool:
    """Whether it is a message, after which the process is expected to go on."""
    notebook = any(job.key == hold.process.job and job.launcher == "notebook" for job in hold.frame.jobs)
    return choice.name == "USR1" or (choice.effect == "interrupt" and notebook)


def _none(outcomes: tuple[Outcome, ...]) -> str:
    if len(outcomes) == 1:
        return outcomes[0].text
    return f"nothing sent to any of {words.amount(len(outcomes), 'process')}"


def _why_still(target: Target, choice: Choice) -> str:
    state = target.state()
    if state == "D":
        return "waits in the kernel (state D), often for storage or the driver: it may end only when that is over"
    if choice.effect == "kill":
        return "is being ended by the kernel; freeing much memory takes a while"
    if state == "T" and _goal(choice) == "end":
        return f"is frozen: it gets {choice.name} when it is thawed (CONT)"
    if target.reaction(choice.number) == "ignored":
        return f"ignores {choice.name}"
    return "may be saving a checkpoint; KILL would end it without one" if _goal(choice) == "end" else "did not react"
