"""When the agent begins and ends: at `import torch`, in a forked child that trains, before the interpreter goes."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, Callable

if TYPE_CHECKING:
    from .capture import Capture
    from .server import Server

_HELPERS = (
    "multiprocessing.spawn",
    "multiprocessing.forkserver",
    "multiprocessing.resource_tracker",
    "torch/_inductor",
)
_EXIT_S = 12.0  # a step that is being recorded must end first
_FORK_S = 2.0
_PROFILER_S = 60.0

_server: Server | None = None
_hooked = False  # atexit and fork know of us


def lie_in_wait() -> None:
    """Start when the program imports torch; never before, never otherwise."""
    if not sys.platform.startswith("linux"):
        return
    if "torch" in sys.modules:
        start("import torch")
    else:
        _watch_imports()


def start(why: str = "import") -> None:
    """Listen, in a separate thread; a second call does nothing. A failure here must not disturb the program."""
    if sys.version_info >= (3, 8) and sys.platform.startswith("linux"):
        _quietly(lambda: _start(why))


def capturing() -> Capture | None:
    """The capture under way in this process."""
    server = _server
    return server.job.capture if server is not None and server.job is not None and server.pid == os.getpid() else None


def _start(why: str) -> None:
    global _server, _hooked
    if _server is not None and _server.pid == os.getpid():
        return
    from . import profilers
    from .server import Server

    _server = Server(why)
    profilers.first = _before_a_profiler
    if not _hooked:
        import atexit

        _hooked = True
        atexit.register(_before_the_end)
        os.register_at_fork(before=_before_fork, after_in_child=_in_child)
    _server.start()
    if not profilers.guard():
        _watch_imports().began = True


def _watch_imports() -> _Finder:
    for finder in sys.meta_path:
        if isinstance(finder, _Finder):
            return finder
    finder = _Finder()
    sys.meta_path.insert(0, finder)
    return finder


def _before_the_end() -> None:
    """While a profiler runs or our thread lives, the interpreter must not be taken apart: it would crash."""
    global _server
    server, _server = _server, None
    if server is None or server.pid != os.getpid():
        return
    job = server.job
    if job is not None and job.capture is not None:
        job.capture.end("cut", _EXIT_S)
    server.close()
    _quietly(_last_words)


def _last_words() -> None:
    from .marks import last_words

    if said := last_words():
        sys.stderr.write(said)


def _before_a_profiler() -> None:
    """The program starts a profiler, and two at once would crash it: what ours has recorded is saved."""
    capture = capturing()
    if capture is not None:
        capture.end("preempted", _PROFILER_S)


def _before_fork() -> None:
    """A child must not inherit a profiler that runs: a new epoch's loaders end our capture."""
    capture = capturing()
    if capture is not None and capture.state == "recording":
        _quietly(lambda: capture.end("preempted", _FORK_S))


def _in_child() -> None:
    """The child has no thread of ours: forget everything, unlink nothing; it gets its own if it trains."""
    global _server
    from . import profilers

    server, _server = _server, None
    if server is None:
        return
    if server.job is not None and server.job.capture is not None:
        server.job.capture.state = "stopped"  # its hook came along
    if server.meter is not None:
        _quietly(server.meter.leave)
    _quietly(server.abandon)
    if profilers.used:
        _quietly(_leave_early)
    _quietly(_at_first_step)


def _leave_early() -> None:
    """Have a forked child of a process that was traced end by _exit(2), with its own code, all it printed written out.

    Kineto has a thread in the parent and waits for it at the end of the program: in a child, which has no such thread,
    for ever. A child of multiprocessing ends like this anyway. What it registers with atexit(3) later is still called.
    """
    import ctypes  # torch has loaded it long ago

    libc = ctypes.CDLL(None)
    # the last that is registered is called first; no Python in them, there is none any more then
    libc.on_exit(ctypes.cast(libc._exit, ctypes.c_void_p), None)
    getattr(libc, "__cxa_atexit")(ctypes.cast(libc.fflush, ctypes.c_void_p), None, None)


def _at_first_step() -> None:
    """A process that multiprocessing made is a loader until its optimizer makes a step."""
    from .hooks import OnStep, possible

    if not possible():
        return
    hook: OnStep | None = None

    def first(*_: Any) -> None:
        if hook is not None and hook.live:
            hook.live = False
            start("first optimizer step")
            if _server is not None:
                _server.spent.append(hook)

    hook = OnStep.add(first)


def _helper() -> bool:
    """Whether multiprocessing or the compiler started this process for itself."""
    argv = getattr(sys, "orig_argv", None)
    if argv is None:  # below 3.10
        with open("/proc/self/cmdline", "rb") as file:
            argv = file.read().decode("utf-8", "replace").split("\0")
    return any(name in argument for argument in argv[1:5] for name in _HELPERS)


def _quietly(do: Callable[[], None]) -> None:
    try:
        do()
    except Exception as error:
        if os.environ.get("GPUTOP_AGENT_DEBUG") == "1":
            sys.stderr.write(f"gputop agent: {type(error).__name__}: {error}\n")


class _Finder:
    """First on sys.meta_path; finds nothing, and so learns that torch is being imported. It stays: taking it out while
    an import goes through the list would make that import skip the next finder."""

    def __init__(self) -> None:
        self.began = self._guarded = self._done = self._helper = False

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:  # noqa: ARG002
        if not self._done and (self.began or name == "torch"):
            _quietly(self._seen)

    def _seen(self) -> None:
        from . import hooks, profilers

        if not self.began:
            self.began = True
            self._helper = _helper()
            if not self._helper:
                start("import torch")
        # as soon as the class is there, on the thread that imports it: no profiler of the program can be missed
        self._guarded = self._guarded or profilers.guard()
        if self._guarded and not self._helper:
            self._done = True
        elif self._guarded and hooks.possible():
            self._done = True
            _at_first_step()
