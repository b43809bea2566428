"""Record some steps of all ranks at once with torch's profiler in the processes, and collect the traces."""

from __future__ import annotations

import gzip
import io
import os
import re
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from gputop import labels
from gputop.actions.action import ActionResult, ActionRun, start_run
from gputop.actions.handles import Handles, Scope
from gputop.actions.target import Refusal, Rights, TargetProcess, identity_fields, open_target
from gputop.actions.torch_trace import kineto, remote_exec
from gputop.actions.torch_trace.capture import MOST_STEPS, ProcessCapture, Traced, TraceOrder, capture
from gputop.actions.torch_trace.routes import Route, route
from gputop.model import Frame, Process, Role
from gputop.profile import store
from gputop.profile.store import StoredProfile
from gputop.safe import files
from gputop.safe.deadline import within
from gputop.safe.files import Refused
from gputop.safe.ptrace_access import Barred

if TYPE_CHECKING:
    from gputop.trace.verdict import TraceView


_NAME = re.compile(r"(?!\.)[A-Za-z0-9._-]{1,120}\.json")
_MOST_BYTES = 1 << 30
_CHUNK = 1 << 20
_CHUNK_S = 10.0  # for each part: a file server may be slow
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LEVEL = 3  # a trace compresses to a tenth at any level


def collect(process: Process, shots: Sequence[ProcessCapture]) -> tuple[StoredProfile, dict[str, ProcessCapture]]:
    """Store the traces under the name of a process; return the location and each file's source. Refused on failure.

    The programs' own files are removed.
    """
    names = {_file(shot.target.process, len(shots) > 1): shot for shot in shots}
    packed = {name: _compressed(shot) for name, shot in names.items()}
    meta = {
        "at_s": time.time(),
        **identity_fields(process),
        "how": shots[0].how,
        "traces": list(packed),
        "stop_ms": max((stop for shot in shots if (stop := shot.took_ms("stop_ms"))), default=None),
    }
    return store.keep(meta, packed), names


def _file(process: Process, several: bool) -> str:
    name = "trace" if not several else f"pid{process.pid}" if process.rank is None else f"rank{process.rank}"
    return f"{name}.json.gz"


def _compressed(shot: ProcessCapture) -> bytes:
    """The file that a process wrote, compressed and then removed there.

    The path comes from the process: only a regular file of its user, in a folder of that user, is touched.
    """
    path, uid = str((shot.report or {}).get("out", "")), shot.target.process.uid
    where, base = os.path.split(path)
    if not os.path.isabs(path) or not _NAME.fullmatch(base):
        raise Refused(f"it named a file that is not its own: {path[:200]}")
    packed = io.BytesIO()
    try:
        source = within(path, _open, shot.root + where, base, uid, seconds=_CHUNK_S)
        file = open(source, "rb")  # noqa: SIM115 its thread may block forever: then it is not closed
        with gzip.GzipFile("", "wb", _LEVEL, packed) as written:
            while data := within(path, file.read, _CHUNK, seconds=_CHUNK_S):
                written.write(data)
        file.close()
        within(path, _remove, shot.root + where, base, seconds=_CHUNK_S)
    except OSError as error:
        raise Refused(f"{path[:200]}: {error.strerror}") from None
    return packed.getvalue()


def _open(folder: str, name: str, uid: int | None) -> int:
    """The file opened for reading; Refused unless it is a regular file of this user, in a folder of that user."""
    there = os.open(folder, _FOLDER)
    try:
        source = files.opened(name, folder=there, links=False)
        info = os.fstat(source)
        problem = ""
        if info.st_uid != uid or os.fstat(there).st_uid != uid:
            problem = "does not belong to its user: not used"
        elif info.st_size > _MOST_BYTES:
            problem = "is larger than 1 GiB: trace fewer steps"
        if problem:
            os.close(source)
            raise Refused(f"{folder}/{name[:200]} {problem}")
        return source
    finally:
        os.close(there)


