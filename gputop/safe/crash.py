"""Crash reports in a private file: tracebacks of any thread, and stacks of crashes in C."""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable

from gputop.safe.files import Folder, Refused, state_folder
from gputop.safe.text import clean, redact

_FILES_KEPT = 20
_REPORTS_KEPT = 20


class Crashes:
    """Reports of this run: one file of mode 0600 created with the first, and one line each for the screen."""

    def __init__(self, folder: Folder | None, refused: str = "") -> None:
        self.lines: list[str] = []
        self.tell: Callable[[str], None] | None = None
        self._folder = folder
        self._refused = refused
        self._stamp = f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.txt"
        self._fault_fd: int | None = None
        self._report_fd: int | None = None
        self._lock = threading.Lock()

    @classmethod
    def in_state_folder(cls) -> Crashes:
        """Reports in the state folder; if that is refused, only the line on the screen."""
        try:
            return cls(state_folder())
        except Refused as refused:
            return cls(None, str(refused))

    def install(self) -> None:
        """Redirect errors: from now on nothing is written to standard error behind the screen."""
        threading.excepthook = self._thread_failed
        sys.unraisablehook = self._unraisable
        if self._folder is None:
            return
        try:
            self.sweep()
            self._fault_fd = self._folder.create(f"fault-{self._stamp}")
            faulthandler.enable(self._fault_fd)
        except (Refused, OSError) as error:
            self._refused = clean(str(error))

    def report(self, error: BaseException, where: str) -> str:
        """Write the sanitized, redacted traceback; return and publish the line for the screen."""
        what = redact(clean(f"{type(error).__name__}: {error}", 200))
        with self._lock:
            path = self._write(traceback.format_exception(error), where)
            line = f"gputop: internal error in {clean(where, 80)}: {what}{_place(error)}; {path}; please report it"
            if limit := _limit(error):
                line = f"gputop: {clean(where, 80)} ended: {limit}; {path}"
            if len(self.lines) < _REPORTS_KEPT:
                self.lines.append(line)
        if self.tell is not None:
            self.tell(line)
        return line

    def sweep(self) -> None:
        """Remove empty fault files of ended processes, and the oldest reports."""
        folder = self._folder
        if folder is None:
            return
        sizes = folder.sizes()
        for name, size in sizes.items():
            if name.startswith("fault-") and size == 0 and not _alive(name):
                folder.remove(name)
        for prefix in ("crash-", "fault-"):
            kept = sorted(name for name, size in sizes.items() if name.startswith(prefix) and size)
            for name in kept[:-_FILES_KEPT]:
                folder.remove(name)

    def close(self) -> None:
        """Remove the file for faults in C if there was none."""
        if self._folder is None or self._fault_fd is None:
            return
        faulthandler.disable()
        if os.fstat(self._fault_fd).st_size == 0:
            self._folder.remove(f"fault-{self._stamp}")

    def _write(self, trace: list[str], where: str) -> str:
        if self._folder is None:
            return f"details not saved ({self._refused})"
        if len(self.lines) >= _REPORTS_KEPT:
            return "too many crash reports"
        text = "\n".join(clean(line) for line in "".join(trace).splitlines())
        head = f"{time.strftime('%Y-%m-%d %H:%M:%S')} in {clean(where)}\n"
        name = f"crash-{self._stamp}"
        try:
            if self._report_fd is None:
                self._report_fd = self._folder.create(name)
            os.write(self._report_fd, f"{head}{redact(text)}\n\n".encode())
        except (Refused, OSError) as error:
            return f"details not saved ({clean(str(error))})"
        return f"details in {clean(self._folder.path)}/{name}"

    def _thread_failed(self, args: threading.ExceptHookArgs) -> None:
        if args.exc_value is not None and not isinstance(args.exc_value, SystemExit):
            self.report(args.exc_value, args.thread.name if args.thread else "a thread")

    def _unraisable(self, args: sys.UnraisableHookArgs) -> None:
        if args.exc_value is not None:
            self.report(args.exc_value, args.err_msg or "a finaliser")


def last_resort(error: BaseException, where: str, *, keep: bool = True) -> str:
    """The line for an unexpected error of a command; with `keep` its traceback goes to a file in the state folder.

    An error in the reporting itself never hides the original one.
    """
    try:
        crashes = Crashes.in_state_folder() if keep else Crashes(None, "read-only")
        line = crashes.report(error, redact(where))
        crashes.sweep()
    except Exception as other:
        why = f"details not saved ({type(other).__name__})"
        line = f"gputop: internal error: {type(error).__name__}{_place(error)}; {why}; please report it"
    return line


def _limit(error: BaseException) -> str:
    """Which system limit was hit; empty if the error is ours."""
    if isinstance(error, MemoryError):
        return "out of memory: check ulimit -v and the memory limit of the container"
    if isinstance(error, RuntimeError) and "can't start new thread" in str(error):
        return "cannot start another thread: check ulimit -u, ulimit -v and the limits of the container"
    return ""


def _place(error: BaseException) -> str:
    """Where it was raised: the innermost line of our own code."""
    found = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        module = frame.f_globals.get("__name__")
        if isinstance(module, str) and module.partition(".")[0] == __name__.partition(".")[0]:
            found = f" ({module}:{line})"
    return found


def _alive(name: str) -> bool:
    pid = name.removesuffix(".txt").rpartition("-")[2]
    return pid.isdecimal() and os.path.exists(f"/proc/{pid}")
