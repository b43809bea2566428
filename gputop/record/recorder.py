"""The recorder: takes updates as any other sink does, and writes them down in a thread of its own."""

from __future__ import annotations

import errno
import time
from collections.abc import Iterator
from queue import Full, Queue
from threading import Event, Thread

from gputop.export import codec
from gputop.export.lines import Lines
from gputop.model import Frame
from gputop.monitor import Update
from gputop.record.target import Target, open_target
from gputop.safe.output import Output
from gputop.safe.text import clean, redact

WAITING = 30  # updates; a disk that is slower than that loses some, and the recording says so
RETRY_S = 5.0  # after the disk was full
_FULL = {errno.ENOSPC, errno.EDQUOT}


class Recorder:
    """Records to a file, or to standard output for `-`. Nothing here ever waits but `close`.

    A recording that exists is gone on with. `path` is shown as it was given. Refused says what cannot be recorded to.
    """

    def __init__(self, path: str, *, wait: bool = False, retry_s: float = RETRY_S) -> None:
        """With `wait`, `take` waits for the disk: for a source that is not paced. `retry_s`: after it was full."""
        self.path = clean(path)
        self.frames = 0  # that are in the file
        self._target: Target | Output = Output() if path == "-" else open_target(path)
        self._frames = Lines()
        self._wait, self._retry_s = wait, retry_s
        self._arrived: Queue[tuple[Update, int] | None] = Queue(WAITING)  # with what was dropped before
        self._closing, self._closed = Event(), Event()
        self._began_s = time.monotonic()
        self._said: frozenset[tuple[str, object]] = frozenset()  # findings that were there at the last frame
        self._dropped = 0  # updates nothing could wait with; counted by who calls `take`
        self._failed = 0  # updates that could not be written; counted by the thread
        self._told = 0  # of both, those that the recording says are missing
        self._trouble: str | None = None
        self._again_s = 0.0
        Thread(target=self._run, name="recorder", daemon=True).start()

    @property
    def size_bytes(self) -> int:
        """How large the file is."""
        return self._target.size

    @property
    def seconds(self) -> float:
        """How long it has been recording."""
        return time.monotonic() - self._began_s

    @property
    def missed(self) -> int:
        """How many updates are not in the file."""
        return self._dropped + self._failed

    @property
    def problem(self) -> str | None:
        """Why nothing is written now, in one line; None again when it goes on."""
        return self._trouble or ("recording falls behind: the disk is too slow" if self.missed > self._told else None)

    def take(self, update: Update) -> None:
        """Have an update written, if there is room to wait for the disk; from any one thread, returns at once."""
        if self._closing.is_set():
            return
        try:
            self._arrived.put((update, self._dropped), block=self._wait)
        except Full:
            self._dropped += 1

    def close(self, patience_s: float = 3.0) -> bool:
        """Write what has arrived and end the file; False if that takes longer than this, as on a disk that hangs."""
        self._closing.set()
        try:
            self._arrived.put(None, timeout=patience_s)
        except Full:
            return False
        return self._closed.wait(patience_s)

    def _run(self) -> None:
        for update, dropped in iter(self._arrived.get, None):
            self._record(update, dropped)
        try:
            self._target.close()
        except OSError as error:
            self._trouble = f"the end of the recording could not be written: {error.strerror}"
        self._closed.set()

    def _record(self, update: Update, dropped: int) -> None:
        now_s = time.monotonic()
        if now_s < self._again_s and not self._closing.is_set():
            self._failed += 1
            return
        missed = dropped + self._failed
        try:
            line, whole = self._frames.line(update.frame)
            before = self._before(update.frame, missed - self._told)
            text = "".join((*before, line, *self._after(update))).encode()
        except Exception as error:  # one frame is lost, the recording goes on
            self._failed += 1
            self._frames.restart()
            self._trouble = f"a frame could not be recorded: {clean(f'{type(error).__name__}: {error}', 200)}"
            return
        try:
            self._target.append(text, whole)
        except OSError as error:
            self._failed += 1
            self._frames.restart()
            self._again_s = now_s + self._retry_s
            since = time.strftime("%H:%M")
            why = "disk full" if error.errno in _FULL else error.strerror
            self._trouble = self._trouble or f"recording paused {since}: {why}"
            return
        self.frames += 1
        self._told, self._trouble = missed, None

    def _before(self, frame: Frame, missed: int) -> Iterator[str]:
        if not self.frames:
            yield codec.line(codec.header(frame.hostname))
        elif missed:
            yield _event(frame, "gap", f"{missed} frames could not be written", "warn")

    def _after(self, update: Update) -> Iterator[str]:
        found = {(finding.rule, finding.subject): finding for finding in update.findings}
        for key, finding in found.items():
            if key not in self._said and finding.severity != "info":
                yield _event(update.frame, finding.rule, redact(finding.headline), finding.severity)
        self._said = frozenset(found)


def _event(frame: Frame, kind: str, text: str, severity: str) -> str:
    return codec.line(codec.event(frame.wall_s, frame.mono_s, kind, text, severity))
