"""Stacks: where every thread of a process is now, of its loaders too, or of all ranks of its job."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from gputop import labels
from gputop.actions.action import Result, Run, begin
from gputop.actions.handles import Handles, Scope
from gputop.actions.pyspy import runner
from gputop.actions.pyspy.runner import find
from gputop.actions.target import Refusal, Rights, Target, untouchable
from gputop.frozen_dataclass import frozen_dataclass
from gputop.model import Frame, Process, Role
from gputop.profile.dump import ThreadStack, parse
from gputop.profile.ranks import INSIDE, Ran, Ranks, compare, waits_inside
from gputop.safe import ptrace_access
from gputop.safe.files import Refused
from gputop.safe.ptrace_access import Barred
from gputop.safe.text import decode

# where glibc keeps the number of a thread, from its pthread_t on: x86-64 and aarch64
_TID_AT = (720, 208)
_INT = 4


@frozen_dataclass(frozen=True, slots=True)
class Task:
    """One thread as /proc shows it."""

    tid: int  # as we see it
    state: str  # R runs or is ready to, S sleeps, D waits in the kernel, T is stopped
    name: str


def tasks(pid: int, proc: str = "/proc") -> dict[int, Task]:
    """The threads of a process by their number in its own PID namespace, which is the one it knows itself by."""
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


def measured(
    threads: Sequence[ThreadStack], pid: int, before: Mapping[int, Task], after: Mapping[int, Task], proc: str = "/proc"
) -> tuple[ThreadStack, ...]:
    """The stacks with what the kernel says of each thread, the main one first. What it does not tell is unknown.

    A thread waits if it waited before its stack was read and after.
    """
    found = []
    for thread in threads:
        inner = thread.tid if thread.tid is not None else _numbered(thread, pid, after, proc)
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


def _numbered(thread: ThreadStack, pid: int, known: Mapping[int, Task], proc: str) -> int | None:
    """The number of a thread of which Python knows the pthread_t only; None where that leads to no thread of it."""
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


def ran(pid: int, proc: str = "/proc") -> Ran | None:
    """How often the main thread of a process has gone to sleep so far, and the CPU time it has used.

    Only voluntary switches count: one that spins is preempted as often as the scheduler likes.
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
            return Ran(wakes, int(file.read(128).split()[0]) / 1e9)
    except (OSError, ValueError, IndexError):
        return Ran(wakes, None)


def since(pid: int, before: Ran | None) -> Ran | None:
    """What was added to that since then."""
    now = ran(pid)
    if before is None or now is None:
        return None
    cpu_s = None if now.cpu_s is None or before.cpu_s is None else now.cpu_s - before.cpu_s
    return Ran(now.wakes - before.wakes, cpu_s)


def added(spans: Sequence[Ran | None]) -> Ran | None:
    """That of several spans together; None where one of them is unknown."""
    known = [span for span in spans if span is not None]
    cpu = [span.cpu_s for span in known if span.cpu_s is not None]
    if not known or len(known) < len(spans):
        return None
    return Ran(sum(span.wakes for span in known), sum(cpu) if len(cpu) == len(known) else None)


AT_ONCE = 16  # processes that are looked at together
SECOND_S = 1.0  # ranks of a job are looked at for so long: one that stands still is told by all looks but the first
# after these parts of that time: a step that mostly waits in one line is easily caught there twice, and one that takes
# as long as the time between two looks is caught there each time
_PARTS = (0.23, 0.45, 0.32)
_SETTLES_S = 0.1  # after a look with native frames, which stops every thread and wakes it: that is no work of its own
_LONGEST_S = 15.0
_TRIES = 4  # a stack that changes while it is read without a pause may be unreadable

_Meant = tuple[Process, Target | Refusal]


