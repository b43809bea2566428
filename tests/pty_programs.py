"""A real program on a real pty: what it writes, what a terminal would show, and how it leaves the terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import tempfile
import termios
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pyte

ROOT = Path(__file__).parent.parent
FRAME_S = 0.02
_LAST_WORDS_S = 5.0

KEYS = {
    "up": "\x1b[A",
    "down": "\x1b[B",
    "right": "\x1b[C",
    "left": "\x1b[D",
    "home": "\x1b[H",
    "end": "\x1b[F",
    "pageup": "\x1b[5~",
    "pagedown": "\x1b[6~",
    "delete": "\x1b[3~",
    "f1": "\x1bOP",
    "f2": "\x1bOQ",
    "f3": "\x1bOR",
    "f4": "\x1bOS",
    "f5": "\x1b[15~",
    "f6": "\x1b[17~",
    "f7": "\x1b[18~",
    "f8": "\x1b[19~",
    "f9": "\x1b[20~",
    "f10": "\x1b[21~",
    "enter": "\r",
    "escape": "\x1b",
    "tab": "\t",
    "shift+tab": "\x1b[Z",
    "backspace": "\x7f",
    "space": " ",
    "ctrl+c": "\x03",
    "ctrl+z": "\x1a",
}

# what pyte takes for text, and the alternate screen, which it does not have
_UNKNOWN_TO_PYTE = re.compile(rb"\x1b\[(?:[<>=]\d*u|\?\d+\$p|\?2026[hl])")
_SCREEN_SWITCH = re.compile(rb"\x1b\[\?1049[hl]")
_UNFINISHED = re.compile(rb"\x1b[^a-zA-Z]{0,30}$")


def wait_until(true: Callable[[], bool], timeout: float, what: str | Callable[[], str] = "it") -> None:
    """Returns as soon as it is true; fails after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while not true():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout} s: {what if isinstance(what, str) else what()}")
        time.sleep(FRAME_S)


