"""A process named on the command line: look it up, hold it as the screen does, and act on it."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Event
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from gputop.cli.options import FAILED, OK, USAGE, Failure
from gputop.cli.sources import open_source
from gputop.model import Frame, Process, Role
from gputop.safe.terminal import on_ending

if TYPE_CHECKING:
    from gputop.actions import Action, ActionResult, ActionRun, Rights
    from gputop.config import Settings
    from gputop.profile.code import Call


_WINDOW_S = 0.5  # seconds over which CPU time is compared
_WAITS_S = 0.02  # of CPU in that time: a process that uses less only waits
_TRIES = 5  # repetitions if none has used any
_MOST = 256  # descendants read
_TORCH = b"/libtorch"
_JOINS = (("join", "multiprocessing/process.py"), ("join", "multiprocessing/spawn.py"), ("_wait", "/subprocess.py"))

Cpu = Callable[[Sequence[int]], dict[int, float]]


class ProgramsBelow(NamedTuple):
    """Programs below a process that do its work, the busiest first; and those that perhaps do."""

    work: tuple[Process, ...] = ()
    perhaps: tuple[Process, ...] = ()


def workers(
    frame: Frame, process: Process, cpu: Cpu | None = None, joining: Callable[[], bool] = lambda: False
) -> ProgramsBelow:
    """The programs below a process that do its work; empty if it does that itself.

    A process on a GPU, or an active one with torch, is a trainer itself. A waiting one with torch may train as well,
    fed by its children: these do the work if their agents have seen training steps, or if it is seen `joining` them.
    """
    from gputop.actions.torch_trace.routes import python_version
    from gputop.agent_client import mapped
    from gputop.collect.jobs.ancestry import Parentage

    if process.gpus or process.unseen is not None:
        return ProgramsBelow()
    tree = Parentage({one.pid: one.parent_pid for one in frame.processes if one.unseen is None})
    # the parent of gputop, such as a login shell, is no job
    ours = {os.getpid(), *tree.above(os.getpid()), *tree.below([os.getpid()])}
    below = tree.below([process.pid]) - ours
    by_pid = {one.pid: one for one in frame.processes if one.pid in below}
    own = python_version(process.pid) is not None
    trains = own and _TORCH in mapped(process.pid)  # otherwise its children's work is not loading for it
    programs = _programs(by_pid)
    steps = [one for one in programs if trains and runs_for(process, one) and _makes_steps(one)]
    programs = steps or [one for one in programs if not (trains and one.role is Role.LOADER)]
    torch = {one.pid for one in programs if _TORCH in mapped(one.pid)}
    chosen = [one for one in programs if one.gpus] or [one for one in programs if one.pid in torch] or programs
    if not chosen or (own and not any(one.gpus or one.pid in torch for one in chosen)):
        return ProgramsBelow()
    measured = _measure_cpu([process.pid, *(one.pid for one in chosen)], cpu or cpu_used, _TRIES if trains else 1)
    busy = [one for one in chosen if measured.get(one.pid, 0.0) >= _WAITS_S]
    if trains:
        if measured.get(process.pid, _WAITS_S) >= _WAITS_S or _has_loaders(by_pid):
            return ProgramsBelow()
        if not (steps or chosen == busy[:1] or joining()):
            return ProgramsBelow(perhaps=tuple(chosen))
        if busy and not steps:  # among them may be one that only holds a queue
            chosen = [one for one in chosen if measured.get(one.pid, 0.0) > 0]
    outer = [one for one in chosen if {other.pid for other in chosen}.isdisjoint(tree.above(one.pid))]
    return ProgramsBelow(tuple(sorted(outer, key=lambda one: -measured.get(one.pid, 0.0))))


def _programs(below: Mapping[int, Process]) -> list[Process]:
    """Python programs, the lowest PID first; without loaders and multiprocessing's helpers."""
    from gputop.actions.torch_trace.routes import python_version
    from gputop.collect.jobs.ancestry import LOADER
    from gputop.collect.jobs.launchers import is_service

    def serves(one: Process) -> bool:
        # a process forked by a fork server has that server's command line
        return is_service(one) and not ((parent := below.get(one.parent_pid)) and is_service(parent))

    return [
        one
        for one in sorted(below.values(), key=lambda one: one.pid)[:_MOST]
        if not serves(one) and not one.name.startswith(LOADER) and python_version(one.pid) is not None
    ]


def runs_for(process: Process, child: Process) -> bool:
    """Whether a child runs a function of a process through multiprocessing: forked, or spawned for that."""
    from gputop.collect.jobs.launchers import is_service, is_spawned

    return is_spawned(child) or is_service(child) or (bool(child.command) and child.command == process.command)


