"""Record a profile over some seconds with py-spy, store it without secrets, with a report."""

from __future__ import annotations

import json
import math
import os
import re
import signal
import stat
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from gputop import labels, units
from gputop.actions.action import ActionResult, ActionRun, start_run
from gputop.actions.handles import Handles, Scope
from gputop.actions.pyspy import runner
from gputop.actions.pyspy.cost import LOOK_S, Cost, CostMeter, read
from gputop.actions.pyspy.runner import Child, find
from gputop.actions.pyspy.stacks import kernel_refusal, why_unreadable
from gputop.actions.target import Refusal, Rights, TargetProcess, identity_fields
from gputop.frozen_dataclass import frozen_dataclass
from gputop.model import Frame, Process
from gputop.profile import flame, parse, report, store
from gputop.profile.files import SERVICE
from gputop.profile.stacks import Profile
from gputop.profile.store import StoredProfile
from gputop.report import Page
from gputop.safe import files, ptrace_access
from gputop.safe.deadline import within
from gputop.safe.files import Refused
from gputop.safe.identity import read_stat
from gputop.safe.ptrace_access import Barred
from gputop.safe.text import clean, redact

MOST_LINES, MOST_BYTES, LONGEST = 40, 4 << 20, 100
_PLACE = re.compile(r":(\d+)\)$")


def source_lines(profile: Profile, pid: int, uid: int | None) -> dict[str, str]:
    """Source lines of the most sampled frames, as the process sees its files; secrets masked.

    Root reads only files that the user of the process could read: the process chose the path.
    """
    found: dict[str, str] = {}
    files: dict[str, list[bytes]] = {}
    for each in profile.own_code().top()[:MOST_LINES]:
        place, file = _PLACE.search(each.name), profile.files.get(each.name)
        if not place or not file or not each.self_count:
            continue
        if file not in files:
            files[file] = _lines(f"/proc/{pid}/root{file}", uid) if file.startswith("/") else []
        number = int(place[1])
        if 0 < number <= len(files[file]):
            found[each.name] = redact(clean(files[file][number - 1].decode("utf-8", "replace").strip(), LONGEST))
    return found


def _lines(path: str, uid: int | None) -> list[bytes]:
    try:
        return within(path, _read, path, uid)
    except OSError:  # no response
        return []


def _read(path: str, uid: int | None) -> list[bytes]:
    try:
        fd = files.opened(path)
    except (OSError, ValueError):
        return []
    with open(fd, "rb") as file:
        info = os.fstat(fd)
        theirs = info.st_uid == uid or info.st_mode & stat.S_IROTH
        if not theirs or info.st_size > MOST_BYTES:
            return []
        return file.read(MOST_BYTES).split(b"\n")


MOST_ERRORS = 0.2  # of the samples; more make a profile unreliable
_COMMAND = re.compile(r"process \d+:")


@frozen_dataclass(frozen=True, slots=True)
class RecordingInfo:
    """What was recorded, and how."""

    process: Process
    at_s: float  # wall clock
    seconds: float
    rate: int  # samples/s
    options: str  # non-default options; may be empty
    threads: int
    processes: int

    @property
    def text(self) -> str:
        """`10 s at 100 Hz, 12 threads in 5 processes`."""
        where = f" in {labels.amount(self.processes, 'process')}" if self.processes > 1 else ""
        what = f"{units.ago_text(self.seconds)} at {self.rate} Hz, {labels.amount(self.threads, 'thread')}{where}"
        return f"{what}, {self.options}" if self.options else what


@frozen_dataclass(frozen=True, slots=True)
class PyspyRecording:
    """A stored recording."""

    kept: StoredProfile
    profile: Profile
    page: Page