@frozen_dataclass(frozen=True, slots=True)
class Asked:
    """What a person wants to see."""

    scope: Scope = Scope.PROCESS  # LOADERS: its loaders too; JOB: all ranks of its job, several times; TAGGED: those
    native: bool = False  # C and C++ frames too; pauses each process for a third of a second


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """The threads of one process, the main one first, or why they cannot be seen."""

    process: Process
    threads: tuple[ThreadStack, ...] = ()
    barred: Barred | None = None
    without: str | None = None  # why native frames that were asked for are missing


@frozen_dataclass(frozen=True, kw_only=True)
class StackResult(Result):
    """What was seen, in the order of the job; `ranks` compares its ranks where the whole job was asked for."""

    processes: tuple[Shown, ...] = ()
    ranks: Ranks | None = None


class Stack:
    """The action."""

    id = "stack"
    title = "Stacks"

    def rights(self, rights: Rights) -> Rights:
        """What its hold is made with: looking is allowed with --readonly, and on pid 1."""
        return replace(rights, looks=True)

    def why_not(self, process: Process, rights: Rights) -> str | None:
        """Why its stacks cannot be read: not on this machine, ended, somebody else's, forbidden, no py-spy."""
        barred = self.barred(process, rights)
        return barred.line if barred else None

    def barred(self, process: Process, rights: Rights) -> Barred | None:
        """The same, with what would change it apart."""
        return unreadable(process, self.rights(rights), self.id)

    def run(self, hold: Handles, options: Asked, tell: Callable[[Run], object]) -> Run:
        """Look; the result is a StackResult."""
        return begin(f"stacks of {hold.process.pid}", hold, lambda run: _look(hold, options, run), tell)


STACK = Stack()


def unreadable(process: Process, rights: Rights, command: str) -> Barred | None:
    """Why py-spy can do nothing with a process: it is not ours to touch, py-spy is missing, or barred."""
    why = untouchable(process, rights)
    if why is not None:
        return Barred(why)
    program = find()
    return program if isinstance(program, Barred) else cannot(process.pid, command)


def cannot(pid: int, command: str, *, pausing: bool = False) -> Barred | None:
    """Why py-spy cannot read this process, as the kernel says; None if it can. `pausing`: it is to be stopped, too."""
    barred = ptrace_access.barred(pid, command)
    if barred is None and pausing and (tracer := ptrace_access.tracer(pid)) is not None:
        return Barred(f"process {pid} is traced by {tracer[1]} ({tracer[0]}), and only one may: try without --native")
    return barred


def _look(hold: Handles, asked: Asked, run: Run) -> StackResult:
    program = find()
    if isinstance(program, Barred):
        return StackResult(text=program.text, good=False, lines=_unlocks([program]))
    if why := hold.why_not(asked.scope):
        return StackResult(text=f"nothing to show: {why}", good=False)
    meant, ranks_only = _meant(hold, asked.scope)
    run.say(f"reading the stacks of {labels.amount(len(meant), 'process')}")
    shown = _shown(meant, asked, program, run)
    ranks = None
    if ranks_only and len(shown) > 1:
        shown, ranks = _compared(meant, shown, asked, program, run)
    barred = [one.barred for one in shown if one.barred]
    read = len(shown) - len(barred)
    if not read:
        text = barred[0].text if len(barred) == 1 else f"no stack of {labels.amount(len(shown), 'process')} can be read"
    else:
        text = f"stacks of {labels.amount(read, 'process')}" + (f"; {len(barred)} cannot be read" if barred else "")
    inside = [
        f"{one.process.pid} {INSIDE}"
        for one in (shown if ranks is None and not asked.native else ())
        if one.process.role is Role.TRAINER and _of_several(hold.frame, one.process) and waits_inside(one.threads)
    ]
    native = [f"{one.process.pid}: no native frames ({one.without}), only Python's" for one in shown if one.without]
    stopped = [f"{one.pid} is stopped: kill -CONT {one.pid} sets it going" for _, one in meant if _stopped(one)]
    return StackResult(
        text=text, good=not barred, lines=(*_unlocks(barred), *native, *stopped, *inside), processes=shown, ranks=ranks
    )


