"""One capture: torch's profiler on the training thread, started and stopped by the ends of its optimizer steps.

It is prepared one step before the first that is recorded, as torch.profiler's schedule(warmup=1) does: the first launch
under CUPTI makes its buffers, which took 8 ms of a step of 2 ms on an H200.

All that touches the profiler runs on the thread that makes the steps: in the hook, when that thread starts a profiler
of its own, forks, or ends. Another thread only asks; the main thread then stops between two of its bytecodes.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from typing import Any, Callable, NamedTuple

from . import profilers
from .facts import distributed
from .hooks import OnStep
from .place import free_bytes, halves
from .profilers import whole

MOST_STEPS = 100
_LEAST_CAP_S, _MOST_CAP_S = 1.0, 60.0
_SLACK = 1.2
_LONG_STEP_S = 0.25  # with stacks, of longer steps one is enough
_MOST_BYTES, _LITTLE_BYTES = 1 << 30, 4 << 20


class Wish(NamedTuple):
    """What is to be recorded."""

    steps: int = 3
    shapes: bool = False
    stacks: bool = False
    memory: bool = False
    at: float = 0.0  # not before this Unix time
    wait: float = 30.0  # seconds for the first steps to come
    graphs: bool = False  # the client has been warned about CUDA graphs


class Problem(Exception):
    """Why there is no trace: a code of the protocol, and the words."""

    def __init__(self, code: str, detail: str = "") -> None:
        super().__init__(code, detail)
        self.code, self.detail = code, detail


class Capture:
    """`state` goes from waiting to warming to recording to stopped; `changed` is called at each, on whatever thread."""

    def __init__(self, wish: Wish, changed: Callable[[], None]) -> None:
        self.wish, self.state, self.reason = wish, "waiting", ""
        self.problem: Problem | None = None
        self.step_s = 0.0
        self.steps = 0
        self._changed = changed
        self._wanted = wish.steps
        self._over = threading.Event()
        self._optimizer: Any = None
        self._thread = 0
        self._inside = False
        self._ended_s = self.warmed_s = self.began_s = self._stopped_s = self._stop_s = 0.0
        self._profiler: Any = None
        self._step: Any = None
        self._hook: OnStep | None = None
        self._asked = ""  # by another thread, to end
        self._lock = threading.Lock()

    @property
    def cap_s(self) -> float:
        """How long it may record; the most while it is not known how long a step is."""
        if not self.step_s:
            return _MOST_CAP_S
        return min(_MOST_CAP_S, max(_LEAST_CAP_S, _SLACK * self._wanted * self.step_s))

    def arm(self) -> None:
        """Wait for steps from now on."""
        self._hook = OnStep.add(self._stepped)

    def end(self, reason: str, wait_s: float) -> None:
        """End it from any thread, and wait so long until it has ended: what there is, is kept."""
        if reason == "preempted" and self._moved("stopped"):
            self.problem = Problem("profiler-active")
            self._finish()
        elif self.give_up():
            return
        elif self._thread == threading.get_ident():
            self._guarded(lambda: self._stop(reason))
        else:
            self.ask(reason)
            self._over.wait(wait_s)

    def give_up(self) -> bool:
        """End it, if no profiler is prepared yet."""
        if not self._moved("stopped"):
            return self.state == "stopped" and self._profiler is None
        self.problem = Problem("no-step", "stopped before a step began")
        self._finish()
        return True

    def ask(self, reason: str) -> None:
        """Ask the training thread to end it soon: at its next step, or at once if it is the main thread."""
        if not self._asked and self.state in ("warming", "recording"):
            self._asked = reason
            if self._thread == threading.main_thread().ident:
                _on_main_thread(lambda: self._guarded(lambda: self._stop(reason)))

    def disarm(self) -> None:
        """Take the hook out; never on the training thread."""
        if self._hook is not None:
            self._hook.remove()
            self._hook = None

    def saved(self, path: str) -> dict[str, Any]:
        """Write the trace to a file beside `path`, then give it its name: all of it or none."""
        (temporary, _), started_s = halves(path), time.monotonic()
        profiler, self._profiler = self._profiler, None
        profiler.kineto_results.save(temporary)  # fails without a word
        size = _whole_bytes(temporary)
        if not size:
            folder = os.path.dirname(path)
            why = "no space left in" if free_bytes(folder) < _LITTLE_BYTES else "torch left it incomplete in"
            raise Problem("output", f"{why} {folder}")
        if size > _MOST_BYTES:
            raise Problem("output", f"the trace has {size >> 20} MiB, too large: trace fewer steps")
        os.chmod(temporary, 0o600)  # it makes a file of its own, by the program's umask
        os.rename(temporary, path)
        return {
            "state": "done",
            "out": path,
            "bytes": size,
            "preempted": self.reason == "preempted",
            "cut": self.reason == "cut",
            "steps": self.steps,
            "step_s": round(self.step_s, 6),
            "record_ms": round((self._stopped_s - self.began_s) * 1e3, 1),
            "stop_ms": round(self._stop_s * 1e3, 1),
            "export_ms": round((time.monotonic() - started_s) * 1e3, 1),
        }

    def _stepped(self, optimizer: Any, *_: Any) -> None:
        """The hook. Nothing of ours may be raised in the program's step; what its signal handlers raise must be."""
        if self.state != "stopped":
            self._guarded(lambda: self._count(optimizer))

    def _guarded(self, do: Callable[[], None]) -> None:
        if self._inside or self.state == "stopped":
            return
        self._inside = True
        try:
            do()
        except Exception as error:
            self._failed(error)
        finally:
            self._inside = False

    def _count(self, optimizer: Any) -> None:
        now_s = time.monotonic()
        if self._optimizer is None:  # the first one defines what a step is
            self._optimizer, self._thread, self._ended_s = optimizer, threading.get_ident(), now_s
        elif optimizer is not self._optimizer or self._thread != threading.get_ident():
            return
        elif self.state != "recording":
            self._measured(now_s - self._ended_s)
            self._ended_s = now_s
        if self.state == "waiting":
            # one of several ranks: all begin with the same step, also those that have not seen how long one is (one
            # step apart, if that time falls between two ranks' ends of one step)
            if time.time() >= self.wish.at and not _graph_is_captured() and self._moved("warming"):
                self._warm_up()
        elif self.state == "warming":
            if self._asked:
                self._stop(self._asked)
            elif not _graph_is_captured():
                self._begin()
        else:
            self._close_step()
            self.steps += 1
            if self.steps >= self._wanted or self._asked or now_s - self.began_s > self.cap_s:
                self._stop(self._asked if self.steps < self._wanted else "")
            else:
                self._open_step()

    def _measured(self, step_s: float) -> None:
        self.step_s = step_s
        if self.wish.stacks and step_s > _LONG_STEP_S:
            self._wanted = 1

    def _warm_up(self) -> None:
        """Prepare the profiler: from now on CUPTI is at work, and nothing is recorded yet."""
        if profilers.active():
            raise Problem("profiler-active")
        wish, torch = self.wish, sys.modules["torch"]
        cuda = bool(torch.cuda.is_initialized())
        if cuda:
            _keep_graphs_alive()
        self._profiler = whole("torch.autograd.profiler").profile(
            use_kineto=True,
            use_device="cuda" if cuda else None,
            record_shapes=wish.shapes,
            with_stack=wish.stacks,
            profile_memory=wish.memory,
        )
        self._started(profilers.prepare)
        self.warmed_s = self._ended_s = time.monotonic()
        if self._thread != threading.main_thread().ident:
            _EndOfThread.here.watch = _EndOfThread(self)
        self._changed()
        if self._asked:
            self._stop(self._asked)

    def _begin(self) -> None:
        """Record from now on."""
        if profilers.active():  # of a kind that is started without being prepared
            self._profiler = None
            raise Problem("profiler-active")
        self.state = "recording"
        self._started(profilers.start)
        ranks = distributed()
        profilers.describe("distributedInfo", ranks and {**ranks, "world_size": ranks["world"]})
        self.began_s = time.monotonic()
        self._open_step()
        self._changed()
        if self._asked:
            self._stop(self._asked)

    def _started(self, start: Callable[[Any], None]) -> None:
        """One of the two halves of its start, which a driver may refuse."""
        profiler, self._profiler = self._profiler, None
        try:
            start(profiler)
        except Exception as error:
            whole("torch.autograd.profiler")._is_profiler_enabled = False
            code = "cupti" if getattr(profiler, "use_device", None) else "internal"
            raise Problem(code, f"{type(error).__name__}: {error}"[:300]) from None
        self._profiler = profiler

    def _open_step(self) -> None:
        self._step = whole("torch.autograd.profiler").record_function(f"gputop.step#{self.steps}")
        self._step.__enter__()

    def _close_step(self) -> None:
        step, self._step = self._step, None
        if step is not None:
            step.__exit__(None, None, None)

    def _stop(self, reason: str) -> None:
        if self._profiler is None:
            return
        if self.state == "warming":
            self._started(profilers.start)  # only what was started can be stopped: torch.profiler does the same
            profilers.end(self._profiler)
            self._profiler = None
            ended = "profiler-active" if reason == "preempted" else "no-step"
            raise Problem(ended, "stopped before a step was recorded")
        self._close_step()
        self._stopped_s = time.monotonic()
        profilers.end(self._profiler)
        self._stop_s = time.monotonic() - self._stopped_s
        self.reason = reason
        self._finish()

    def _failed(self, error: Exception) -> None:
        self.problem = error if isinstance(error, Problem) else Problem("internal", f"{type(error).__name__}: {error}")
        if self._profiler is not None:
            try:
                profilers.end(self._profiler)
            except Exception:
                pass
        self._profiler = None
        self._finish()

    def _moved(self, state: str) -> bool:
        """From waiting to this state, if it still waits."""
        with self._lock:
            if self.state != "waiting":
                return False
            self.state = state
            return True

    def _finish(self) -> None:
        self.state, self._optimizer = "stopped", None
        self._over.set()
        self._changed()


