"""Restore the terminal at every kind of exit: key, signal, crash, or a lost line."""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from threading import Thread
from time import sleep
from typing import Any, NoReturn

from gputop.safe.crash import Crashes

_NAME = b"gputop-restore"  # as ps and top show it; the kernel keeps fifteen characters
_REAP_S = 0.2


class Restorer:
    """A child that waits for the end of this process, in its own session: signals of the terminal do not reach it."""

    def __init__(self, restore: Callable[[], None], keep: int) -> None:
        """`restore` runs in the child after an unannounced end; of the open files only `keep` remains open there."""
        reader, self._writer = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            try:
                if _holds_at_the_end(reader, keep):
                    restore()
            finally:
                os._exit(0)
        os.close(reader)

    def holds(self, terminal: bool) -> None:
        """Whether the program owns the terminal now; while it is suspended the shell does."""
        try:
            os.write(self._writer, b"+" if terminal else b"-")
        except OSError:  # it was killed
            pass

    def dismiss(self) -> None:
        """The terminal has been restored: end the child, and wait for it briefly."""
        try:
            os.write(self._writer, b".")
            os.close(self._writer)
            deadline = time.monotonic() + _REAP_S
            while os.waitpid(self._pid, os.WNOHANG)[0] == 0 and time.monotonic() < deadline:
                time.sleep(0.001)
        except OSError:  # it was killed
            pass


def _holds_at_the_end(reader: int, keep: int) -> bool:
    """Wait until the pipe is closed; return whether the program owned the terminal then and had not returned it."""
    os.setsid()
    for number in range(1, signal.NSIG):
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            try:
                signal.signal(number, signal.SIG_DFL)
            except (OSError, ValueError):
                pass
    least, most = sorted((reader, keep))
    os.closerange(0, least)
    os.closerange(least + 1, most)
    os.closerange(most + 1, os.sysconf("SC_OPEN_MAX"))
    with open("/proc/self/comm", "wb", buffering=0) as comm:
        comm.write(_NAME)
    held = False
    while (word := os.read(reader, 1)) in (b"+", b"-"):
        held = word == b"+"
    return held and not word


def still_ours(tty: int) -> bool:
    """Whether the line is still as a full-screen program left it: an interactive shell enables signal characters."""
    return not termios.tcgetattr(tty)[3] & (termios.ICANON | termios.ISIG)


ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def on_ending(take: Callable[[int, object], None], numbers: Iterable[int] = ENDINGS) -> None:
    """Install handlers for these signals. Main thread only.

    Ctrl+C counts even if a shell ignores it, as scripts do for background commands: the recorder of a script must end
    with it.
    """
    for number in numbers:
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, take)


DEAF_LOOKS, _LOOK_S = 3, 0.4  # consecutive checks until the main thread counts as blocked in the kernel
_PENDING = (b"SigPnd:", b"ShdPnd:")


def end_when_deaf() -> None:
    """Start a thread that ends the command if the main thread does not receive an ending signal.

    A call on a dead mount lets no handler run, and only a signal without a handler interrupts it.
    """
    # a thread that could take the signal itself would leave nothing pending, and the main thread would never see it
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDINGS)
    Thread(target=_listen, name="endings", daemon=True).start()
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


def waiting(status: bytes) -> int:
    """The first pending, unblocked ending signal in the text of /proc/PID/status; 0 for none."""
    fields = {key: value for key, _, value in (line.partition(b"\t") for line in status.splitlines())}
    try:
        pending = int(fields[_PENDING[0]], 16) | int(fields[_PENDING[1]], 16)
        open_ = pending & ~int(fields[b"SigBlk:"], 16)
    except (KeyError, ValueError):
        return 0
    return next((int(number) for number in ENDINGS if open_ >> (number - 1) & 1), 0)


def _listen() -> None:
    looks = 0
    while looks < DEAF_LOOKS:
        sleep(_LOOK_S)
        try:
            with open("/proc/self/status", "rb") as file:
                number = waiting(file.read())
        except OSError:
            return
        looks = looks + 1 if number else 0
    with suppress(OSError, ValueError):  # closed
        os.write(sys.stderr.fileno(), b"gputop: ended while a file did not answer: a dead mount?\n")
    os._exit(128 + number)


ROOM_FOR_PROCESSES = 60, 20  # columns, lines: tmux leaves 80x23 of 80x24, and 79 of 160 columns beside another pane
NO_TERMINAL = 64  # EX_USAGE of sysexits.h
GRACE_S = 2.0
_HANGUP_GRACE_S = 1.5
_LAST_WORDS_S = 0.3