def _remove(folder: str, name: str) -> None:
    there = os.open(folder, _FOLDER)
    try:
        os.unlink(name, dir_fd=there)
    finally:
        os.close(there)


_REMOTE_TEXT = (
    "{pid} has no agent: sys.remote_exec will inject one, which stays until {pid} exits; nothing else in it changes"
)

# irreversible: torch never detaches CUPTI while CUDA graphs exist, and a job may create some at any time
AFTERWARDS = "CUPTI stays attached to the job: on an H200 steps of 1.56 ms took 1.66 to 1.92 ms after a trace"


class TraceAction:
    """The action."""

    id = "trace"
    title = "Trace"

    def rights(self, rights: Rights) -> Rights:
        """Rights for its handles."""
        return rights.for_recording

    def why_not(self, process: Process, rights: Rights) -> str | None:
        """Why it cannot be traced, with the command that makes it possible next time; None if it can."""
        barred = self.barred(process, rights)
        return barred.line if barred else None

    def barred(self, process: Process, rights: Rights, frame: Frame | None = None) -> Barred | None:
        """The same, with the remedy as a separate field; with a frame, the command is that of its job."""
        target = open_target(process, self.rights(rights), {})
        if isinstance(target, Refusal):
            return Barred(target.text)
        why = target.denied()
        target.close()
        if why is not None:
            return Barred(why)
        if process.role is Role.LAUNCHER:
            return None
        if process.role is Role.LOADER:
            return Barred("it only loads data: trace its trainer")
        found = route(process, frame)
        return found if isinstance(found, Barred) else None

    def run(self, handles: Handles, options: TraceOrder, tell: Callable[[ActionRun], object]) -> ActionRun:
        """Start recording; returns at once."""
        return start_run(f"trace of {handles.process.pid}", handles, lambda run: _trace(handles, options, run), tell)


TRACE = TraceAction()


def meant(handles: Handles, order: TraceOrder) -> tuple[Process, ...]:
    """The processes of an order: all ranks, the tagged ones, or the process itself (for a launcher, its ranks)."""
    if order.scope is Scope.TAGGED:
        tagged = handles.processes(Scope.TAGGED)
        return tuple(process for process in tagged if process.role is Role.TRAINER) or tagged
    if order.scope is Scope.PROCESS and handles.process.role is not Role.LAUNCHER:
        return (handles.process,)
    ranks = tuple(process for process in handles.processes(Scope.JOB) if process.role is Role.TRAINER)
    return (
        ranks if ranks and (handles.process in ranks or handles.process.role is Role.LAUNCHER) else (handles.process,)
    )


def _trace(handles: Handles, order: TraceOrder, run: ActionRun) -> ActionResult:
    if not 1 <= order.steps <= MOST_STEPS:
        return Traced(text=f"{order.steps} steps cannot be traced: use 1 to {MOST_STEPS}", good=False)
    asked = meant(handles, order)
    held = {one.pid: one for scope in (Scope.PROCESS, Scope.JOB, Scope.TAGGED) for one in handles.held(scope)}
    ways: dict[int, Route] = {}
    targets: list[TargetProcess] = []
    for process in asked:
        one = held[process.pid]
        if isinstance(one, Refusal):
            return Traced(text=f"nothing traced: {process.pid}: {one.text}", good=False)
        way = _prepare(one, handles.frame, order, run)
        if isinstance(way, Traced):
            return way
        ways[one.pid] = way
        targets.append(one)
    served = [one for one in targets if ways[one.pid] is Route.KINETO]
    shots = kineto.capture(served, order, run) if served else []
    shots += capture([one for one in targets if one not in served], order, run)
    risky = next((shot for shot in shots if shot.risk), None)
    if risky is not None:
        return Traced(text=f"{risky.target.pid}: {risky.problem}", good=False, risk=risky.risk)
    run.say("reading the trace")
    return _collected(handles, order, shots)


