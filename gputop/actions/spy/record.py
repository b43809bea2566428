"""A profile of some seconds: py-spy samples a process and its loaders, and what it says is told in words.

    hold = Hold(frame, process, PROFILE.rights(rights))
    run = PROFILE.run(hold, Sampling(seconds=10), tell)
    run.line                                   # 6 of 10 s · 3 errors · paused 2% of the time
    run.cancel()                               # ends it early; what is there is kept
    run.result.kept, run.result.page, run.result.profile

The process is not paused unless `native` is asked for. What this costs it is measured; too much ends it early.
"""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from gputop import words
from gputop.actions.action import Result, Run, begin
from gputop.actions.hold import Hold, Scope
from gputop.actions.spy import child
from gputop.actions.spy.child import Child
from gputop.actions.spy.cost import LOOK_S, Cost, Meter, read
from gputop.actions.spy.keeping import MOST_ERRORS, About, keep
from gputop.actions.spy.program import find
from gputop.actions.spy.stacks import cannot, unreadable
from gputop.actions.target import Refusal, Rights, Target
from gputop.declare import record
from gputop.model import Frame, Process
from gputop.page import Page
from gputop.profile import kept
from gputop.profile.files import SERVICE
from gputop.profile.kept import Kept
from gputop.profile.stacks import Profile
from gputop.safe import attach
from gputop.safe.attach import Barred
from gputop.safe.files import Refused
from gputop.safe.identity import read_stat

SHORTEST_S, LONGEST_S = 0.5, 600.0
SLOWEST, FASTEST = 10, 100  # samples a second
MOST_RATE = 1000  # that can be asked for
_THREAD_SAMPLES = 2000  # a second, of all threads together: what was measured to cost nothing
_PAUSED_SAMPLES = 400  # the same where each sample pauses the process
MOST_THREADS, MOST_PAUSED_THREADS = 4000, 400
_NUMBERED = (3, 11)  # since then Python notes the kernel's number of each thread
_PATIENCE_S = 30.0  # after the time is over
_PACE_S = 1.0  # the pace of a process is looked at for so long before and after
_TELL_S = 0.2


@record(frozen=True, slots=True, kw_only=True)
class Sampling:
    """What a person chose."""

    seconds: float = 10.0
    rate: int | None = None  # samples a second; None: as many as the number of threads allows
    children: bool = True  # its loaders and other children too
    waiting: bool = True  # threads that wait, too; without them it is not seen what the process waits for
    gil: bool = False  # only threads that hold the lock of the interpreter: what Python itself does
    native: bool = False  # C and C++ frames too; pauses the process for each sample


@record(frozen=True, kw_only=True)
class ProfileResult(Result):
    """What was recorded, where it is kept, and what it says."""

    kept: Kept | None = None
    profile: Profile | None = None
    page: Page | None = None
    cost: Cost | None = None


class Record:
    """The action."""

    id = "profile"
    title = "Profile"

    def rights(self, rights: Rights) -> Rights:
        """What its hold is made with."""
        return rights.inside

    def why_not(self, process: Process, rights: Rights) -> str | None:
        """Why it cannot be recorded: as for stacks, and with --readonly, which writes no file."""
        barred = self.barred(process, rights)
        return barred.line if barred else None

    def barred(self, process: Process, rights: Rights) -> Barred | None:
        """The same, with what would change it apart."""
        return unreadable(process, self.rights(rights), self.id)

    def run(self, hold: Hold, options: Sampling, tell: Callable[[Run], object]) -> Run:
        """Record; the result is a ProfileResult."""
        return begin(f"py-spy record {hold.process.pid}", hold, lambda run: _record(hold, options, run), tell)


PROFILE = Record()