_MODES_OFF = "".join(
    f"\x1b[?{mode}l" for mode in (2026, 1000, 1002, 1003, 1006, 1015, 1016, 2004, 1004, 2048)
)  # synchronized output, mouse, paste, focus, in-band resize
_VISIBLE = "\x1b[?25h\x1b[0m"
# ?1049l and <u move the cursor of a terminal that is in order
HEAL = f"{_MODES_OFF}\x1b[?7h{_VISIBLE}".encode()
RESET = f"{_MODES_OFF}\x1b[<u\x1b[?7h\x1b[?1049l{_VISIBLE}".encode()
_CANCEL = b"\x18"

_FATAL = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGINT)
_LEAVING = 0  # in the pipe, where every other byte is a signal number


def problem() -> str | None:
    """Why no full screen is possible here; None if it is. Its exit code is NO_TERMINAL."""
    for fd, name in ((0, "input"), (1, "output")):
        if not os.isatty(fd):
            return f"standard {name} is not a terminal"
    return without_screen(os.environ.get("TERM", ""))


def without_screen(term: str) -> str | None:
    """Why a terminal of this name has no full screen; None if it has, as far as known.

    Without a name it draws as xterm does, or nearly: we use no capability by name.
    """
    return f"TERM={term} cannot show a full screen" if term == "dumb" else None


def reset_terminal() -> str | None:
    """Reset the controlling terminal after an uncaught crash; return the reason if there is none."""
    try:
        fd = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as error:
        return f"no terminal to reset: {error.strerror}"
    try:
        termios.tcsetattr(fd, termios.TCSANOW, _sane(termios.tcgetattr(fd)))
        os.write(fd, RESET)
    finally:
        os.close(fd)
    return None


def _sane(attributes: list[Any]) -> list[Any]:
    iflag, oflag, cflag, lflag, ispeed, ospeed, cc = attributes
    iflag = (iflag | termios.ICRNL | termios.IXON) & ~(termios.INLCR | termios.IGNCR | termios.IXOFF)
    oflag |= termios.OPOST | termios.ONLCR
    lflag |= termios.ICANON | termios.ISIG | termios.IEXTEN | termios.ECHO | termios.ECHOE | termios.ECHOK
    return [iflag, oflag, cflag, lflag, ispeed, ospeed, cc]


def _interrupt_writers() -> None:
    """Interrupt threads blocked in a write to the terminal, which hold its lock: the retried write fails."""
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and thread.ident is not None:
            try:
                signal.pthread_kill(thread.ident, signal.SIGTERM)
            except OSError:
                pass


