"""The agent's thread: serves its socket, a few connections at a time, and asleep in the kernel while there are none."""

from __future__ import annotations

import os
import selectors
import signal
import socket
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from . import marks, place, profilers
from .answers import answer, since, tensors, wish
from .capture import Problem
from .connection import Connection, Gone
from .job import Job
from .memory import memory
from .meter import Meter, wanted
from .steps import steps

if TYPE_CHECKING:
    from .hooks import OnStep

_MOST_CONNECTIONS = 16  # each gputop that shows this job's steps has one
_TICK_S = 0.05
_LOOK_S = 0.5  # while there are connections
_JOIN_S = 2.0
_IMPORT_S, _IMPORTS_S = 0.1, 120.0  # how often it is looked whether torch is there, and for how long
_TOUCH_S = 86_400.0
_TURN_S = 0.005  # of CPU that clients get in a turn: so long the interpreter lets a thread run beside others anyway
_REST_S, _REST = 0.005, 19  # then they wait at least as long, and this multiple of what it took: a share of 5 %
_DEAF_S = 0.5  # without a descriptor left for a connection: it waits, and the kernel would wake us for it at once


class Server:
    """Listens from the beginning; `start` makes the thread. `capture` is the one under way."""

    def __init__(self, why: str) -> None:
        self.pid, self.why = os.getpid(), why
        self.job: Job | None = None
        self.meter = meter = Meter() if wanted() else None
        marks.steps_made = lambda: None if meter is None else meter.made
        self.spent: list[OnStep] = []  # hooks to be taken out
        self._closing = False
        self._hears_s: float | None = None  # when it listens again
        self._rests_s = 0.0  # until then clients wait
        self._began_s = time.monotonic()
        self._touches_s = time.monotonic() + _TOUCH_S
        self._listener, self._path = place.listener()
        self._wakes, self._wake = socket.socketpair()
        self._connections: list[Connection] = []
        self._selector = selectors.DefaultSelector()
        for each in (self._listener, self._wakes, self._wake):
            each.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._wakes, selectors.EVENT_READ)
        self._wakes_only = selectors.DefaultSelector()
        self._wakes_only.register(self._wakes, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name="gputop-agent", daemon=True)

    def start(self) -> None:
        """Serve."""
        self._thread.start()

    def wake(self) -> None:
        """Something has changed. From any thread; never waits."""
        try:
            self._wake.send(b"!", socket.MSG_NOSIGNAL)  # the program's thread must not die of SIGPIPE
        except OSError:
            pass

    def close(self) -> None:
        """Before the interpreter ends: no socket, no thread, no half file is left."""
        self._closing = True
        self.wake()
        try:
            os.unlink(self._path)
        except OSError:
            pass
        self._thread.join(_JOIN_S)
        if self._thread.is_alive() and self.job is not None:
            self.job.clear()

    def abandon(self) -> None:
        """In a forked child: these descriptors are the parent's too, and stay its own."""
        for each in (self._listener, self._wakes, self._wake, *(open_.socket for open_ in self._connections)):
            each.close()
        self._selector.close()
        self._wakes_only.close()

    def _run(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # the program's threads get them
        try:
            while not self._closing:
                self._round()
            self.look()  # what was recorded up to the end is kept
        except Exception:
            if os.environ.get("GPUTOP_AGENT_DEBUG") == "1":
                raise
        finally:
            self.abandon()

    def _round(self) -> None:
        left_s = self._rests_s - time.monotonic()
        if left_s > 0:
            ready = self._wakes_only.select(min(left_s, self._patience_s()))
        else:
            ready = self._selector.select(0 if self._asked() else self._patience_s())
        if any(key.fileobj is self._wakes for key, _ in ready):
            self._wakes.recv(4096)
        if left_s <= 0:
            self.turn([key for key, _ in ready if key.fileobj is not self._wakes])
        self._install_meter()
        while self.spent:
            self.spent.pop().remove()
        self.look()
        now_s = time.monotonic()
        if self._hears_s is not None and now_s >= self._hears_s:
            self._hears_s = None
            self._selector.register(self._listener, selectors.EVENT_READ)
        if now_s >= self._touches_s:
            self._touches_s = now_s + _TOUCH_S
            place.touch(self._path)
        for each in list(self._connections):
            self._say(each)
            if now_s > each.deadline_s and (self.job is None or self.job.connection is not each):
                self._drop(each)

    def turn(self, ready: list[selectors.SelectorKey]) -> int:
        """Take in what clients send and answer some of it, one message at least; how many were answered.

        The training must not notice a client, whatever it sends: what a turn costs is bounded, and a rest follows it.
        """
        began_s = time.thread_time()
        for key in ready:
            if key.fileobj is self._listener:
                self._accept()
            else:
                self._receive(key.data)
        answered = 0
        while asked := self._asked():
            for connection in asked:  # in turns, so that none holds up the others
                if answered and time.thread_time() - began_s >= _TURN_S:
                    break
                self._serve(connection)
                answered += 1
            else:
                continue
            break
        if ready or answered:
            rest_s = max(_REST_S, _REST * (time.thread_time() - began_s))
            self._rests_s = time.monotonic() + rest_s
            for connection in self._connections:
                connection.deadline_s += rest_s  # it is not read during that time
        return answered

    def _asked(self) -> list[Connection]:
        return [each for each in self._connections if each.waits]

    def _install_meter(self) -> None:
        """Put the step meter in when torch is there, take its hooks out when it is off."""
        meter = self.meter
        if meter is None:
            return
        if not meter.installed and not meter.off:
            try:
                meter.install()
            except Exception as error:  # the client gets the error; all else goes on
                meter.stop(f"{type(error).__name__}: {error}"[:200])
        elif meter.off and meter.hooks:
            self.spent += meter.hooks
            meter.hooks = []

    def _patience_s(self) -> float:
        if self.job:
            return _TICK_S
        if self.meter is not None and not self.meter.installed and time.monotonic() < self._began_s + _IMPORTS_S:
            return _IMPORT_S
        if self._connections or self._hears_s is not None:
            return _LOOK_S
        return max(_LOOK_S, self._touches_s - time.monotonic())

    def look(self) -> None:
        """Move the job on, if there is one."""
        job = self.job
        if job is None:
            return
        job.look()
        if job.over:
            job.connection.wait()  # it has more to ask
            self.job = None

    def _accept(self) -> None:
        try:
            connected, _ = self._listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError:
            self._selector.unregister(self._listener)
            self._hears_s = time.monotonic() + _DEAF_S
            return
        connection = Connection(connected)
        if len(self._connections) >= _MOST_CONNECTIONS or not connection.trusted():
            connected.close()
            return
        self._connections.append(connection)
        self._selector.register(connected, selectors.EVENT_READ, connection)
        version = getattr(profilers.whole("torch.version"), "__version__", None)
        hello = {"hello": "gputop-agent", "v": 1, "pid": self.pid, "python": sys.version.split()[0]}
        self._say(connection, {**hello, "torch": version, "why": self.why, "busy": self.job is not None})

    def _receive(self, connection: Connection) -> None:
        try:
            connection.receive()
        except Gone:
            self._drop(connection)

    def _serve(self, connection: Connection) -> None:
        reply = self._answer(connection, connection.message())
        if reply is not None:
            self._say(connection, reply)

    def _answer(self, connection: Connection, line: bytes) -> dict[str, Any] | None:
        ident: Any = None
        try:
            request, ident = connection.request(line)
            op = request.pop("op", None)
            if op == "capture":
                self._capture(connection, request, ident)
                return None
            reply = self._other(op, request)
        except Problem as problem:
            reply = {"error": problem.code, "detail": problem.detail}
        except Exception as error:
            reply = {"error": "internal", "detail": f"{type(error).__name__}: {error}"[:300]}
        return {**reply, "id": ident} if ident is not None else reply

    def _capture(self, connection: Connection, request: dict[str, Any], ident: str | None) -> None:
        wanted = wish(request)
        if self.job is not None:
            raise Problem("busy")
        try:
            self.job = Job(connection, ident, wanted, self.wake)
        except (OSError, place.Unusable) as error:
            raise Problem("output", str(error)) from None
        self.look()  # it reports its progress itself

    def _other(self, op: Any, request: dict[str, Any]) -> dict[str, Any]:
        if op == "cancel" and self.job is not None:
            self.job.cancel()
        if op == "steps":
            return {"steps": steps(self.meter, since(request)), "noted": marks.noted()}
        if op == "memory":
            return {"memory": memory(profilers.whole("torch"), self.meter, tensors(request))}
        return answer(op, request)

    def _say(self, connection: Connection, reply: dict[str, Any] | None = None) -> None:
        try:
            connection.say(reply) if reply is not None else connection.flush()
        except Gone:
            self._drop(connection)

    def _drop(self, connection: Connection) -> None:
        if connection not in self._connections:
            return
        self._connections.remove(connection)
        self._selector.unregister(connection.socket)
        connection.socket.close()
        if self.job is not None and self.job.connection is connection:
            self.job.cancel()
