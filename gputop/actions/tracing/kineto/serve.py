"""One trace of each of these processes: their folders are served until each has asked for work, then no more."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Sequence

from gputop.actions.action import Run
from gputop.actions.target import Target
from gputop.actions.tracing.kineto import gate, wire
from gputop.actions.tracing.kineto.endpoint import Endpoint, Poll
from gputop.actions.tracing.order import Order
from gputop.actions.tracing.shots import BUSY, Shot
from gputop.agent_client import environment
from gputop.safe.files import Refused
from gputop.safe.readable import readable

RISK = "kineto"
LONGEST_S = 2.0
WARM_UP_S = 1  # for CUPTI
_ALONE_S, _TOGETHER_S = 3.0, 9.0  # from the first reply to the warm-up: a tick of 1 s of Kineto's; the polls of others
_LATEST_S = 2.1  # before the recording a rank must have been told: its ticks
_POLL_S = 11.0  # two polls, and one that was lost
_WRITTEN_S = 30.0
_LOOK_S = 0.1
_OLD_S = 600.0
_LEFT = re.compile(r"on-demand-[0-9a-f]{16}_\d+\.json(\.tmp)?")

_RISKY = (
    "{pid} waits for Kineto's daemon, and gputop can be that for one trace: {span:.3g} s of all its threads. If {pid}"
    " ends within 15 s from now, it can crash: exit code 139 or 134, not its own"
)
_RISKY_GPU = "; it uses CUDA, where this was never tried, and where profilers beside CUDA graphs have ended jobs"
_SILENT = "the process has not asked for work: stopped, hung, or built without Kineto"
_UNWRITTEN = "the process took the request but wrote no trace: its standard error may say why"


def span_s(order: Order) -> float:
    """How long is recorded, in seconds: one for three steps, at most two. How long a step takes is not known."""
    return min(max(order.steps / 3, 1.0), LONGEST_S)


def risk(pid: int, order: Order) -> str:
    """What a person must know of before."""
    return _RISKY.format(pid=pid, span=span_s(order)) + (_RISKY_GPU if gate.has_cuda(pid) else "")


class Wanted(Shot):
    """One process that is to be asked: `asked` until it is told, then `recording`."""

    def __init__(self, target: Target, order: Order) -> None:
        super().__init__(target)
        self.span_s, self._patience_s = span_s(order), min(_POLL_S, order.wait_s)
        self.how = f"Kineto on demand, {self.span_s:.3g} s"
        self.busy = False
        self.at_s = 0.0
        self._stem, self._out = f"on-demand-{os.urandom(8).hex()}", ""
        said = environment(target.pid)
        self.folder = said.get(gate.FOLDER, "")
        try:
            self._out = gate.output(said)
            _swept(self._out)
        except Refused as why:
            self.fail(str(why))

    @property
    def pending(self) -> bool:
        """Whether there is something to wait for."""
        return self.state in ("asked", "recording")

    def tell(self, endpoint: Endpoint, poll: Poll, at_s: float) -> None:
        """Ask it for its trace, if it can be asked now."""
        self.busy = not poll.ready
        if self.state != "asked" or self.busy or self.target.ended():
            return
        if at_s - time.time() < WARM_UP_S + _LATEST_S:
            self.fail("it asked for work too late to begin with the others: trace it again")
        elif endpoint.answer(poll, wire.wish(f"{self._out}/{self._stem}.json", at_s, self.span_s, WARM_UP_S)):
            self.state, self.at_s = "recording", at_s

    def look(self, waited_s: float) -> None:
        """Whether its trace is there, or will never be."""
        if self.state == "asked" and waited_s > self._patience_s:
            self.fail(BUSY if self.busy else _SILENT)
        elif self.state == "recording":
            if (path := self._written()) is not None:
                self.state, self.told = "done", {"out": path, "timed": True}
            elif time.time() > self.at_s + self.span_s + _WRITTEN_S:
                self.fail(_UNWRITTEN)
        if self.pending and self.target.ended():
            self.fail("it has ended")

    def give_up(self) -> None:
        """Nobody waits any more; what it was asked for ends by itself, and its file is swept later."""
        left_s = self.at_s + self.span_s - time.time()
        self.fail(f"cancelled; it records for {left_s:.0f} s more, for nobody" if left_s > 0 else "cancelled")

    def _written(self) -> str | None:
        """Kineto renames the whole file; the number in its name is the pid that the process has for itself."""
        with contextlib.suppress(OSError):
            for name in os.listdir(self._out):
                if name.startswith(f"{self._stem}_") and name.endswith(".json"):
                    return f"{self._out}/{name}"
        return None


def captured(targets: Sequence[Target], order: Order, run: Run) -> list[Shot]:
    """Trace these, all from the same moment on; nothing stays asked for that has not begun by then."""
    shots = [Wanted(target, order) for target in targets]
    endpoints: dict[str, Endpoint] = {}
    try:
        for shot in filter(lambda shot: shot.pending, shots):
            try:
                if shot.folder not in endpoints:
                    endpoints[shot.folder] = Endpoint(shot.folder)
            except Refused as why:
                shot.fail(str(why))
        _serve(shots, endpoints, run)
    finally:
        for endpoint in endpoints.values():
            endpoint.close()
    return list(shots)


def _serve(shots: Sequence[Wanted], endpoints: dict[str, Endpoint], run: Run) -> None:
    began_s = time.monotonic()
    ahead_s = WARM_UP_S + (_ALONE_S if len(shots) == 1 else _TOGETHER_S)
    by_pid = {shot.target.pid: shot for shot in shots}
    while waited := [shot for shot in shots if shot.pending]:
        for endpoint in readable(endpoints.values(), _LOOK_S):
            poll = endpoint.heard()
            shot = by_pid.get(poll.pid) if poll else None
            if poll and shot and endpoints.get(shot.folder) is endpoint:
                shot.tell(endpoint, poll, _begun_s(shots) or time.time() + ahead_s)
        passed_s = time.monotonic() - began_s
        run.say(_line(shots, passed_s))
        for shot in waited:
            shot.look(passed_s)
            if run.cancelled and shot.pending:
                shot.give_up()


def _begun_s(shots: Sequence[Wanted]) -> float:
    """From which Unix time on they record; 0 while none has been asked."""
    return max(shot.at_s for shot in shots)


def _line(shots: Sequence[Wanted], passed_s: float) -> str:
    """`recording 1 s · 2 of 2 ranks · 6 s`."""
    at_s = _begun_s(shots)
    ready = sum(shot.state in ("recording", "done") for shot in shots)
    if not ready:
        what = "waiting for it to ask for work, every 5 s"
    elif time.time() < at_s:
        what = f"recording in {at_s - time.time():.0f} s"
    else:
        span = shots[0].span_s
        what = f"recording {span:.3g} s" if time.time() < at_s + span else "waiting for the trace to be written"
    many = f" · {ready} of {len(shots)} ranks" if len(shots) > 1 else ""
    return f"{what}{many} · {passed_s:.0f} s"


def _swept(folder: str) -> None:
    """Remove traces that nobody fetched."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if _LEFT.fullmatch(entry.name) and time.time() - entry.stat(follow_symlinks=False).st_mtime > _OLD_S:
                os.unlink(entry.path)