def keep(
    about: RecordingInfo, raw: bytes, *, samples: int, errors: int, cost: Cost, notes: Sequence[str]
) -> PyspyRecording:
    """Store everything; Refused says why it cannot be stored."""
    text = without_secrets(raw)
    profile = parse(text)
    process = about.process
    profile.pid, profile.lines = process.pid, source_lines(profile, process.pid, process.uid)
    profile.notes += notes
    described = identity_fields(process)
    of = " of all threads" if about.threads > 1 else ""
    measured = f"{samples} samples{of}, {labels.amount(errors, 'error')}, {cost.text}"
    page = report.page(profile, f"{process.pid} {described['short'][:60]}", about=f"{about.text}; {measured}")
    meta = {
        "version": 1,
        "kind": "py-spy",
        **described,
        "at_s": about.at_s,
        "seconds": about.seconds,
        "rate": about.rate,
        "how": about.text,
        "threads": about.threads,
        "processes": about.processes,
        "samples": samples,
        "errors": errors,
        "cost": asdict(cost),
        "lines": profile.lines,
        "notes": list(notes),
        "says": [*page.words, *(point.text for point in page.points)],
    }
    files = {
        store.SPEEDSCOPE: text.encode(),
        store.COLLAPSED: profile.collapsed().encode(),
        store.FLAME: flame(profile, f"{process.pid} {described['short'][:80]}: {about.text}").encode(),
    }
    return PyspyRecording(store.keep(meta, files), profile, page)


def without_secrets(raw: bytes) -> str:
    """py-spy's speedscope file without passwords in the command lines that name its processes."""
    try:
        data: Any = json.loads(raw)
        for frame in data["shared"]["frames"]:
            if _COMMAND.match(frame["name"]):
                frame["name"] = redact(frame["name"])
    except (ValueError, TypeError, KeyError, RecursionError):
        raise Refused("py-spy wrote no profile: repeat with a longer --for") from None
    return json.dumps(data, separators=(",", ":"))


SHORTEST_S, LONGEST_S = 0.5, 600.0
SLOWEST, FASTEST = 10, 100  # samples/s
MOST_RATE = 1000  # highest rate accepted
_THREAD_SAMPLES = 2000  # samples/s over all threads: measured to be free of cost
_PAUSED_SAMPLES = 400  # the same if each sample pauses the process
MOST_THREADS, MOST_PAUSED_THREADS = 4000, 400
_NUMBERED = (3, 11)  # Python records the kernel's thread id since this version
_PATIENCE_S = 30.0  # after the recording time
_PACE_S = 1.0  # seconds before and after, to measure the pace
_TELL_S = 0.2


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """Options of a recording."""

    seconds: float = 10.0
    rate: int | None = None  # samples/s; None: as many as the number of threads allows
    children: bool = True  # its loaders and other children, too
    waiting: bool = True  # waiting threads, too; without them, what the process waits for is not visible
    gil: bool = False  # only threads that hold the GIL: what Python itself does
    native: bool = False  # C and C++ frames, too; pauses the process for each sample


@frozen_dataclass(frozen=True, kw_only=True)
class ProfileResult(ActionResult):
    """What was recorded, where it is stored, and its report."""

    kept: StoredProfile | None = None
    profile: Profile | None = None
    page: Page | None = None
    cost: Cost | None = None


class RecordAction:
    """The action."""

    id = "profile"
    title = "Profile"

    def rights(self, rights: Rights) -> Rights:
        """Rights for its handles."""
        return rights.for_recording

    def why_not(self, process: Process, rights: Rights) -> str | None:
        """Why it cannot be recorded: as for stacks, and with --readonly, which writes no file."""
        barred = self.barred(process, rights)
        return barred.line if barred else None

    def barred(self, process: Process, rights: Rights) -> Barred | None:
        """The same, with the remedy as a separate field."""
        return why_unreadable(process, self.rights(rights), self.id)

    def run(self, handles: Handles, options: Sampling, tell: Callable[[ActionRun], object]) -> ActionRun:
        """Record; the result is a ProfileResult."""
        return start_run(
            f"py-spy record {handles.process.pid}", handles, lambda run: _record(handles, options, run), tell
        )


PROFILE = RecordAction()


def threads(frame: Frame, process: Process, children: bool) -> tuple[int, int]:
    """Number of threads and of processes to sample."""
    below, pids = {process.pid}, [process.pid]
    if children:
        serve = {one.pid for one in frame.processes if SERVICE.search(" ".join(one.command))}  # and their children
        parents = {
            one.pid: one.parent_pid
            for one in frame.processes
            if one.pid not in serve or one.parent_pid in serve or one.pid == process.pid
        }
        grew = True
        while grew:
            new = [pid for pid, parent in parents.items() if parent in below and pid not in below]
            below.update(new)
            pids += new
            grew = bool(new)
    counts = [stat.threads or 1 for pid in pids if (stat := read_stat(pid))]
    return sum(counts), len(counts)