def started_by(frame: Frame, process: Process) -> Process:
    """The outermost process that this one runs a function for; itself if it runs its own program."""
    from gputop.collect.jobs.launchers import is_python

    by_pid = {one.pid: one for one in frame.processes if one.unseen is None}
    above = process
    while (parent := by_pid.get(above.parent_pid)) is not None and is_python(above):
        if not runs_for(parent, above):
            break
        above = parent
    return above


def waits_for_children(calls: Sequence[Call]) -> bool:
    """Whether a main thread waits for processes to end, other than its loaders at the end of an epoch."""
    waits = any(call.name.endswith(name) and call.file.endswith(file) for call in calls for name, file in _JOINS)
    return waits and not any(call.file.endswith("/dataloader.py") for call in calls)


def _makes_steps(process: Process) -> bool:
    """Whether an agent runs in a multiprocessing child: it starts there at the first optimizer step."""
    from gputop.agent_client import NoAgent, present

    try:
        return present(process.pid, process.started_ticks, process.uid)
    except NoAgent:
        return False


def _has_loaders(below: Mapping[int, Process]) -> bool:
    """Whether the common ancestor has DataLoader workers itself, not only through its children."""
    from gputop.collect.jobs.ancestry import LOADER
    from gputop.collect.jobs.launchers import is_service

    for one in below.values():
        parent = below.get(one.parent_pid)
        if one.name.startswith(LOADER) and (parent is None or is_service(parent)):
            return True
    return False


def _measure_cpu(pids: Sequence[int], cpu: Cpu, tries: int) -> dict[int, float]:
    """CPU use of each; measured again if neither of the first two used any, as on a busy machine."""
    for _ in range(tries):
        measured = cpu(pids)
        if any(measured.get(pid, 0.0) >= _WAITS_S for pid in pids[:2]):
            break
    return measured


def cpu_used(pids: Sequence[int]) -> dict[int, float]:
    """CPU seconds that each uses within a moment."""
    before = _read_cpu(pids)
    time.sleep(_WINDOW_S)
    return {pid: cpu_s - before[pid] for pid, cpu_s in _read_cpu(pids).items() if pid in before}


def _read_cpu(pids: Collection[int]) -> dict[int, float]:
    from gputop.safe.identity import read_stat

    stats = {pid: stat for pid in pids if (stat := read_stat(pid)) is not None}
    tick = os.sysconf("SC_CLK_TCK")
    return {pid: ((stat.user_ticks or 0) + (stat.system_ticks or 0)) / tick for pid, stat in stats.items()}


T = TypeVar("T")

_ANSWERS_S = 15
_ENDS_S = 20.0  # after Ctrl+C: py-spy may need half of it to write its data
_LOOKS = 6  # on a busy machine a command line is read after the first frame
_APART_S = 0.5
_READS_S = 5.0  # upper bound for reading a stack
_NAMED = 6  # jobs listed


def target_process(args: argparse.Namespace, settings: Settings) -> tuple[Frame, Process, Rights]:
    """The process meant by the PID on the command line, its frame, and what may be done.

    It may be any process of a job. One outside a job, as a shell script or `uv run` that started one, stands for the
    job below it, or for the one program there that does its work.
    """
    from gputop.actions import Rights
    from gputop.collect.jobs.family import family, recognized
    from gputop.source import Interest

    pid, spec = args.pid, getattr(args, "source", "live")
    if pid <= 0:
        raise Failure(f"{pid} is not a PID", USAGE)
    if spec == "live" and not Path(f"/proc/{pid}").is_dir():
        raise Failure(f"no process with PID {pid} is visible to you")
    source = open_source(spec, settings)
    source.interest = Interest(pids=frozenset({pid}), families=frozenset({pid}))
    if spec == "live":
        source.interval_s = min(source.interval_s, _APART_S)
    for frame in islice(source.frames(Event()), _LOOKS):
        process = next((process for process in frame.processes if process.pid == pid), None)
        if process is None:
            if spec == "live" and Path(f"/proc/{pid}").is_dir():
                continue  # on a busy machine a frame may lack some
            break
        kin = family(frame.processes, pid) if spec == "live" else {pid}
        if all(one.command or one.state in ("Z", "X") for one in frame.processes if one.pid in kin):
            break
    if process is None:
        raise Failure(f"no process with PID {pid} is visible to you: it exited, or {pid} is a thread")
    if spec == "live":
        frame = recognized(frame, pid)
    rights = Rights(readonly=settings.readonly, elsewhere=source.elsewhere)
    process = _find_process(frame, pid, _working_below if spec == "live" else None)
    if spec == "live" and not getattr(args, "launcher", False):
        frame, process = _worker(
            frame, _fed_program(frame, process) if getattr(args, "job", False) else process, rights
        )
    return frame, process, rights