def _compared(
    meant: Sequence[_Meant], shown: tuple[Shown, ...], asked: Asked, program: str, run: Run
) -> tuple[tuple[Shown, ...], Ranks | None]:
    """The ranks looked at again for a second, the last look, and what all looks say of them."""
    looks, spans = [shown], []
    for part in (1.0,) if asked.native else _PARTS:  # with native frames each look pauses them
        if asked.native and run.pause(_SETTLES_S):
            break
        before = [ran(process.pid) for process, _ in meant]
        if run.pause(SECOND_S * part):
            break
        spans.append([since(one.pid, was) for (one, _), was in zip(meant, before, strict=True)])
        looks.append(_shown(meant, asked, program, run))
    shown = looks[-1]
    if len(looks) > 1:
        seen = [[one.threads for one in look] for look in looks]
        counted = [added(of_rank) for of_rank in zip(*spans, strict=True)]
        return shown, compare([_label(one.process) for one in shown], *seen, ran=counted)
    return shown, None


def _meant(hold: Handles, scope: Scope) -> tuple[list[_Meant], bool]:
    """Whose stacks are read, and whether they are ranks, to be compared: of a job, and of several that are tagged."""
    everybody = list(zip(hold.who(scope), hold.held(scope), strict=True))
    ranks = [one for one in everybody if one[0].role is Role.TRAINER]
    if scope is Scope.JOB or (scope is Scope.TAGGED and len(ranks) > 1):
        return ranks, True
    return everybody, False


def _of_several(frame: Frame, process: Process) -> bool:
    """Whether it is, or may be, one of several ranks."""
    job = next((job for job in frame.jobs if job.key == process.job), None)
    return process.talks or (process.world_size or 0) > 1 or (job is not None and len(job.ranks) > 1)


def _stopped(held: Target | Refusal) -> bool:
    return isinstance(held, Target) and held.state() == "T"


def _label(process: Process) -> str:
    return str(process.pid) if process.rank is None else f"rank {process.rank}"


def _unlocks(barred: Sequence[Barred]) -> tuple[str, ...]:
    many = len(barred) > 1
    return tuple(dict.fromkeys(one.line if many else one.unlock or "" for one in barred if many or one.unlock))


def _shown(meant: Sequence[_Meant], asked: Asked, program: str, run: Run) -> tuple[Shown, ...]:
    found: list[Shown] = []
    for first in range(0, len(meant), AT_ONCE):
        some = meant[first : first + AT_ONCE]
        read = _read([held for _, held in some], asked, program, run)
        without: dict[int, str] = {}
        again = [held for _, held in some if asked.native and _failed(read[held.pid])]
        if again and not run.cancelled:  # py-spy may fail on the native frames alone, as across PID namespaces
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
    held: Sequence[Target | Refusal], asked: Asked, program: str, run: Run
) -> dict[int, tuple[ThreadStack, ...] | Barred]:
    """The stacks of some processes, read at the same time, again where one could not be read."""
    found: dict[int, tuple[ThreadStack, ...] | Barred] = {}
    left: list[Target] = []
    for one in held:
        barred = Barred(one.text) if isinstance(one, Refusal) else cannot(one.pid, "stack", pausing=asked.native)
        if barred is not None:
            found[one.pid] = barred
        elif isinstance(one, Target):
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


def _finished(spy: runner.Child, target: Target, before: Mapping[int, Task]) -> tuple[ThreadStack, ...] | Barred:
    try:
        spy.wait()
        trouble = spy.trouble()
        if target.ended():
            return Barred(f"process {target.pid} has ended")
        if trouble is not None:
            return trouble
        read = parse(spy.output().decode("utf-8", "replace"), target.pid)
        return measured(read, target.pid, before, tasks(target.pid))
    except Refused as refused:
        return Barred(f"py-spy: {refused}")
    finally:
        spy.close()
