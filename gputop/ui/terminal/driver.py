"""The Textual driver of this program; with guarded.py the fence around every private attribute of Textual we need."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import re
import select
import signal
import sys
import time
from codecs import getincrementaldecoder
from typing import Any, cast

from textual import constants, events
from textual._xterm_parser import XTermParser
from textual.app import App
from textual.drivers.linux_driver import LinuxDriver
from textual.geometry import Size
from textual.keys import _character_to_key
from textual.message import Message
from textual.messages import InBandWindowResize

from gputop.ui.terminal.keyboard import HeldKey, latin

MOST_QUEUED = 30
MOST_COLUMNS, MOST_ROWS = 2000, 500  # no screen has more; of more, a picture takes seconds and gigabytes
# of kitty's keyboard protocol: with each key that of its place on a Latin keyboard, added to what Textual asks for
_PLACES_OF_KEYS = "\x1b[=4;2u"
_WITH_PLACE = re.compile(r"\x1b\[(\d+):\d*(?::(\d+))?((?:;[\d:]*)*u)")
_END_OF_FRAME = "\x1b[?2026l"
_READ_BYTES = 4096
_ALERT_S = max(1.0, 2 * constants.ESCAPE_DELAY)
_TICK_S = 0.05


def behind(app: App[Any]) -> bool:
    """Whether the terminal has not taken yet what was written to it: a repaint now would only make it later."""
    return queued(app) > 0


def queued(app: App[Any]) -> int:
    """How many writes wait for the terminal; 0 where that is unknown."""
    queue = getattr(getattr(app._driver, "_writer_thread", None), "_queue", None)
    return queue.qsize() if queue is not None else 0


def terminal_size() -> tuple[int, int]:
    """Columns and lines of the terminal; where it says 0, of COLUMNS and LINES; else 80 × 24. At most what is drawn."""
    width, height = _said()
    width, height = width or _from_environment("COLUMNS", 80), height or _from_environment("LINES", 24)
    return min(width, MOST_COLUMNS), min(height, MOST_ROWS)


def clamped() -> str | None:
    """What to say of a terminal that is larger than what is drawn; None of any other."""
    width, height = _said()
    if width <= MOST_COLUMNS and height <= MOST_ROWS:
        return None
    drawn = f"{min(width, MOST_COLUMNS)}×{min(height, MOST_ROWS)}"
    return f"the terminal reports {width}×{height} cells: drawn on {drawn}"


def _said() -> tuple[int, int]:
    with contextlib.suppress(OSError):
        return os.get_terminal_size(1)
    return 0, 0


def _from_environment(name: str, default: int) -> int:
    value = os.environ.get(name, "")
    return int(value) if value.isdecimal() and 0 < len(value) < 5 and int(value) else default


class KeyParser(XTermParser):
    """Textual's, and what it does not read: which other keys a key is (`CSI code:shifted:place;modifiers;text u`)."""

    def _parse_extended_key(self, sequence: str) -> list[events.Key] | None:  # type: ignore[override]
        if (match := _WITH_PLACE.fullmatch(sequence)) is None:
            return super()._parse_extended_key(sequence)
        code, place, rest = match.groups(default="")
        keys = super()._parse_extended_key(f"\x1b[{code}{rest}")
        return [by_place(key, chr(int(place))) for key in keys or ()] if place else keys


def by_place(key: events.Key, base: str = "") -> events.Key:
    """A key by the place of its letter on a Latin keyboard, with the character that was typed."""
    *modifiers, name = key.key.split("+") if key.key != "+" else [key.key]
    place = latin(name, base)
    return key if place == name else events.Key("+".join([*modifiers, _character_to_key(place)]), key.character)