def rate(sampling: Sampling, count: int) -> int:
    """Samples/s for this number of threads."""
    if sampling.rate is not None:
        return sampling.rate
    if sampling.native:
        return max(1, min(20, _PAUSED_SAMPLES // max(count, 1)))
    return max(SLOWEST, min(FASTEST, _THREAD_SAMPLES // max(count, 1)))


class _Unable(Exception):
    """Nothing can be recorded."""

    def __init__(self, barred: Barred) -> None:
        super().__init__(barred.text)
        self.barred = barred


def _record(handles: Handles, sampling: Sampling, run: ActionRun) -> ProfileResult:
    try:
        program, target = find(), handles.held(Scope.PROCESS)[0]
        if isinstance(program, Barred):
            raise _Unable(program)
        if isinstance(target, Refusal):
            raise _Unable(Barred(target.text))
        counted = threads(handles.frame, handles.process, sampling.children)
        _check(target, sampling, *counted)
        try:
            return _recording(program, target, sampling, counted, run)
        except _Unable as why:
            if not sampling.native or not runner.may_be_native(why.barred) or run.cancelled or target.ended():
                raise
            said = why.barred.text if why.barred.text.startswith("py-spy: ") else "py-spy cannot read them"
        plain = replace(sampling, native=False)
        return _recording(program, target, plain, counted, run, f"no native frames ({said}), only Python frames")
    except _Unable as why:
        unlock = (why.barred.unlock,) if why.barred.unlock else ()
        return ProfileResult(text=why.barred.text, good=False, lines=unlock)
    except Refused as refused:
        return ProfileResult(text=f"nothing profiled: {refused}", good=False)


def invalid_options(sampling: Sampling) -> str | None:
    """Why these options cannot record anything; None if they can."""
    if not SHORTEST_S <= sampling.seconds <= LONGEST_S:
        return f"a profile takes {SHORTEST_S} s to {LONGEST_S / 60:.0f} minutes"
    if sampling.rate is not None and not 1 <= sampling.rate <= MOST_RATE:
        return f"the rate is 1 to {MOST_RATE} samples a second"
    return None


def _check(target: TargetProcess, sampling: Sampling, count: int, processes: int) -> None:
    """Check everything that can fail before the user waits for it."""
    if why := invalid_options(sampling):
        raise _Unable(Barred(why))
    most = MOST_PAUSED_THREADS if sampling.native else MOST_THREADS
    if count > most:
        remedy = "omit --native" if sampling.native else "take --alone" if processes > 1 else "use gputop stack"
        raise _Unable(
            Barred(f"{count} threads are too many to sample at an acceptable overhead (at most {most}): {remedy}")
        )
    barred = kernel_refusal(target.pid, "profile", pausing=sampling.native)
    if barred is not None:
        raise _Unable(barred)
    store.check_space()


def _recording(
    program: str, target: TargetProcess, sampling: Sampling, counted: tuple[int, int], run: ActionRun, *first: str
) -> ProfileResult:
    meter, pace_s = CostMeter(partial(read, target.pid)), min(_PACE_S, sampling.seconds / 4)
    meter.before()
    run.say("measuring its baseline first")
    if run.pause(pace_s):
        raise _Unable(Barred("cancelled: nothing was profiled"))
    meter.before()
    about = RecordingInfo(
        target.process, time.time(), sampling.seconds, rate(sampling, counted[0]), _options_text(sampling), *counted
    )
    chosen, most_s = arguments(sampling, about.rate), sampling.seconds + _PATIENCE_S
    stops = sampling.native and target.state() not in ("T", "t")
    spy = runner.start(program, target.pid, chosen, seconds=most_s, to_file=True)
    if isinstance(spy, Barred):
        raise _Unable(spy)
    try:
        early = _watch(spy, meter, about, run)
        notes = [*first, *([early] if early else []), *_final_state(target, stops), *_caveats(target, sampling)]
        trouble = spy.trouble()
        if trouble is not None and (run.cancelled or not spy.output()):
            raise _Unable(Barred("cancelled: nothing was profiled") if run.cancelled else trouble)
        if not run.cancelled and not target.ended():
            meter.after()
            run.say("measuring its pace afterwards")
            run.pause(pace_s)
            meter.after()
        if run.discarded:
            raise _Unable(Barred("discarded: nothing is saved"))
        return _result(about, spy, meter.cost(), notes)
    finally:
        spy.close()


def _caveats(target: TargetProcess, sampling: Sampling) -> list[str]:
    """Caveats of py-spy: up to Python 3.10 it identifies no threads, and considers all of them running."""
    if sampling.waiting or sampling.gil:
        return []
    from gputop.actions.torch_trace.routes import python_version  # imported late: rarely needed

    version = python_version(target.pid)
    if version is None or version >= _NUMBERED:
        return []
    return [f"Python {version[0]}.{version[1]}: py-spy cannot exclude idle threads; these samples include them"]


def _watch(spy: Child, meter: CostMeter, about: RecordingInfo, run: ActionRun) -> str | None:
    """Wait for the end, or bring it about; return why it ended early, unless the user asked for that."""
    began_s = reported_s = time.monotonic()
    while spy.running():
        if run.pause(LOOK_S):
            spy.stop()
            return f"stopped by the user after {time.monotonic() - began_s:.1f} of {about.seconds:g} s"
        meter.during(spy.cpu_s())
        if why := meter.excess():
            spy.stop()
            return f"stopped after {time.monotonic() - began_s:.1f} s: {why}; a lower --rate costs less"
        now_s = time.monotonic()
        if about.seconds % 1 and now_s - began_s >= about.seconds:  # py-spy accepts whole seconds only
            spy.stop()
            return None
        if now_s - reported_s >= _TELL_S:
            reported_s = now_s
            run.say(_progress(now_s - began_s, about, spy, meter))
    return None


def _progress(passed_s: float, about: RecordingInfo, spy: Child, meter: CostMeter) -> str:
    if passed_s > about.seconds:
        return f"{about.seconds:g} s sampled, waiting for py-spy to write"
    errors = labels.amount(spy.errors(), "error")
    return f"{passed_s:.1f} of {about.seconds:g} s · {about.rate} Hz · {errors} · {meter.cost().text}"


def _final_state(target: TargetProcess, stops: bool) -> list[str]:
    """Ensure that the process runs on, and report its state.

    A process that py-spy (`stops`) left stopped is continued; others were stopped by another program and stay stopped.
    """
    if target.ended():
        return ["the process exited during the profile"]
    notes = []
    if stops and target.state() == "T":
        target.signal(signal.SIGCONT)
        notes.append("py-spy left the process stopped: gputop resumed it")
    if (tracer := ptrace_access.tracer(target.pid)) is not None:
        notes.append(f"the process is traced by {tracer[1]} ({tracer[0]})")
    return notes


def arguments(sampling: Sampling, hertz: int) -> list[str]:
    """Arguments of py-spy, without the process and the file."""
    chosen = ["record", "--format", "speedscope", "--full-filenames", "--threads", "--rate", str(hertz)]
    chosen += ["--duration", str(math.ceil(sampling.seconds))]
    chosen += ["--native"] if sampling.native else ["--nonblocking"]
    # without --idle, waiting threads give no samples, and the report cannot see waits
    chosen += ["--gil"] if sampling.gil else ["--idle"] if sampling.waiting else []
    return [*chosen, *(["--subprocesses"] if sampling.children else [])]


def _options_text(sampling: Sampling) -> str:
    return ", ".join(
        text
        for chosen, text in (
            (sampling.gil, "only threads that hold the GIL"),
            (not sampling.waiting and not sampling.gil, "without idle threads"),
            (sampling.native, "native frames; paused for each sample"),
            (not sampling.children, "without its children"),
        )
        if chosen
    )


def _result(about: RecordingInfo, spy: Child, cost: Cost, notes: list[str]) -> ProfileResult:
    samples, errors = spy.counts()
    if any("falling behind" in line for line in spy.messages()):
        notes.append("py-spy could not keep up: use a lower --rate")
    found = keep(about, spy.output(), samples=samples, errors=errors, cost=cost, notes=notes)
    text = f"{samples} samples, {labels.amount(errors, 'error')}, {cost.text}: {found.kept.path}"
    if errors > MOST_ERRORS * (samples + errors):
        notes.append(f"{errors} of {samples + errors} samples failed: use a lower --rate")
    return ProfileResult(
        text=text, good=True, lines=tuple(notes), kept=found.kept, profile=found.profile, page=found.page, cost=cost
    )
