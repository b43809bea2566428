"""Kineto's daemon endpoint, served for one trace to jobs started for it, and only where that is safe."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import socket
import stat
import struct
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gputop.actions.action import ActionRun
from gputop.actions.target import TargetProcess
from gputop.actions.torch_trace.capture import BUSY, ProcessCapture, TraceOrder
from gputop.agent_client import environment, mapped, root
from gputop.model import Process
from gputop.safe import files
from gputop.safe.deadline import readable, within
from gputop.safe.files import Refused, runtime_folder
from gputop.safe.ptrace_access import Barred
from gputop.safe.text import decode

NAME = "dynolog"
LONGEST = 1 << 14  # bytes of a request: 4,000 ancestors
_HEADER = struct.Struct("=Q32s")
_REQUEST = struct.Struct("=iiq")  # flags, number of PIDs, job; the PIDs
_ACTIVITIES = 2


class Malformed(Exception):
    """Not a valid work request of Kineto."""


def wants_work(message: bytes) -> bool:
    """Whether this requests work and a trace may start now: not while another profiler runs. Raises Malformed."""
    if len(message) < _HEADER.size + _REQUEST.size or len(message) > LONGEST:
        raise Malformed
    size, word = _HEADER.unpack_from(message)
    mask, count, _ = _REQUEST.unpack_from(message, _HEADER.size)
    if word.rstrip(b"\0") != b"req" or size != len(message) - _HEADER.size or size != _REQUEST.size + 4 * count:
        raise Malformed
    return bool(mask & _ACTIVITIES)


def trace_reply(wish: str) -> bytes:
    """The reply that requests a trace."""
    return _HEADER.pack(len(wish), b"req") + wish.encode("ascii")


def trace_config(path: str, at_s: float, seconds: float, warm_up_s: int) -> str:
    """Configuration of a trace over `seconds` from a Unix time on.

    Not over a number of steps: that waits in the process for its next step, however late, cannot be withdrawn, and
    records without end if too few steps follow.
    """
    return (
        f"ACTIVITIES_LOG_FILE={path}\n"
        f"PROFILE_START_TIME={at_s * 1000:.0f}\n"
        f"ACTIVITIES_DURATION_MSECS={seconds * 1000:.0f}\n"
        f"ACTIVITIES_WARMUP_PERIOD_SECS={warm_up_s}\n"
    )


_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid
_CLIENT = re.compile(r"dynoconfigclient[0-9a-f-]{1,60}")


class Poll(NamedTuple):
    """A process that asks for work, and whether it can be traced now."""

    pid: int
    ready: bool
    address: str


class Endpoint:
    """The socket FOLDER/dynolog; the folder must be safe. Refused if another process serves it."""

    def __init__(self, folder: str) -> None:
        self._folder, self.path = folder, f"{folder}/{NAME}"
        self._socket = _socket()
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
            _remove_stale_sockets(folder)
            self._socket.bind(self.path)
        except OSError as error:
            self._socket.close()
            if error.errno == errno.EADDRINUSE:
                raise Refused("another gputop or dynolog serves this folder: use it or stop it") from None
            raise Refused(f"{self.path}: {error.strerror}") from None

    def fileno(self) -> int:
        """File descriptor for polling."""
        return self._socket.fileno()

    def next_poll(self) -> Poll | None:
        """The next request when something is readable; None if its sender must not be answered."""
        try:
            message, said, flags, address = self._socket.recvmsg(LONGEST + 1, socket.CMSG_SPACE(_CREDENTIALS.size))
            pid, uid = _sender(said)
            if uid != os.geteuid() or flags & socket.MSG_TRUNC or not self._is_client(address):
                return None
            return Poll(pid, wants_work(message), address)
        except (OSError, Malformed):
            return None

    def answer(self, poll: Poll, wish: str) -> bool:
        """Request a trace from a process; return whether the message was delivered."""
        try:
            self._socket.sendto(trace_reply(wish), socket.MSG_DONTWAIT, poll.address)
        except OSError:
            return False
        return True

    def close(self) -> None:
        """Close and remove the endpoint."""
        self._socket.close()
        with contextlib.suppress(OSError):
            os.unlink(self.path)

    def _is_client(self, address: object) -> bool:
        where, _, name = address.rpartition("/") if isinstance(address, str) else ("", "", "")
        return where == self._folder and _CLIENT.fullmatch(name) is not None


def _socket() -> socket.socket:
    return socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)


def _sender(said: list[tuple[int, int, bytes]]) -> tuple[int, int]:
    """PID and uid of the sender, from the kernel."""
    for level, kind, data in said:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS) and len(data) >= _CREDENTIALS.size:
            pid, uid, _ = _CREDENTIALS.unpack_from(data)
            return pid, uid
    raise Malformed


def _remove_stale_sockets(folder: str) -> None:
    """Remove sockets of ended processes and daemons; Kineto leaves its own behind."""
    for name in os.listdir(folder):
        if name == NAME or _CLIENT.fullmatch(name):
            with _socket() as looking, contextlib.suppress(OSError):
                if looking.connect_ex(f"{folder}/{name}") == errno.ECONNREFUSED:
                    os.unlink(f"{folder}/{name}")


SINCE = (2, 14)
FOLDER, TRACES = "KINETO_IPC_SOCKET_DIR", "KINETO_ONDEMAND_TRACE_DIR"
_LONGEST = 107  # bytes of a socket name, unix(7)
_TORCH = re.compile(rb"(/[^\n]*/torch)/_C\.[^/\n]*\.so( \(deleted\))?\n")
_VERSION = re.compile(rb"^__version__ = '([A-Za-z0-9.+_-]{1,60})'$", re.MULTILINE)
_RELEASE = re.compile(r"(\d+)\.(\d+)(?:\.\d+)*(?:\+[a-z0-9.]+)?")  # not 2.14.0a0+gitabc, not 2.14.0.dev20260601
_PLAIN = re.compile(r"[A-Za-z0-9._/-]+")  # what Kineto parses as one value of a setting


class Torch(NamedTuple):
    """The torch mapped by a process: its version, and whether it has the fixes."""

    version: str
    fixed: bool


def barred(process: Process, environment: Mapping[str, str], start: str) -> Barred | None:
    """Why the endpoint is not served for this process, None if it may be; `start`: command to start it next time."""
    why = _why_barred(process, environment)
    if why is None:
        return None
    return Barred(f"{process.pid} accepts traces only through a daemon: {why}; next time start it with", start)


def is_safe_folder(folder: str, uid: int | None) -> bool:
    """Whether only this user can create names in the folder, and its path is the one that Kineto uses."""
    if not os.path.isabs(folder) or folder.endswith("/") or "//" in folder:
        return False
    try:
        return within(folder, _private, folder, uid)
    except OSError:  # or no response
        return False


def _private(folder: str, uid: int | None) -> bool:
    if os.path.realpath(folder) != folder:
        return False
    info = os.lstat(folder)
    return stat.S_ISDIR(info.st_mode) and info.st_uid == os.geteuid() == uid and not info.st_mode & 0o077


def output(environment: Mapping[str, str]) -> str:
    """The folder that its Kineto writes to, created if needed; outside /tmp only as configured at its start.

    Refused unless it is our own private folder. Newer versions silently write nothing elsewhere.
    """
    own = environment.get(TRACES, "").removesuffix("/")
    if own:
        if not is_safe_folder(own, os.geteuid()) or not _PLAIN.fullmatch(own) or ".." in own or ".json" in own:
            raise Refused(f"{TRACES}={own} is not a private folder of yours: not used")
        return own
    runtime = runtime_folder({})
    try:
        traces = runtime.inner("traces")
        traces.close()
        return traces.path
    finally:
        runtime.close()


def torch_of(pid: int) -> Torch | None:
    """Version data from the files of its mapped torch, without importing it; None if unknown."""
    found = set(_TORCH.findall(mapped(pid)))
    if len(found) != 1:
        return None
    ((folder, deleted),) = found
    path = os.fsencode(root(pid)) + folder + b"/version.py"
    try:
        said = _VERSION.search(within(path, _beginning, path))
    except OSError:
        return None
    if said is None or deleted:  # replaced by another version since
        return None
    version = decode(said[1])
    return Torch(version, has_fixes(version))


def _beginning(path: bytes) -> bytes:
    with open(files.opened(path), "rb") as file:
        return file.read(1 << 14)


def has_cuda(pid: int) -> bool:
    """Whether it has loaded the CUDA driver."""
    return b"/libcuda.so" in mapped(pid)


def has_fixes(version: str) -> bool:
    """Whether this torch version has the fixes; a pre-release may predate them."""
    release = _RELEASE.fullmatch(version)
    return release is not None and (int(release[1]), int(release[2])) >= SINCE


def _why_barred(process: Process, environment: Mapping[str, str]) -> str | None:
    folder = environment.get(FOLDER, "")
    if process.uid != os.geteuid():
        return f"it belongs to {process.user or f'uid {process.uid}'}, and only that user can serve it"
    if not folder:
        return "its socket name is open to every user: not served"
    if root(process.pid):
        return "its socket folder is in a container: not served from here"
    if not is_safe_folder(folder, process.uid) or len(os.fsencode(folder)) + len("/dynolog") > _LONGEST:
        return "it uses a socket folder gputop will not serve: a reply could abort it"
    torch = torch_of(process.pid)
    least = f"{SINCE[0]}.{SINCE[1]}"
    if torch is None:
        return f"its torch version is unknown, and before {least} the end of such a trace can crash it"
    if not torch.fixed:
        return f"its torch {torch.version} can crash when such a trace stops (pytorch#188172 is in {least} and newer)"
    return None


RISK = "kineto"
LONGEST_S = 2.0
WARM_UP_S = 1  # for CUPTI
_ALONE_S, _TOGETHER_S = 3.0, 9.0  # from the first reply to the warm-up: Kineto's tick of 1 s; polls of the others
_LATEST_S = 2.1  # a rank must know this long before the recording: its ticks
_POLL_S = 11.0  # two polls, and one lost
_WRITTEN_S = 30.0
_LOOK_S = 0.1
_OLD_S = 600.0
_LEFT = re.compile(r"on-demand-[0-9a-f]{16}_\d+\.json(\.tmp)?")

_RISKY = (
    "{pid} waits for Kineto's daemon, and gputop can be that for one trace: {span:.3g} s of all its threads. If {pid}"
    " ends within 15 s from now, it can crash: exit code 139 or 134, not its own"
)
_RISKY_GPU = "; it uses CUDA, where this is untested, and where profilers beside CUDA graphs crashed jobs"
_SILENT = "the process did not contact the daemon: suspended, hung, or built without Kineto"
_UNWRITTEN = "the process accepted the request but wrote no trace: see its standard error"


def span_s(order: TraceOrder) -> float:
    """Seconds to record: one for three steps, at most two. The step time is unknown."""
    return min(max(order.steps / 3, 1.0), LONGEST_S)


def risk(pid: int, order: TraceOrder) -> str:
    """The risk that the user must accept."""
    return _RISKY.format(pid=pid, span=span_s(order)) + (_RISKY_GPU if has_cuda(pid) else "")


class KinetoCapture(ProcessCapture):
    """One process to be asked: state `asked` until the request is delivered, then `recording`."""

    def __init__(self, target: TargetProcess, order: TraceOrder) -> None:
        super().__init__(target)
        self.span_s, self._patience_s = span_s(order), min(_POLL_S, order.wait_s)
        self.how = f"Kineto on demand, {self.span_s:.3g} s"
        self.busy = False
        self.at_s = 0.0
        self._stem, self._out = f"on-demand-{os.urandom(8).hex()}", ""
        said = environment(target.pid)
        self.folder = said.get(FOLDER, "")
        try:
            self._out = output(said)
            _remove_stale_traces(self._out)
        except Refused as why:
            self.fail(str(why))

    @property
    def pending(self) -> bool:
        """Whether its trace is still expected."""
        return self.state in ("asked", "recording")

    def request(self, endpoint: Endpoint, poll: Poll, at_s: float) -> None:
        """Request its trace if it is ready."""
        self.busy = not poll.ready
        if self.state != "asked" or self.busy or self.target.ended():
            return
        if at_s - time.time() < WARM_UP_S + _LATEST_S:
            self.fail("it contacted the daemon too late to start with the others: trace it again")
        elif endpoint.answer(poll, trace_config(f"{self._out}/{self._stem}.json", at_s, self.span_s, WARM_UP_S)):
            self.state, self.at_s = "recording", at_s

    def poll(self, waited_s: float) -> None:
        """Check whether its trace is there, or will never be."""
        if self.state == "asked" and waited_s > self._patience_s:
            self.fail(BUSY if self.busy else _SILENT)
        elif self.state == "recording":
            if (path := self._written()) is not None:
                self.state, self.report = "done", {"out": path, "timed": True}
            elif time.time() > self.at_s + self.span_s + _WRITTEN_S:
                self.fail(_UNWRITTEN)
        if self.pending and self.target.ended():
            self.fail("the process exited")

    def give_up(self) -> None:
        """Stop waiting; a requested trace ends by itself, and its file is removed later."""
        left_s = self.at_s + self.span_s - time.time()
        self.fail(
            f"cancelled; it records for {left_s:.0f} s more; that trace is discarded" if left_s > 0 else "cancelled"
        )

    def _written(self) -> str | None:
        """Path of the finished file, which Kineto renames when complete; it contains the PID in its own namespace."""
        with contextlib.suppress(OSError):
            for name in os.listdir(self._out):
                if name.startswith(f"{self._stem}_") and name.endswith(".json"):
                    return f"{self._out}/{name}"
        return None


def capture(targets: Sequence[TargetProcess], order: TraceOrder, run: ActionRun) -> list[ProcessCapture]:
    """Trace these from a common moment on; no request outlives that moment."""
    shots = [KinetoCapture(target, order) for target in targets]
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


def _serve(shots: Sequence[KinetoCapture], endpoints: dict[str, Endpoint], run: ActionRun) -> None:
    began_s = time.monotonic()
    ahead_s = WARM_UP_S + (_ALONE_S if len(shots) == 1 else _TOGETHER_S)
    by_pid = {shot.target.pid: shot for shot in shots}
    while waited := [shot for shot in shots if shot.pending]:
        for endpoint in readable(endpoints.values(), _LOOK_S):
            poll = endpoint.next_poll()
            shot = by_pid.get(poll.pid) if poll else None
            if poll and shot and endpoints.get(shot.folder) is endpoint:
                shot.request(endpoint, poll, _begun_s(shots) or time.time() + ahead_s)
        passed_s = time.monotonic() - began_s
        run.say(_line(shots, passed_s))
        for shot in waited:
            shot.poll(passed_s)
            if run.cancelled and shot.pending:
                shot.give_up()


def _begun_s(shots: Sequence[KinetoCapture]) -> float:
    """Unix time of the common start; 0 if none has been asked."""
    return max(shot.at_s for shot in shots)


def _line(shots: Sequence[KinetoCapture], passed_s: float) -> str:
    """`recording 1 s · 2 of 2 ranks · 6 s`."""
    at_s = _begun_s(shots)
    ready = sum(shot.state in ("recording", "done") for shot in shots)
    if not ready:
        what = "waiting for it to contact the daemon (every 5 s)"
    elif time.time() < at_s:
        what = f"recording in {at_s - time.time():.0f} s"
    else:
        span = shots[0].span_s
        what = f"recording {span:.3g} s" if time.time() < at_s + span else "waiting for the trace to be written"
    many = f" · {ready} of {len(shots)} ranks" if len(shots) > 1 else ""
    return f"{what}{many} · {passed_s:.0f} s"


def _remove_stale_traces(folder: str) -> None:
    """Remove traces that were never collected."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if _LEFT.fullmatch(entry.name) and time.time() - entry.stat(follow_symlinks=False).st_mtime > _OLD_S:
                os.unlink(entry.path)


__all__ = ["RISK", "barred", "capture", "risk"]