class TerminalOutput:
    """Standard output as Textual's writer thread wants it: no character, full pipe or dead line makes it fail."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._encoding = getattr(sys.__stdout__, "encoding", None) or "utf-8"
        self._pending = io.BytesIO()

    def write(self, text: str) -> None:
        """Keeps the text until flush."""
        self._pending.write(text.encode(self._encoding, "replace"))

    def flush(self) -> None:
        """Writes what was kept; waits as long as the terminal takes nothing."""
        data = self._pending.getvalue()
        self._pending = io.BytesIO()
        while data:
            try:
                data = data[os.write(self._fd, data) :]
            except BlockingIOError:
                # another program on this terminal has left it non-blocking
                poll = select.poll()
                poll.register(self._fd, select.POLLOUT)
                poll.poll()
            except OSError:
                return


class TerminalDriver(LinuxDriver):
    """Clicks and wheel but no mouse moves, an input thread that ends with its line, writes that never wait."""

    def __init__(
        self, app: App[Any], *, debug: bool = False, mouse: bool = True, size: tuple[int, int] | None = None
    ) -> None:
        super().__init__(app, debug=debug, mouse=mouse, size=size or terminal_size())
        self._file = cast("Any", TerminalOutput(1))
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_write, False)
        self._leaving = False
        self._dropped = False

    def start_application_mode(self) -> None:
        """Takes the terminal, or leaves it as it was."""
        self._leaving = False
        self._holds(True)
        try:
            super().start_application_mode()  # type: ignore[no-untyped-call]
            if not constants.DISABLE_KITTY_KEY:
                self.write(_PLACES_OF_KEYS)
                self.flush()
        except BaseException:
            with contextlib.suppress(Exception):
                self.stop_application_mode()
            raise
        # Textual asks for the size in the signal handler: a second signal in the middle of it comes before the first,
        # and the screen keeps the older size
        loop = asyncio.get_running_loop()
        signal.signal(signal.SIGWINCH, lambda *_: loop.call_soon_threadsafe(self._tell_size))

    def _tell_size(self) -> None:
        size = Size(*terminal_size())
        self._app.post_message(events.Resize(size, size))

    def stop_application_mode(self) -> None:
        """Gives the terminal back."""
        self._leaving = True
        super().stop_application_mode()
        self._holds(False)

    def _holds(self, terminal: bool) -> None:
        if tell := getattr(self._app, "holds_terminal", None):
            tell(terminal)

    def write(self, data: str) -> None:
        """Queues a write. A terminal far behind gets whole frames dropped and one full repaint when it is back."""
        thread = self._writer_thread
        assert thread is not None, "driver must be in application mode"
        # bounded by dropping, below: a queue that is full would stop the event loop, and `q` with it
        thread._queue.maxsize = 0
        waiting = thread._queue.qsize()
        if waiting > MOST_QUEUED and not self._leaving and data != _END_OF_FRAME:
            self._dropped = True
            return
        thread.write(data)
        if self._dropped and waiting == 0:
            self._dropped = False
            self._app.refresh()

    def listen_to_mouse(self, on: bool) -> None:
        """Have the terminal report clicks and the wheel, or let it select text with the mouse as usual."""
        if not on:
            self._disable_mouse_support()
        self._mouse = on
        self._enable_mouse_support()
        self.flush()

    def disable_input(self) -> None:
        """Ends the input thread at once."""
        with contextlib.suppress(OSError):
            os.write(self._wake_write, b"x")
        super().disable_input()
        poll = select.poll()  # select.select refuses numbers from 1024 on, and files of /proc may have all before
        poll.register(self._wake_read, select.POLLIN)
        if poll.poll(0):
            os.read(self._wake_read, 512)

    def process_message(self, message: Message) -> None:
        """Passes a key, click or paste on; sizes come from the kernel only, as a size report can be typed."""
        if isinstance(message, events.Key):
            key = by_place(message)
            message = HeldKey(key.key, key.character)
        if not isinstance(message, (events.Resize, InBandWindowResize)):
            super().process_message(message)

    def run_input_thread(self) -> None:
        """Reads until the driver stops or the line is dead. Sleeps without a tick while nothing is typed."""
        poll = select.poll()
        poll.register(self.fileno, select.POLLIN)
        poll.register(self._wake_read, select.POLLIN)
        parser = KeyParser()
        decode = getincrementaldecoder("utf-8")("replace").decode
        alert_until = 0.0
        while not self.exit_event.is_set():
            alert = time.monotonic() < alert_until
            ready = dict(poll.poll(_TICK_S * 1000 if alert else None))
            text = ""
            if self.fileno in ready:
                data = self._read()
                # end of file means that the terminal is gone; the guard ends the program
                if data == b"":
                    return
                text = decode(data or b"")
                alert_until = time.monotonic() + _ALERT_S
            try:
                self._parse(parser, text)
            except Exception:
                # nothing that can be typed or pasted may cost us the keyboard
                parser = KeyParser()

    def _read(self) -> bytes | None:
        try:
            return os.read(self.fileno, _READ_BYTES)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def _parse(self, parser: XTermParser, text: str) -> None:
        # feed("") would mean the end of the input
        if text:
            for message in parser.feed(text):
                self.process_message(message)
        for message in parser.tick():
            self.process_message(message)

    def _get_terminal_size(self) -> tuple[int, int]:
        return terminal_size()

    def _enable_mouse_support(self) -> None:
        # not 1003: every move of the mouse would be traffic
        if self._mouse:
            self.write("\x1b[?1000h\x1b[?1006h")

    def _disable_mouse_support(self) -> None:
        if self._mouse:
            self.write("\x1b[?1000l\x1b[?1006l")

    def _enable_mouse_pixels(self) -> None:
        """Cells are all we need."""

    def _query_in_band_window_resize(self) -> None:
        """SIGWINCH is enough, and cannot be typed."""