def _prepare(target: TargetProcess, frame: Frame, order: TraceOrder, run: ActionRun) -> Traced | Route:
    """Ensure it has an agent, or find another way; otherwise say why there is none."""
    if (why := target.denied()) is not None:
        return Traced(text=f"nothing traced: {target.pid}: {why}", good=False)
    found = route(target.process, frame)
    if isinstance(found, Barred):
        return Traced(text=found.line, good=False)
    if found is Route.REMOTE:
        if remote_exec.RISK not in order.confirmed:
            return Traced(text=_REMOTE_TEXT.format(pid=target.pid), good=False, risk=remote_exec.RISK)
        problem = remote_exec.inject(target, run)
        if problem is not None:
            return Traced(text=f"{target.pid}: {problem}", good=False)
    elif found is Route.KINETO and kineto.RISK not in order.confirmed:
        return Traced(text=kineto.risk(target.pid, order), good=False, risk=kineto.RISK)
    return found


def _collected(handles: Handles, order: TraceOrder, shots: Sequence[ProcessCapture]) -> Traced:
    """The parsed traces of those that have one; the problems of the others."""
    # imported late: few screens end in a trace
    from gputop.trace import signatures  # noqa: F401
    from gputop.trace.read import read
    from gputop.trace.verdict import TraceView

    done = [shot for shot in shots if shot.report is not None]
    problems = [f"{shot.target.pid}: {shot.problem}" for shot in shots if shot.report is None]
    if not done:
        return Traced(text=f"nothing traced: {problems[0]}", good=False, lines=tuple(problems[1:]))
    try:
        where, names = collect(handles.process, done)
    except Refused as refused:
        return Traced(text=f"traced, but not saved: {refused}", good=False)
    views: dict[str, TraceView] = {}
    for name, shot in names.items():
        try:
            views[name] = TraceView(read(f"{where.path}/{name}"))
        except Refused as refused:
            problems.append(f"{shot.target.pid}: {refused}")
    if not views:
        return Traced(text=f"nothing traced: {problems[0]}", good=False, lines=tuple(problems[1:]))
    for view in views.values():
        view.ranks = tuple(views.values())
    lines = (*_remarks(done, order), *lasting_cost(tuple(views.values())), *problems)
    return Traced(
        text=_summary(tuple(views.values()), done),
        good=not problems,
        lines=lines,
        files=tuple(f"{where.path}/{name}" for name in views),
        views=tuple(views.values()),
        processes=tuple(names[name].target.process for name in views),
        notes=tuple(fact for name in views for fact in names[name].notes),
    )


def lasting_cost(views: Sequence[TraceView]) -> tuple[str, ...]:
    """Lasting cost of a GPU trace."""
    return (AFTERWARDS,) if any(view.found.of_gpu for view in views) else ()


def _summary(views: Sequence[TraceView], done: Sequence[ProcessCapture]) -> str:
    """`3 steps of 2 ranks traced: DataLoader wait`."""
    steps = labels.amount(max(view.steps for view in views), "step")
    subject = f" of {len(views)} ranks" if len(views) > 1 else f" of {done[0].target.pid}"
    worst = next((verdict for view in views for verdict in view.verdicts if verdict.severity != "info"), None)
    return f"{steps}{subject} traced" + (f": {worst.headline}" if worst else "")


def _remarks(done: Sequence[ProcessCapture], order: TraceOrder) -> tuple[str, ...]:
    said = []
    for shot in done:
        reported = shot.report or {}
        if reported.get("preempted") is True:
            said.append(f"{shot.target.pid}: it started its own profiler or forked: traced up to there")
        elif reported.get("cut") is True:
            said.append(f"{shot.target.pid}: a step took longer than those before it: traced up to there")
        elif reported.get("timed") is True:
            without = " without shapes, stacks, allocations" if order.shapes or order.stacks or order.memory else ""
            said.append(f"{shot.target.pid}: {shot.how}{without}")
    return tuple(said)
