"""Stacks of all threads of a process, of its loaders, or of all ranks of its job."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from threading import Thread

from gputop import labels
from gputop.actions.action import ActionResult, ActionRun, start_run
from gputop.actions.handles import Handles, Scope
from gputop.actions.pyspy import runner
from gputop.actions.pyspy.runner import find
from gputop.actions.target import Refusal, Rights, TargetProcess, untouchable
from gputop.collectives.comparison import Position
from gputop.collectives.report import Collectives, conclude
from gputop.collectives.survey import Survey, ask, label
from gputop.frozen_dataclass import frozen_dataclass
from gputop.model import Frame, Process, Role
from gputop.profile.dump import ThreadStack, parse
from gputop.profile.ranks import INSIDE, RankPosition, Ranks, ThreadCounters, compare, waits_inside
from gputop.safe import ptrace_access
from gputop.safe.files import Refused
from gputop.safe.ptrace_access import Barred
from gputop.safe.text import decode

# offset of the thread id in glibc's pthread structure: x86-64 and aarch64
_TID_AT = (720, 208)
_INT = 4


@frozen_dataclass(frozen=True, slots=True)
class Task:
    """One thread as /proc shows it."""

    tid: int  # in our PID namespace
    state: str  # R running or runnable, S sleeping, D blocked in the kernel, T stopped
    name: str


def tasks(pid: int, proc: str = "/proc") -> dict[int, Task]:
    """The threads of a process by thread id in its own PID namespace, as the process knows them."""
    found: dict[int, Task] = {}
    try:
        tids = os.listdir(f"{proc}/{pid}/task")
    except OSError:
        return found
    for tid in tids:
        folder = f"{proc}/{pid}/task/{tid}"
        try:
            with open(f"{folder}/status", "rb") as file:
                fields = dict(line.split(b":", 1) for line in file.read(4096).split(b"\n") if b":" in line)
            inner = int(fields.get(b"NSpid", tid.encode()).split()[-1])
            state = decode(fields[b"State"].split()[0])
        except (OSError, ValueError, KeyError, IndexError):
            continue  # it has ended
        found[inner] = Task(int(tid), state, decode(fields.get(b"Name", b"").strip()))
    return found


def with_kernel_states(
    threads: Sequence[ThreadStack], pid: int, before: Mapping[int, Task], after: Mapping[int, Task], proc: str = "/proc"
) -> tuple[ThreadStack, ...]:
    """The stacks with each thread's kernel state, the main one first; unknown states stay None.

    A thread waits if it waited both before and after its stack was read.
    """
    found = []
    for thread in threads:
        inner = thread.tid if thread.tid is not None else _thread_id(thread, pid, after, proc)
        if inner is None and thread.main:
            inner = next((number for number, task in after.items() if task.tid == pid), None)
        task = after.get(inner) if inner is not None else None
        if inner is None or task is None:
            found.append(replace(thread, active=None, state=None))
            continue
        earlier = before.get(inner, task)
        state = "R" if "R" in (earlier.state, task.state) else task.state
        found.append(
            replace(
                thread,
                tid=task.tid,
                name=thread.name or task.name,
                main=task.tid == pid,
                state=state,
                active=state == "R",
            )
        )
    return tuple(sorted(found, key=lambda thread: (not thread.main, thread.tid or 0)))


def _thread_id(thread: ThreadStack, pid: int, known: Mapping[int, Task], proc: str) -> int | None:
    """Thread id for a known pthread_t; None if that leads to no thread of the process."""
    if thread.handle is None:
        return None
    try:
        fd = os.open(f"{proc}/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        for place in _TID_AT:
            number = int.from_bytes(os.pread(fd, _INT, thread.handle + place), "little")
            if number in known:
                return number
    except (OSError, OverflowError):
        pass
    finally:
        os.close(fd)
    return None


def main_thread_activity(pid: int, proc: str = "/proc") -> ThreadCounters | None:
    """Voluntary context switches and CPU time of a process's main thread so far.

    Involuntary switches do not count: a spinning thread is preempted at the scheduler's will.
    """
    folder = f"{proc}/{pid}/task/{pid}"
    try:
        with open(f"{folder}/status", "rb") as file:
            fields = dict(line.split(b":", 1) for line in file.read(8192).split(b"\n") if b":" in line)
        wakes = int(fields[b"voluntary_ctxt_switches"])
    except (OSError, ValueError, KeyError):
        return None
    try:
        with open(f"{folder}/schedstat", "rb") as file:
            return ThreadCounters(wakes, int(file.read(128).split()[0]) / 1e9)
    except (OSError, ValueError, IndexError):
        return ThreadCounters(wakes, None)


def activity_since(pid: int, before: ThreadCounters | None) -> ThreadCounters | None:
    """The increase since `before`."""
    now = main_thread_activity(pid)
    if before is None or now is None:
        return None
    cpu_s = None if now.cpu_s is None or before.cpu_s is None else now.cpu_s - before.cpu_s
    return ThreadCounters(now.wakes - before.wakes, cpu_s)


def total_activity(spans: Sequence[ThreadCounters | None]) -> ThreadCounters | None:
    """The sum over several spans; None if one is unknown."""
    known = [span for span in spans if span is not None]
    cpu = [span.cpu_s for span in known if span.cpu_s is not None]
    if not known or len(known) < len(spans):
        return None
    return ThreadCounters(sum(span.wakes for span in known), sum(cpu) if len(cpu) == len(known) else None)


AT_ONCE = 16  # processes read at the same time
SECOND_S = 1.0  # seconds over which ranks are sampled: a hung one is the same in all samples but the first
# sample times as fractions of that: irregular, so that neither a long wait nor a periodic step coincides with all
_PARTS = (0.23, 0.45, 0.32)
_SETTLES_S = 0.1  # after a sample with native frames, which wakes every thread: no activity of its own
_LONGEST_S = 15.0
_TRIES = 4  # a stack that changes while it is read without a pause may be unreadable

_Meant = tuple[Process, TargetProcess | Refusal]


@frozen_dataclass(frozen=True, slots=True)
class Asked:
    """Options of a stack dump."""

    scope: Scope = Scope.PROCESS  # LOADERS: with its loaders; JOB: all ranks of its job, several times; TAGGED
    native: bool = False  # C and C++ frames, too; pauses each process for a third of a second


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """The threads of one process, the main one first, or why they cannot be read."""

    process: Process
    threads: tuple[ThreadStack, ...] = ()
    barred: Barred | None = None
    without: str | None = None  # why requested native frames are missing


@frozen_dataclass(frozen=True, kw_only=True)
class StackResult(ActionResult):
    """The stacks in the order of the job; `ranks` compares its ranks if the whole job was requested.

    `collectives`: what its ranks reported about theirs, if any did.
    """

    processes: tuple[Shown, ...] = ()
    ranks: Ranks | None = None
    collectives: Collectives | None = None


class Stack:
    """The action."""

    id = "stack"
    title = "Stacks"

    def rights(self, rights: Rights) -> Rights:
        """Rights for its handles: reading is allowed with --readonly, and on PID 1."""
        return replace(rights, reads_only=True)

    def why_not(self, process: Process, rights: Rights) -> str | None:
        """Why its stacks cannot be read: on another machine, ended, another user's, forbidden, no py-spy."""
        barred = self.barred(process, rights)
        return barred.line if barred else None

    def barred(self, process: Process, rights: Rights) -> Barred | None:
        """The same, with the remedy as a separate field."""
        return why_unreadable(process, self.rights(rights), self.id)

    def run(self, handles: Handles, options: Asked, tell: Callable[[ActionRun], object]) -> ActionRun:
        """Read the stacks; the result is a StackResult."""
        return start_run(f"stacks of {handles.process.pid}", handles, lambda run: _dump(handles, options, run), tell)