def threads(frame: Frame, process: Process, children: bool) -> tuple[int, int]:
    """How many threads would be sampled, in how many processes."""
    below, pids = {process.pid}, [process.pid]
    if children:
        serve = {one.pid for one in frame.processes if SERVICE.search(" ".join(one.command))}  # and what those fork
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
    """Samples a second for so many threads."""
    if sampling.rate is not None:
        return sampling.rate
    if sampling.native:
        return max(1, min(20, _PAUSED_SAMPLES // max(count, 1)))
    return max(SLOWEST, min(FASTEST, _THREAD_SAMPLES // max(count, 1)))


class _Unable(Exception):
    """Nothing is recorded."""

    def __init__(self, barred: Barred) -> None:
        super().__init__(barred.text)
        self.barred = barred


def _record(hold: Hold, sampling: Sampling, run: Run) -> ProfileResult:
    try:
        program, target = find(), hold.held(Scope.PROCESS)[0]
        if isinstance(program, Barred):
            raise _Unable(program)
        if isinstance(target, Refusal):
            raise _Unable(Barred(target.text))
        counted = threads(hold.frame, hold.process, sampling.children)
        _check(target, sampling, *counted)
        try:
            return _recorded(program, target, sampling, counted, run)
        except _Unable as why:
            if not sampling.native or not child.may_be_native(why.barred) or run.cancelled or target.ended():
                raise
            said = why.barred.text if why.barred.text.startswith("py-spy: ") else "py-spy fails on them"
        plain = replace(sampling, native=False)
        return _recorded(program, target, plain, counted, run, f"no native frames ({said}), only Python's")
    except _Unable as why:
        unlock = (why.barred.unlock,) if why.barred.unlock else ()
        return ProfileResult(text=why.barred.text, good=False, lines=unlock)
    except Refused as refused:
        return ProfileResult(text=f"nothing recorded: {refused}", good=False)


def senseless(sampling: Sampling) -> str | None:
    """Why nothing can be recorded so, whatever the process; None if it can."""
    if not SHORTEST_S <= sampling.seconds <= LONGEST_S:
        return f"a profile takes {SHORTEST_S} s to {LONGEST_S / 60:.0f} minutes"
    if sampling.rate is not None and not 1 <= sampling.rate <= MOST_RATE:
        return f"the rate is 1 to {MOST_RATE} samples a second"
    return None


def _check(target: Target, sampling: Sampling, count: int, processes: int) -> None:
    """Everything that can be known to go wrong before anybody waits for it."""
    if why := senseless(sampling):
        raise _Unable(Barred(why))
    most = MOST_PAUSED_THREADS if sampling.native else MOST_THREADS
    if count > most:
        remedy = (
            "leave --native out" if sampling.native else "take --alone" if processes > 1 else "gputop stack shows it"
        )
        raise _Unable(Barred(f"{count} threads are too many to sample at a bearable cost (most: {most}): {remedy}"))
    barred = cannot(target.pid, "profile", pausing=sampling.native)
    if barred is not None:
        raise _Unable(barred)
    kept.ready()


def _recorded(
    program: str, target: Target, sampling: Sampling, counted: tuple[int, int], run: Run, *first: str
) -> ProfileResult:
    meter, pace_s = Meter(partial(read, target.pid)), min(_PACE_S, sampling.seconds / 4)
    meter.before()
    run.say("looking at its own pace first")
    if run.pause(pace_s):
        raise _Unable(Barred("cancelled: nothing was recorded"))
    meter.before()
    about = About(target.process, time.time(), sampling.seconds, rate(sampling, counted[0]), _how(sampling), *counted)
    chosen, most_s = arguments(sampling, about.rate), sampling.seconds + _PATIENCE_S
    stops = sampling.native and target.state() not in ("T", "t")
    spy = child.start(program, target.pid, chosen, seconds=most_s, to_file=True)
    if isinstance(spy, Barred):
        raise _Unable(spy)
    try:
        early = _watch(spy, meter, about, run)
        notes = [*first, *([early] if early else []), *_left(target, stops), *_guessed(target, sampling)]
        trouble = spy.trouble()
        if trouble is not None and (run.cancelled or not spy.output()):
            raise _Unable(Barred("cancelled: nothing was recorded") if run.cancelled else trouble)
        if not run.cancelled and not target.ended():
            meter.after()
            run.say("looking at its pace afterwards")
            run.pause(pace_s)
            meter.after()
        if run.dropped:
            raise _Unable(Barred("dropped: nothing is kept"))
        return _result(about, spy, meter.cost(), notes)
    finally:
        spy.close()


def _guessed(target: Target, sampling: Sampling) -> list[str]:
    """What py-spy cannot measure: up to Python 3.10 it knows no thread by its number, and takes all for running."""
    if sampling.waiting or sampling.gil:
        return []
    from gputop.actions.tracing.routes import python_version  # late: few ask for this

    version = python_version(target.pid)
    if version is None or version >= _NUMBERED:
        return []
    return [f"Python {version[0]}.{version[1]}: py-spy cannot leave out threads that wait; they are in these samples"]


def _watch(spy: Child, meter: Meter, about: About, run: Run) -> str | None:
    """Wait for its end, or bring it about; why it ended early, unless a person wanted that."""
    began_s = told_s = time.monotonic()
    while spy.running():
        if run.pause(LOOK_S):
            spy.stop()
            return f"ended by hand after {time.monotonic() - began_s:.1f} of {about.seconds:g} s"
        meter.during(spy.cpu_s())
        if why := meter.too_much():
            spy.stop()
            return f"ended after {time.monotonic() - began_s:.1f} s: {why}; a lower --rate is gentler"
        now_s = time.monotonic()
        if about.seconds % 1 and now_s - began_s >= about.seconds:  # py-spy knows whole seconds only
            spy.stop()
            return None
        if now_s - told_s >= _TELL_S:
            told_s = now_s
            run.say(_progress(now_s - began_s, about, spy, meter))
    return None


def _progress(passed_s: float, about: About, spy: Child, meter: Meter) -> str:
    if passed_s > about.seconds:
        return f"{about.seconds:g} s are over, waiting for py-spy to write"
    errors = words.amount(spy.errors(), "error")
    return f"{passed_s:.1f} of {about.seconds:g} s · {about.rate} Hz · {errors} · {meter.cost().text}"


def _left(target: Target, stops: bool) -> list[str]:
    """The process as it is left: nobody holds it. Where py-spy `stops` it for its samples and left it so, it is set
    going again; who else is stopped was stopped by somebody."""
    if target.ended():
        return ["the process ended meanwhile"]
    notes = []
    if stops and target.state() == "T":
        target.signal(signal.SIGCONT)
        notes.append("py-spy left the process stopped: it was set going again")
    if (tracer := attach.tracer(target.pid)) is not None:
        notes.append(f"the process is traced by {tracer[1]} ({tracer[0]})")
    return notes


def arguments(sampling: Sampling, hertz: int) -> list[str]:
    """Those of py-spy, but for the process and the file."""
    chosen = ["record", "--format", "speedscope", "--full-filenames", "--threads", "--rate", str(hertz)]
    chosen += ["--duration", str(math.ceil(sampling.seconds))]
    chosen += ["--native"] if sampling.native else ["--nonblocking"]
    # without --idle who waits gives no sample: the verdict is blind
    chosen += ["--gil"] if sampling.gil else ["--idle"] if sampling.waiting else []
    return [*chosen, *(["--subprocesses"] if sampling.children else [])]


def _how(sampling: Sampling) -> str:
    return ", ".join(
        text
        for chosen, text in (
            (sampling.gil, "only who holds the GIL"),
            (not sampling.waiting and not sampling.gil, "without threads that wait"),
            (sampling.native, "native frames, paused for each sample"),
            (not sampling.children, "without its children"),
        )
        if chosen
    )


def _result(about: About, spy: Child, cost: Cost, notes: list[str]) -> ProfileResult:
    samples, errors = spy.counts()
    if any("behind in sampling" in line for line in spy.said()):
        notes.append("py-spy could not keep up: a lower --rate is exact")
    found = keep(about, spy.output(), samples=samples, errors=errors, cost=cost, notes=notes)
    text = f"{samples} samples, {words.amount(errors, 'error')}, {cost.text}: {found.kept.path}"
    if errors > MOST_ERRORS * (samples + errors):
        notes.append(f"{errors} of {samples + errors} samples failed: a lower --rate reads more of them")
    return ProfileResult(
        text=text, good=True, lines=tuple(notes), kept=found.kept, profile=found.profile, page=found.page, cost=cost
    )