class Terminal:
    """The other end of the line: starts the program, reads it, types, resizes, stalls, hangs up."""

    def __init__(
        self,
        argv: Sequence[str],
        size: tuple[int, int] = (120, 40),
        env: Mapping[str, str | None] | None = None,
        before_exec: Callable[[], None] | None = None,
        cwd: Path | str = ROOT,
    ) -> None:
        self.output = bytearray()
        self.reading = threading.Event()
        self.reading.set()
        self.bytes_per_s: float | None = None
        self._shown = 0
        self._lines: list[str] = []
        self._screen = pyte.Screen(*size)
        self._stream = pyte.ByteStream(self._screen)
        self._closed = False
        self._settings = tempfile.TemporaryDirectory(prefix="gputop-test-")  # a key may save one
        self.master, slave = pty.openpty()
        self.resize(*size)
        self.termios_before = termios.tcgetattr(slave)
        self.process = subprocess.Popen(
            argv,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=cwd,
            env=_environment({"XDG_CONFIG_HOME": self._settings.name, **(env or {})}),
            start_new_session=True,
            preexec_fn=lambda: _in_child(before_exec),
        )
        os.close(slave)
        self._reader = threading.Thread(target=self._read, name="terminal-reader", daemon=True)
        self._reader.start()

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self.reading.set()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait()
        self.close_master()
        self._settings.cleanup()

    @property
    def pid(self) -> int:
        return self.process.pid

    def send(self, *keys: str | bytes) -> None:
        """Types keys by name (see KEYS), or text and bytes as they are."""
        for key in keys:
            raw = key if isinstance(key, bytes) else KEYS.get(key, key).encode()
            os.write(self.master, raw)

    def resize(self, width: int, height: int) -> None:
        """Gives the terminal another size; the program gets its SIGWINCH from the kernel."""
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
        if width and height:
            self._screen.resize(height, width)
            self._lines = []

    def signal(self, number: int) -> None:
        """Sends a signal to the program."""
        self.process.send_signal(number)

    def screen(self) -> list[str]:
        """The lines a person would see now, without trailing blanks."""
        data = bytes(self.output[self._shown :])
        unfinished = _UNFINISHED.search(data)
        if unfinished:
            data = data[: unfinished.start()]
        if data or not self._lines:
            self._shown += len(data)
            data = _SCREEN_SWITCH.sub(b"\x1b[2J\x1b[H", _UNKNOWN_TO_PYTE.sub(b"", data))
            self._stream.feed(data)
            self._lines = [line.rstrip() for line in self._screen.display]
        return self._lines

    def text(self) -> str:
        """The screen as one string."""
        return "\n".join(self.screen())

    def wait_for(self, what: str | Callable[[list[str]], bool], timeout: float = 60.0) -> None:
        """Waits until the text is on the screen, or the predicate over its lines holds."""
        seen = (lambda lines: what in "\n".join(lines)) if isinstance(what, str) else what

        def true() -> bool:
            return bool(seen(self.screen()))

        wait_until(true, timeout, lambda: f"{what!r}, exit code {self.process.poll()}, on the screen:\n{self.text()}")

    def wait_exit(self, timeout: float = 60.0) -> int:
        """The exit code, once all that it wrote is here; fails if it is still there after `timeout` seconds."""
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {timeout} s, on the screen:\n{self.text()}") from None
        if self.reading.is_set():
            self._reader.join(_LAST_WORDS_S)  # it ends with the line, unless somebody else has that open too
        return code

    def wait_quiet(self, quiet: float = 0.3, timeout: float = 60.0) -> None:
        """Waits until nothing has been written for `quiet` seconds."""
        deadline = time.monotonic() + timeout
        seen, since = len(self.output), time.monotonic()
        while time.monotonic() - since < quiet:
            assert time.monotonic() < deadline, "never quiet"
            if len(self.output) != seen:
                seen, since = len(self.output), time.monotonic()
            time.sleep(FRAME_S)

    def wait_state(self, states: str, timeout: float = 60.0) -> None:
        """Waits until the kernel says that the program is in one of these states: T for stopped."""
        wait_until(lambda: self._stat()[0] in states, timeout, lambda: f"state {self._stat()[0]}, not {states}")

    def cpu_s(self) -> float:
        """Seconds of CPU the program has used."""
        fields = self._stat()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def termios_now(self) -> list[object]:
        """The settings of the line."""
        return termios.tcgetattr(self.master)

    def close_master(self) -> None:
        """Hangs up: the terminal is gone."""
        if not self._closed:
            self._closed = True
            os.close(self.master)

    def _stat(self) -> list[str]:
        return Path(f"/proc/{self.pid}/stat").read_text(errors="replace").rpartition(")")[2].split()

    def _read(self) -> None:
        readable = select.poll()  # select.select refuses numbers from 1024 on
        readable.register(self.master, select.POLLIN)
        while not self._closed:
            if not self.reading.wait(0.1):
                continue
            try:
                if not readable.poll(50):
                    continue
                most = 65536 if self.bytes_per_s is None else max(1, int(self.bytes_per_s * 0.1))
                data = os.read(self.master, most)
            except (OSError, ValueError):
                # nobody has the other end open, now; a stopped shell may open it again
                if self.process.poll() is not None:
                    return
                time.sleep(FRAME_S)
                continue
            self._keep(data)
            if self.bytes_per_s is not None:
                time.sleep(len(data) / self.bytes_per_s)

    def _keep(self, data: bytes) -> None:
        while True:
            try:
                self.output += data
                return
            except BufferError:  # somebody searches in it just now
                time.sleep(0.001)


def _in_child(before_exec: Callable[[], None] | None) -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    if before_exec is not None:
        before_exec()


def _environment(changes: Mapping[str, str | None] | None) -> dict[str, str]:
    """Ours, without what would make the screen depend on who runs the tests; None removes a name."""
    env = {key: value for key, value in os.environ.items() if not key.startswith(("TEXTUAL", "GPUTOP", "XDG_"))}
    for name in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "TERM_PROGRAM", "TMUX", "STY"):
        env.pop(name, None)
    env |= {"TERM": "xterm-256color", "COLORTERM": "truecolor", "LC_ALL": "C.UTF-8", "PYTHONFAULTHANDLER": ""}
    for name, value in (changes or {}).items():
        if value is None:
            env.pop(name, None)
        else:
            env[name] = value
    return env