STACK = Stack()


def why_unreadable(process: Process, rights: Rights, command: str) -> Barred | None:
    """Why py-spy cannot read a process: no permission, py-spy missing, or another obstacle."""
    why = untouchable(process, rights)
    if why is not None:
        return Barred(why)
    program = find()
    return program if isinstance(program, Barred) else kernel_refusal(process.pid, command)


def kernel_refusal(pid: int, command: str, *, pausing: bool = False) -> Barred | None:
    """Why the kernel lets py-spy not read this process; None if it does. `pausing`: it must be stopped, too."""
    barred = ptrace_access.barred(pid, command)
    if barred is None and pausing and (tracer := ptrace_access.tracer(pid)) is not None:
        return Barred(
            f"process {pid} is traced by {tracer[1]} ({tracer[0]}), and only one tracer is allowed: omit --native"
        )
    return barred


def _dump(handles: Handles, asked: Asked, run: ActionRun) -> StackResult:
    program = find()
    if isinstance(program, Barred):
        return StackResult(text=program.text, good=False, lines=_unlocks([program]))
    if why := handles.why_not(asked.scope):
        return StackResult(text=f"nothing to show: {why}", good=False)
    meant, ranks_only = _targets(handles, asked.scope)
    run.say(f"reading the stacks of {labels.amount(len(meant), 'process')}")
    first = _FirstSurvey([process for process, _ in meant]) if ranks_only and len(meant) > 1 else None
    shown = _read_all(meant, asked, program, run)
    ranks, collectives = None, None
    if first is not None:
        shown, ranks = _compare_ranks(meant, shown, asked, program, run)
        run.say("asking the ranks for their collectives")
        collectives = None if run.cancelled else first.concluded(ranks)
    barred = [one.barred for one in shown if one.barred]
    read = len(shown) - len(barred)
    if not read:
        text = barred[0].text if len(barred) == 1 else f"no stack of {labels.amount(len(shown), 'process')} can be read"
    else:
        text = f"stacks of {labels.amount(read, 'process')}" + (f"; {len(barred)} cannot be read" if barred else "")
    inside = [
        f"{one.process.pid} {INSIDE}"
        for one in (shown if ranks is None and not asked.native else ())
        if one.process.role is Role.TRAINER and _is_rank(handles.frame, one.process) and waits_inside(one.threads)
    ]
    native = [
        f"{one.process.pid}: no native frames ({one.without}), only Python frames" for one in shown if one.without
    ]
    stopped = [f"{one.pid} is suspended: kill -CONT {one.pid} resumes it" for _, one in meant if _stopped(one)]
    return StackResult(
        text=text,
        good=not barred,
        lines=(*_unlocks(barred), *native, *stopped, *inside),
        processes=shown,
        ranks=ranks,
        collectives=collectives,
    )