def _whole_bytes(path: str) -> int:
    """The size of a trace that has been written to its end; 0 of any other."""
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 16))
            return size if file.read().rstrip().endswith((b"}", b"]")) else 0
    except OSError:
        return 0


class _EndOfThread:
    """Kept by a training thread that is not the main one: when the thread ends, so does its profiler."""

    here: Any = threading.local()

    def __init__(self, capture: Capture) -> None:
        self._capture = capture

    def __del__(self) -> None:
        if self._capture._thread == threading.get_ident():
            self._capture._guarded(lambda: self._capture._stop("cut"))


def _graph_is_captured() -> bool:
    torch = sys.modules["torch"]
    return bool(torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())


def _keep_graphs_alive() -> None:
    """What torch.profiler.profile sets where inductor makes CUDA graphs: without it CUPTI and they have crashed."""
    config = whole("torch._inductor.config")
    if config is not None and getattr(getattr(config, "triton", None), "cudagraphs", False):
        os.environ["DISABLE_CUPTI_LAZY_REINIT"] = "1"
        os.environ["TEARDOWN_CUPTI"] = "0"


_main_calls: deque[Callable[[], None]] = deque()
_entry: Any = None


def _on_main_thread(call: Callable[[], None]) -> None:
    """Have the main thread call it once, as soon as it runs Python: between two bytecodes, as a signal handler is.

    It must not raise. Py_AddPendingCall: unlike a signal it interrupts no system call.
    """
    global _entry
    import ctypes  # torch has loaded it long ago

    if _entry is None:  # kept for good: the interpreter may still hold it
        _entry = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(_run_next)
    _main_calls.append(call)
    ctypes.pythonapi.Py_AddPendingCall(_entry, None)


def _run_next(_: Any) -> int:
    try:
        _main_calls.popleft()()
    except Exception:
        pass
    return 0