def _find_process(
    frame: Frame, pid: int, working: Callable[[Frame, Process], Sequence[Process]] | None = None
) -> Process:
    """The process with this PID, or the first one of the job that it started.

    `working` finds programs below a process: one that does not look like a job may be one, and so may another process
    of the same script that has not begun to work.
    """
    from gputop import labels
    from gputop.collect.jobs.ancestry import Parentage
    from gputop.collect.jobs.family import jobs_of
    from gputop.collect.jobs.launchers import program

    process = next(process for process in frame.processes if process.pid == pid)
    jobs = jobs_of(frame, process)
    if process.job is not None or not jobs:
        return process
    root = frame.by_identity[jobs[0].members[0]]
    if len(jobs) > 1:
        raise _ambiguous(pid, labels.amount(len(jobs), "job"), [(job.members[0].pid, job.name) for job in jobs])
    tree = Parentage({one.pid: one.parent_pid for one in frame.processes if one.unseen is None})
    own = tree.kin(member.pid for member in jobs[0].members)
    below = tree.below([pid]) if working else ()
    script = program(root.command)[:2]
    alike = [one for one in frame.processes if one.pid in below and script[1] and program(one.command)[:2] == script]
    others = {one.pid: one.name for one in (*alike, *(working(frame, process) if working else ()))}
    if apart := others.keys() - own:
        named = sorted([(root.pid, jobs[0].name), *((one, others[one]) for one in apart)])
        raise _ambiguous(pid, labels.amount(len(named), "program"), named)
    sys.stderr.write(f"gputop: {pid} started job {jobs[0].name}: using its process {root.pid}\n")
    return root


def sibling_ranks(frame: Frame, pid: int) -> tuple[Process, ...]:
    """The ranks that a script started side by side, `rank 0 & rank 1 &`: none of them leads the others."""
    from gputop.actions.handles import led

    asked = next((process for process in frame.processes if process.pid == pid), None)
    ranks = led(frame, asked) if asked is not None and asked.job is None else ()
    return ranks if len(ranks) > 1 else ()


def _ambiguous(pid: int, what: str, found: Sequence[tuple[int, str]]) -> Failure:
    """Failure for a process that started several candidates: their PIDs and names."""
    named = ", ".join(f"{one} ({name})" for one, name in found[:_NAMED])
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    return Failure(f"{pid} started {what}: choose one of {named}{more}")


def _working_below(frame: Frame, process: Process) -> Sequence[Process]:
    return _programs_below(frame, process).work


def _programs_below(frame: Frame, process: Process, joining: Callable[[], bool] = lambda: False) -> ProgramsBelow:
    """The programs below a process that do its work; reading their mapped files may hang."""

    return call_with_deadline(process, partial(workers, joining=joining), frame, process)


def _worker(frame: Frame, process: Process, rights: Rights) -> tuple[Frame, Process]:
    """The program that does the work of a process outside a job: the one below it, as for a script, or itself.

    If the only rank of a job, or a common ancestor of all others, just waits for its children, those are the ranks.
    """
    from gputop import labels
    from gputop.collect.jobs.family import first_of, handed_on

    job = next((job for job in frame.jobs if job.key == process.job), None)
    above = started_by(frame, process) if job is None else first_of(frame, job)
    if above is None:
        return frame, process
    found, perhaps = _programs_below(frame, above, lambda: _joins(frame, above, rights))
    if perhaps and above is process:
        may = f"{_pids(perhaps)} below it may do the work: choose one of those"
        sys.stderr.write(f"gputop: {process.pid} is waiting, and {may}\n")
    if not found or (job is not None and any(one.job != job.key for one in found)):
        return frame, process
    if job is None and above is not process and (process not in found or len(found) == 1):
        return frame, process
    pids = _pids(found)
    several = f"{found[0].name} {pids}, which does" if len(found) == 1 else f"{len(found)} processes that do"
    said = f"{above.pid} started {several} the work" + (f": {pids}" if len(found) > 1 else "")
    if job is not None or (len(found) > 1 and all(runs_for(above, one) for one in found)):
        frame = handed_on(frame, above, found)
        sys.stderr.write(f"gputop: {said}\n")
        return frame, frame.by_identity[process.identity]
    if len(found) > 1:
        programs = labels.amount(len(found), "program")
        raise _ambiguous(process.pid, programs, [(one.pid, one.name) for one in found])
    sys.stderr.write(f"gputop: {said}: using that process\n")
    return _worker(frame, found[0], rights)


def _pids(processes: Sequence[Process]) -> str:
    first = ", ".join(str(pid) for pid in sorted(one.pid for one in processes)[:_NAMED])
    return f"{first} and {len(processes) - _NAMED} more" if len(processes) > _NAMED else first