class _FirstSurvey:
    """Asks ranks for their collectives while their stacks are sampled, and again afterwards: a hung one is the same."""

    def __init__(self, ranks: Sequence[Process]) -> None:
        self._ranks = ranks
        self._survey: Survey | None = None
        self._thread: Thread | None = Thread(target=self._ask, name="first survey", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:  # this user's thread limit is reached
            self._thread = None

    def _ask(self) -> None:
        self._survey = ask(self._ranks)

    def concluded(self, compared: Ranks | None) -> Collectives | None:
        """What both surveys mean, with where the ranks are; None if no rank answers."""
        if self._thread is not None:
            self._thread.join()  # it has a deadline
        before = self._survey
        if before is None or not before.answered:
            return None
        now = {place.label: _position(place) for place in compared.places} if compared else {}
        return conclude(ask(self._ranks) if before.records else before, before, now)


def _position(place: RankPosition) -> Position:
    own = place.own
    called = f"{own.file.rpartition('/')[2]}:{own.line}" if own and own.line and place.collective else ""
    where = own or place.inner
    return Position(where.text if where else "", called)


def _compare_ranks(
    meant: Sequence[_Meant], shown: tuple[Shown, ...], asked: Asked, program: str, run: ActionRun
) -> tuple[tuple[Shown, ...], Ranks | None]:
    """Sample the ranks again for a second; return the last sample, and the comparison of all samples."""
    looks, spans = [shown], []
    for part in (1.0,) if asked.native else _PARTS:  # with native frames each sample pauses them
        if asked.native and run.pause(_SETTLES_S):
            break
        before = [main_thread_activity(process.pid) for process, _ in meant]
        if run.pause(SECOND_S * part):
            break
        spans.append([activity_since(one.pid, was) for (one, _), was in zip(meant, before, strict=True)])
        looks.append(_read_all(meant, asked, program, run))
    shown = looks[-1]
    if len(looks) > 1:
        seen = [[one.threads for one in look] for look in looks]
        counted = [total_activity(of_rank) for of_rank in zip(*spans, strict=True)]
        return shown, compare([label(one.process) for one in shown], *seen, ran=counted)
    return shown, None


def _targets(handles: Handles, scope: Scope) -> tuple[list[_Meant], bool]:
    """The processes to read, and whether they are ranks to compare: of a job, or several tagged ones."""
    targets = list(zip(handles.processes(scope), handles.held(scope), strict=True))
    ranks = [one for one in targets if one[0].role is Role.TRAINER]
    if scope is Scope.JOB or (scope is Scope.TAGGED and len(ranks) > 1):
        return ranks, True
    return targets, False


def _is_rank(frame: Frame, process: Process) -> bool:
    """Whether it is, or may be, one of several ranks."""
    job = next((job for job in frame.jobs if job.key == process.job), None)
    return process.talks or (process.world_size or 0) > 1 or (job is not None and len(job.ranks) > 1)


def _stopped(held: TargetProcess | Refusal) -> bool:
    return isinstance(held, TargetProcess) and held.state() == "T"


def _unlocks(barred: Sequence[Barred]) -> tuple[str, ...]:
    many = len(barred) > 1
    return tuple(dict.fromkeys(one.line if many else one.unlock or "" for one in barred if many or one.unlock))


def _read_all(meant: Sequence[_Meant], asked: Asked, program: str, run: ActionRun) -> tuple[Shown, ...]:
    found: list[Shown] = []
    for first in range(0, len(meant), AT_ONCE):
        some = meant[first : first + AT_ONCE]
        read = _read([held for _, held in some], asked, program, run)
        without: dict[int, str] = {}
        again = [held for _, held in some if asked.native and _failed(read[held.pid])]
        if again and not run.cancelled:  # native frames alone may fail, as across PID namespaces
            plain = _read(again, replace(asked, native=False), program, run)
            for pid, got in plain.items():
                if not isinstance(got, Barred):
                    without[pid], read[pid] = _text(read[pid]), got
        for process, _ in some:
            got = read[process.pid]
            if isinstance(got, Barred):
                found.append(Shown(process=process, barred=got))
            else:
                found.append(Shown(process=process, threads=got, without=without.get(process.pid)))
    return tuple(found)


def _failed(got: tuple[ThreadStack, ...] | Barred) -> bool:
    return isinstance(got, Barred) and runner.may_be_native(got)


def _text(got: tuple[ThreadStack, ...] | Barred) -> str:
    return got.text if isinstance(got, Barred) else ""


def _read(
    held: Sequence[TargetProcess | Refusal], asked: Asked, program: str, run: ActionRun
) -> dict[int, tuple[ThreadStack, ...] | Barred]:
    """The stacks of several processes, read at the same time, retried where one could not be read."""
    found: dict[int, tuple[ThreadStack, ...] | Barred] = {}
    left: list[TargetProcess] = []
    for one in held:
        barred = (
            Barred(one.text) if isinstance(one, Refusal) else kernel_refusal(one.pid, "stack", pausing=asked.native)
        )
        if barred is not None:
            found[one.pid] = barred
        elif isinstance(one, TargetProcess):
            left.append(one)
    options = ["dump", "--json", "--full-filenames", "--native" if asked.native else "--nonblocking"]
    for _ in range(_TRIES):
        started = [
            (one, tasks(one.pid), runner.start(program, one.pid, options, seconds=_LONGEST_S, to_file=False))
            for one in left
        ]
        left = []
        for target, before, spy in started:
            got = spy if isinstance(spy, Barred) else _finished(spy, target, before)
            found[target.pid] = got
            if isinstance(got, Barred) and got.text.startswith("py-spy: ") and not target.ended():
                left.append(target)
        if not left or run.cancelled:
            break
    return found


def _finished(spy: runner.Child, target: TargetProcess, before: Mapping[int, Task]) -> tuple[ThreadStack, ...] | Barred:
    try:
        spy.wait()
        trouble = spy.trouble()
        if target.ended():
            return Barred(f"process {target.pid} exited")
        if trouble is not None:
            return trouble
        read = parse(spy.output().decode("utf-8", "replace"), target.pid)
        return with_kernel_states(read, target.pid, before, tasks(target.pid))
    except Refused as refused:
        return Barred(f"py-spy: {refused}")
    finally:
        spy.close()