class Guard:
    """Runs a full-screen app and ends the process with it, with the terminal restored."""

    def __init__(self, crashes: Crashes | None = None) -> None:
        self.crashes = crashes or Crashes.in_state_folder()
        self._stop: Callable[[], None] | None = None
        self._code: int | None = None
        self._deadline: float | None = None
        self._signalled = False
        self._last = threading.Lock()
        self._saved: list[Any] = []
        self._tty = -1
        self._pipe = (-1, -1)
        self._restorer: Restorer | None = None

    def run(self, start: Callable[[], int]) -> NoReturn:
        """Run `start` and exit with its return code, or 128+n after signal n. Main thread only."""
        try:
            self._attach()
            code = start()
        except SystemExit as left:
            code = left.code if isinstance(left.code, int) else int(left.code is not None)
        except BaseException as error:
            code = 1
            self.crashes.report(error, "the main thread")
            self._write(RESET)
        self._finish(code)

    def attach(self, stop: Callable[[], None], tell: Callable[[str], None]) -> None:
        """Callbacks to exit the running app and to show a line; called from other threads."""
        self._stop = stop
        self.crashes.tell = tell

    def holds(self, terminal: bool) -> None:
        """Whether the app owns the terminal: what SIGKILL would leave behind."""
        if self._restorer:
            self._restorer.holds(terminal)

    def leaving(self) -> None:
        """The app is exiting: after two seconds the guard ends it. Callable from any thread or handler."""
        try:
            os.write(self._pipe[1], bytes([_LEAVING]))
        except OSError:
            pass

    def _attach(self) -> None:
        # the kernel stops a background job here, before it takes the terminal from the shell
        termios.tcsetattr(0, termios.TCSANOW, termios.tcgetattr(0))
        self._saved = termios.tcgetattr(0)
        if not self._saved[3] & termios.ICANON:
            self._saved = _sane(self._saved)
        self._tty = os.dup(1)
        os.set_blocking(self._tty, True)
        self._restorer = Restorer(self._after_kill, self._tty)
        self._write(HEAL)
        self.crashes.install()
        self._pipe = os.pipe()
        os.set_blocking(self._pipe[0], False)
        os.set_blocking(self._pipe[1], False)
        # the C handler writes here at once, whatever the main thread is doing
        signal.set_wakeup_fd(self._pipe[1], warn_on_full_buffer=False)
        on_ending(self._on_signal, _FATAL)
        threading.Thread(target=self._watch, name="terminal-guard", daemon=True).start()

    def _on_signal(self, number: int, _frame: object) -> None:
        # suspended, then killed: the terminal is the shell's, and the SIGCONT that follows would stop us again
        if self._background():
            if self._restorer:
                self._restorer.dismiss()
            os._exit(128 + number)

    def _background(self) -> bool:
        try:
            return os.tcgetpgrp(0) != os.getpgrp()
        except OSError:
            return False

    def _watch(self) -> None:
        """The guard's own thread: signals, loss of the line, and the two seconds after them."""
        poll = select.poll()
        poll.register(self._pipe[0], select.POLLIN)
        poll.register(0, 0)
        while True:
            left = None if self._deadline is None else max(0.0, self._deadline - time.monotonic()) * 1000
            events = dict(poll.poll(left))
            if not events:
                self._hard_exit()
            if 0 in events:
                poll.unregister(0)
                self._begin(128 + signal.SIGHUP, _HANGUP_GRACE_S)
            if self._pipe[0] in events:
                self._read_pipe()

    def _read_pipe(self) -> None:
        for byte in os.read(self._pipe[0], 4096):
            if byte in _FATAL:
                # a lost line sends several SIGHUP: from the kernel, from the shell
                impatient = self._signalled and byte != signal.SIGHUP
                self._signalled = True
                self._begin(128 + byte, 0.0 if impatient else GRACE_S)
            elif byte == _LEAVING and self._deadline is None:
                self._deadline = time.monotonic() + GRACE_S

    def _begin(self, code: int, grace_s: float) -> None:
        self._code = code
        self._deadline = min(self._deadline or float("inf"), time.monotonic() + grace_s)
        if self._stop is None:
            self._hard_exit()
        try:
            self._stop()
        except RuntimeError:  # its loop is closed: it is exiting
            pass

    def _after_kill(self) -> None:
        """Restore after SIGKILL, in a separate process."""
        if still_ours(self._tty):
            termios.tcsetattr(self._tty, termios.TCSANOW, self._saved)
        os.write(self._tty, _CANCEL + RESET)

    def _finish(self, code: int) -> NoReturn:
        self.leaving()
        self._restore()
        if self._restorer:
            self._restorer.dismiss()
        self.crashes.close()
        for stream in (sys.stdout, sys.stderr):
            try:
                if stream is sys.stderr:
                    stream.writelines(f"{line}\n" for line in self.crashes.lines)
                stream.flush()
            except (OSError, ValueError, AttributeError):
                pass
        with self._last:
            os._exit(code if self._code is None else self._code)

    def _hard_exit(self) -> NoReturn:
        """End an app that does not exit. A blocked terminal write is released, and its output discarded."""
        # the main thread, released below, must not end us before the last output
        self._last.acquire()
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        if not self._background():
            self._last_words()
            self._restore()
        if self._restorer:
            self._restorer.dismiss()
        os._exit(self._code or 0)

    def _last_words(self) -> None:
        # the flag is shared with the parent shell and must not stay set
        was_blocking = os.get_blocking(self._tty)
        os.set_blocking(self._tty, False)
        # the terminal may be within a sequence whose end was just discarded
        rest = _CANCEL + RESET
        deadline = time.monotonic() + _LAST_WORDS_S
        while rest and time.monotonic() < deadline:
            try:
                _interrupt_writers()
                termios.tcflush(self._tty, termios.TCOFLUSH)
                rest = rest[os.write(self._tty, rest) :]
            except BlockingIOError:
                time.sleep(0.01)
            except (OSError, termios.error):
                break
        os.set_blocking(self._tty, was_blocking)

    def _restore(self) -> None:
        try:
            termios.tcsetattr(0, termios.TCSANOW, self._saved)
        except (OSError, termios.error, TypeError):
            pass

    def _write(self, data: bytes) -> None:
        try:
            os.write(self._tty, data)
        except OSError:
            pass
