"""An app whose exits, crashes and signals go through the terminal guard."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, NoReturn

from textual.app import App
from textual.binding import Binding
from textual.events import Event, Key

import gputop
from gputop.safe import programs
from gputop.safe.crash import Crashes
from gputop.safe.terminal import Guard
from gputop.ui.terminal.driver import TerminalDriver
from gputop.ui.terminal.keyboard import HeldKey

# its own folder first, as a folder of this name may be where we are
_START = "import sys; sys.path[:1] = [sys.argv.pop(1)]; from gputop.entry import main; sys.exit(main())"
# a separate process group, so that Ctrl+C is for it and not for us
_APART: dict[str, Any] = {"process_group": 0} if sys.version_info >= (3, 11) else {"preexec_fn": os.setpgrp}


def lent(arguments: Sequence[str], fd: int = 0) -> int:
    """Run `gputop ARGUMENTS`, and wait until the user has read what it says; its exit code, negative for a signal.

    Main thread only, while the screen has given the terminal back.
    """
    command = [sys.executable, "-c", _START, str(Path(gputop.__file__).parents[1]), *arguments]
    return lent_command(command, f"$ gputop {shlex.join(arguments)}", fd)


def lent_command(command: Sequence[str], title: str, fd: int = 0) -> int:
    """The same for any command, under a line of text."""
    _say(f"{title}\n")
    before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # or taking the terminal back would stop us
    try:
        process = programs.start_chosen(command, stdin=fd, **_APART)
        os.tcsetpgrp(fd, process.pid)
        _until_its_end(process.pid)
        code = process.wait()
        os.tcsetpgrp(fd, os.getpgrp())
    finally:
        signal.signal(signal.SIGTTOU, before)
    _say(f"\nexit code {code}; Enter returns to the screen ")
    while os.read(fd, 4096)[-1:] not in (b"\n", b""):
        pass
    return code


def _until_its_end(pid: int) -> None:
    """Wait for it; a stopped one goes on, as there is no shell that could continue it."""
    while True:
        found = os.waitid(os.P_PID, pid, os.WEXITED | os.WSTOPPED | os.WNOWAIT)
        if found is None or found.si_code in (os.CLD_EXITED, os.CLD_KILLED, os.CLD_DUMPED):
            return
        os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOHANG)
        os.killpg(pid, signal.SIGCONT)


def _say(text: str) -> None:
    sys.__stdout__.write(text)  # type: ignore[union-attr]
    sys.__stdout__.flush()  # type: ignore[union-attr]


_UNDRAWN_S = 0.25  # at most so long nothing is drawn while keys come faster than they can be shown


class GuardedApp(App[None]):
    """The base of the monitor: leaves within two seconds, and keeps its tracebacks off the screen.

    Without a guard, in tests without a terminal, it is a plain App.
    """

    BINDINGS: ClassVar = [Binding("ctrl+z", "suspend_process", "Suspend", show=False, system=True)]

    def __init__(self, guard: Guard | None = None, **options: Any) -> None:
        super().__init__(driver_class=TerminalDriver, **options)
        self._guard = guard
        self.waiting = 1  # presses of the key that is handled now
        self._drawn_s = 0.0

    @property
    def overtaken(self) -> bool:
        """Whether the next key is here already: what this one changes is then drawn with that."""
        return isinstance(self._pending_message, HeldKey) and time.monotonic() - self._drawn_s < _UNDRAWN_S

    def caught_up(self) -> None:
        """Draw what keys have changed that were overtaken by the next."""

    def holds_terminal(self, holds: bool) -> None:
        """The driver has taken the terminal, or has given it back."""
        if self._guard is not None:
            self._guard.holds(holds)

    async def on_event(self, event: Event) -> None:
        """Of a key that waited several times, a move is done at once by as much; all else once for each press."""
        if not isinstance(event, HeldKey):
            await self.on_one(event)
            return
        self.waiting = event.times
        while self.waiting > 0:
            await self.on_one(Key(event.key, event.character))
            self.waiting -= 1
        self.waiting = 1
        if not self.overtaken:
            self._drawn_s = time.monotonic()
            self.caught_up()

    async def on_one(self, event: Event) -> None:
        """An event; of a key one press."""
        await super().on_event(event)

    async def _on_load(self) -> None:
        if self._guard is None:
            return
        loop = asyncio.get_running_loop()

        def stop() -> None:
            loop.call_soon_threadsafe(self.exit)

        def tell(line: str) -> None:
            loop.call_soon_threadsafe(self.tell, line)

        self._guard.attach(stop, tell)

    def listen_to_mouse(self, on: bool) -> None:
        """Have the terminal report clicks and the wheel, or leave them to it."""
        if isinstance(self._driver, TerminalDriver):
            self._driver.listen_to_mouse(on)

    def ring(self, sequence: str) -> None:
        """Write what makes the terminal ring, or notifies the desktop."""
        if self._driver:
            self._driver.write(sequence)

    def presses(self) -> int:
        """How often the key that is handled was pressed before it could be shown: a move counts them as one."""
        times = max(1, self.waiting)
        if times > 1:
            self.waiting = 0
        return times

    def report(self, error: Exception, where: str) -> str:
        """Keep what went wrong for a report; the line to show for it. Without a guard it is raised."""
        if self._guard is None:
            raise error
        return self._guard.crashes.report(error, where)

    def tell(self, line: str) -> None:
        """Shows that something failed while the rest goes on."""
        self.notify(line, title="internal error", severity="error", timeout=10, markup=False)

    def exit(self, result: None = None, return_code: int = 0, message: Any = None) -> None:
        """Leaves, whether or not the terminal reads what is still to be written."""
        if self._guard is not None:
            self._guard.leaving()
        super().exit(result, return_code, message)

    def action_suspend_process(self) -> None:
        """Stop the whole shell job, as the terminal does: a program that pipes into us would keep the shell waiting."""
        if self._driver is not None and self._driver.can_suspend:
            self._suspend_signal()
            os.killpg(os.getpgrp(), signal.SIGTSTP)

    def lend(self, arguments: list[str]) -> int | None:
        """Give the terminal to a command of gputop until it has been read; its exit code, None where it cannot be."""

        if self._driver is None or not self._driver.can_suspend:
            return None
        with self.suspend():
            return lent(arguments)

    def lend_command(self, command: Sequence[str], title: str) -> int | None:
        """The same for any command, under a line of text."""
        if self._driver is None or not self._driver.can_suspend:
            return None
        with self.suspend():
            return lent_command(command, title)

    def left(self) -> None:
        """What is still to be done once the terminal is given back; it has no time."""

    def _set_pointer_shape(self, shape: str) -> None:
        # the mouse's moves are not reported to us, so the shape would be that of another place
        pass

    def _fatal_error(self) -> None:
        # Textual's own would print every local variable of the failed frames, as raw text
        error = sys.exc_info()[1] or self._exception
        if self._guard is None or error is None:
            super()._fatal_error()
            return
        self._guard.crashes.report(error, "the screen")
        self._guard.leaving()
        self._close_messages_no_wait()

    def panic(self, *renderables: Any) -> None:
        """Ends after an error, which is kept in the crash file, not printed."""
        if self._guard is None:
            super().panic(*renderables)
        else:
            self._fatal_error()


def run_guarded(make: Callable[[Guard], GuardedApp], mouse: bool = True, readonly: bool = False) -> NoReturn:
    """Makes the app, runs it, and ends the process with it. Where the terminal cannot show it was asked before.

    With `readonly` no report of a crash is kept.
    """
    guard = Guard(Crashes(None, "read-only") if readonly else None)

    def start() -> int:
        app = make(guard)
        app.run(mouse=mouse)
        app.left()
        return app.return_code or 0

    guard.run(start)