def _joins(frame: Frame, process: Process, rights: Rights) -> bool:
    """Whether the main thread of a process just waits for others to end; False if its stack is unreadable."""
    from gputop.actions import Handles
    from gputop.actions.pyspy import STACK, Asked, StackResult

    if STACK.why_not(process, rights):
        return False
    arrived: SimpleQueue[ActionRun] = SimpleQueue()
    handles = Handles(frame, process, STACK.rights(rights))
    run = STACK.run(handles, Asked(), arrived.put)
    handles.close()
    try:
        while run.result is None:
            arrived.get(timeout=_READS_S)
    except Empty:
        return False
    shown = run.result.processes if isinstance(run.result, StackResult) else ()
    return any(one.main and waits_for_children(one.calls) for each in shown for one in each.threads)


def rank_of(frame: Frame, process: Process) -> Process:
    """The process that this one works for: its rank for a DataLoader worker, else itself."""
    from gputop.collect.jobs.family import rank_of
    from gputop.model import Role

    if process.job is None:
        return _fed_program(frame, process)
    if process.role in (Role.TRAINER, Role.LAUNCHER):
        return process
    rank = rank_of(frame, process)
    if rank is None:
        job = next(job for job in frame.jobs if job.key == process.job)
        rank = frame.by_identity[job.ranks[0]]
    what = "a DataLoader worker" if process.role is Role.LOADER else "a helper process"
    sys.stderr.write(f"gputop: {process.pid} is {what} in the job of rank {rank.pid}: using that rank\n")
    return rank


def _fed_program(frame: Frame, process: Process) -> Process:
    """For a DataLoader worker outside a job, the program it loads for, which does not look like a trainer."""
    from gputop.actions.torch_trace.routes import python_version
    from gputop.collect.jobs.ancestry import LOADER
    from gputop.collect.jobs.launchers import is_service

    by_pid = {one.pid: one for one in frame.processes if one.unseen is None}
    above: Process | None = process
    while above is not None and (above.name.startswith(LOADER) or (above is not process and is_service(above))):
        above = by_pid.get(above.parent_pid)
    if above is None or above is process or call_with_deadline(above, python_version, above.pid) is None:
        return process
    sys.stderr.write(f"gputop: {process.pid} is a DataLoader worker of {above.pid}: using {above.pid}\n")
    return above


def call_with_deadline(process: Process, ask: Callable[..., T], *arguments: Any) -> T:
    """The result of `ask`, called in a separate thread: reading a hung process may block beyond Ctrl+C."""
    from gputop.safe.deadline import NoAnswer, within

    try:
        return within(f"/proc/{process.pid}", ask, *arguments, seconds=_ANSWERS_S)
    except NoAnswer:
        raise Failure(
            f"{process.pid} cannot be read: /proc/{process.pid} did not respond within {_ANSWERS_S} s"
        ) from None


def run_action(
    action: Action[Any], frame: Frame, process: Process, rights: Rights, options: Any
) -> tuple[ActionResult, int]:
    """Run an action to its end with progress on a terminal; return the result and the exit code.

    Ctrl+C, SIGTERM and SIGHUP cancel it and keep what it has; a second one, or some seconds, end the wait.
    """
    results, code = run_actions(action, frame, (process,), rights, options)
    return results[0], code


def run_actions(
    action: Action[Any], frame: Frame, processes: Sequence[Process], rights: Rights, options: Any
) -> tuple[list[ActionResult], int]:
    """The same on several processes at once; one result each."""
    from gputop.actions import Handles

    arrived: SimpleQueue[ActionRun | int] = SimpleQueue()
    on_ending(lambda number, _: arrived.put(number))
    runs = []
    for process in processes:
        handles = Handles(frame, process, rights)
        runs.append(action.run(handles, options, arrived.put))
        handles.close()
    ended = 0
    while True:
        try:
            what = arrived.get(timeout=_ENDS_S if ended else None)
        except Empty:
            raise Failure("stopped before it was done: the process does not respond", 128 + ended) from None
        results = [run.result for run in runs if run.result is not None]
        if isinstance(what, int):
            if ended:
                raise Failure("stopped before it was done", 128 + what)
            ended = what
            for run in runs:
                run.cancel()
        elif len(results) == len(runs):
            _show_progress("")
            code = OK if all(result.good for result in results) else FAILED
            return results, 128 + ended if ended else code
        elif what.result is None:
            _show_progress(what.line if len(runs) == 1 else f"{what.title}: {what.line}")


def _show_progress(line: str) -> None:
    """Rewrite the progress line of a terminal; nothing elsewhere."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{line}")
        sys.stderr.flush()
