"""The recorder: a sink that writes updates in its own thread."""

from __future__ import annotations

import errno
import os
import time
import zlib
from collections.abc import Iterator
from queue import Full, Queue
from threading import Event, Thread

from gputop.export import codec
from gputop.model import Frame
from gputop.monitor import Update
from gputop.record import lines as members
from gputop.record.deltas import FrameLines
from gputop.record.parse import Header, parse
from gputop.safe.files import Refused
from gputop.safe.output import AppendOnlyFile, StandardOutput
from gputop.safe.text import clean, redact

_TAIL = 64 * 1024 * 1024  # range in which the last member or line must begin
_TRIES = 64
_MOST_REPACKED = 8 * 1024 * 1024  # of text to recompress
_FIRST_LINE = 64 * 1024
_HEADER = b'{"type":"header"'


class RecordingFile:
    """A recording open for appending: blocks of complete lines."""

    def __init__(self, file: AppendOnlyFile, packed: bool) -> None:
        self._file = file
        self._packed = packed
        self._member: members.GzipMember | None = None
        self._unended = b""  # end of a member that could not be ended

    @property
    def size(self) -> int:
        """Bytes in the file."""
        return self._file.size

    def append(self, text: bytes, whole: bool = True) -> None:
        """Write lines, `whole` if they contain a complete frame; OSError leaves the file unchanged."""
        if not self._packed:
            self._file.append(text)
            return
        if self._member and whole:  # reading can start only at a member with a complete frame
            self._end()
        before = self._member.end if self._member else b""
        self._member = self._member or members.GzipMember()
        block = self._member.block(text)
        try:
            self._file.append(self._unended + block)
        except OSError:
            # the compressor's state is not in the file: the next block begins a new member
            self._unended, self._member = self._unended or before, None
            raise
        self._unended = b""

    def close(self) -> None:
        """End the open member and close the file; OSError if the end could not be written."""
        try:
            self._end()
        finally:
            self._file.close()

    def _end(self) -> None:
        self._unended, self._member = self._unended or (self._member.end if self._member else b""), None
        self._file.append(self._unended)
        self._unended = b""


def open_target(path: str) -> RecordingFile:
    """A new file of mode 0600, or a recording of ours to continue; Refused says why not and what to do.

    New files are compressed if the name ends in .gz. The truncated end of an older recording is repaired first.
    """
    file = AppendOnlyFile(path)
    try:
        target = RecordingFile(file, _repair(file) if file.size else path.endswith(".gz"))
        file.withhold()
    except OSError as error:
        file.close()
        raise Refused(f"{path}: {os.strerror(error.errno or 0)}: not recorded there; choose another file") from None
    except Refused:
        file.close()
        raise
    return target


def _repair(file: AppendOnlyFile) -> bool:
    """Whether a recording is compressed, after repairing its end; Refused if it is no recording."""
    packed = file.read(len(members.MAGIC), 0) == members.MAGIC
    if not _is_recording(file.read(_FIRST_LINE, 0), packed):
        raise Refused(f"{file.path} exists and is not a recording: left unchanged; choose another file")
    if not (_mend_member(file) if packed else _mend_line(file)):
        raise Refused(f"the end of {file.path} is damaged: not appended to; choose another file")
    return packed


def _is_recording(start: bytes, packed: bool) -> bool:
    if packed:
        try:
            start = zlib.decompressobj(31).decompress(start, _FIRST_LINE)
        except zlib.error:
            return False
    first, ended, _ = start.partition(b"\n")
    if not ended:  # a crash may have truncated the first line
        return _HEADER.startswith(first[: len(_HEADER)])
    try:
        return isinstance(parse(first), Header)
    except ValueError:
        return False


def _mend_line(file: AppendOnlyFile) -> bool:
    """Terminate a last line that lacks only its end, or remove a truncated one."""
    begin = max(0, file.size - _TAIL)
    last = file.read(file.size - begin, begin).rpartition(b"\n")[2]
    if last:
        try:
            parse(last)
        except ValueError:
            return file.cut_line(_TAIL)
        file.append(b"\n")
    return True


def _mend_member(file: AppendOnlyFile) -> bool:
    """End a member that a crash left open after its last complete line; False if impossible."""
    begin = max(0, file.size - _TAIL)
    data = file.read(file.size - begin, begin)
    place = data.rfind(members.MAGIC)
    while place >= 0 and not (members.begins(data, place) or begin + place == 0):
        place = data.rfind(members.MAGIC, 0, place)
    if place < 0:
        return False
    last = data[place:]
    good, text = _unpacked(last)
    ending = b""
    if not good:
        good, ending = _cut(last)
    if not good and (lines := text[: text.rfind(b"\n") + 1]):  # complete lines, but no position for a cut
        if len(lines) > _MOST_REPACKED:
            return False
        member = members.GzipMember()
        ending = member.block(lines) + member.end
    file.cut(begin + place + good)
    file.append(ending)
    return True


def _unpacked(data: bytes) -> tuple[int, bytes]:
    """Length of the member at the start, 0 if truncated or damaged; and the start of its text."""
    unpack = zlib.decompressobj(31)
    try:
        text = unpack.decompress(data, _TAIL)
    except zlib.error:
        return 0, b""
    return (len(data) - len(unpack.unused_data) if unpack.eof else 0), text


def _cut(data: bytes) -> tuple[int, bytes]:
    """Length up to the last complete line of a truncated member, and the bytes that end it there."""
    place = len(data)
    for _ in range(_TRIES):
        place = data.rfind(members.FLUSHED, 0, place)
        if place < 0:
            break
        good = place + len(members.FLUSHED)
        try:
            text = zlib.decompressobj(31).decompress(data[:good], _TAIL)
        except zlib.error:
            continue
        if text.endswith(b"\n"):
            return good, members.end(zlib.crc32(text), len(text))
    return 0, b""


WAITING = 30  # updates; a slower disk loses some, and the recording says so
RETRY_S = 5.0  # after the disk was full
_FULL = {errno.ENOSPC, errno.EDQUOT}


class Recorder:
    """Records to a file, or to standard output for `-`. Only `close` ever blocks.

    An existing recording is continued. `path` is shown as given. Refused says why recording is impossible.
    """

    def __init__(self, path: str, *, wait: bool = False, retry_s: float = RETRY_S) -> None:
        """With `wait`, `take` waits for the disk: for a source without pace. `retry_s`: delay after a full disk."""
        self.path = clean(path)
        self.frames = 0  # in the file
        self._target: RecordingFile | StandardOutput = StandardOutput() if path == "-" else open_target(path)
        self._frames = FrameLines()
        self._wait, self._retry_s = wait, retry_s
        self._arrived: Queue[tuple[Update, int] | None] = Queue(WAITING)  # with updates dropped before
        self._closing, self._closed = Event(), Event()
        self._began_s = time.monotonic()
        self._said: frozenset[tuple[str, object]] = frozenset()  # findings at the last frame
        self._dropped = 0  # updates beyond the queue; counted by the caller of `take`
        self._failed = 0  # updates that could not be written; counted by the thread
        self._reported = 0  # of both, those that the recording reports missing
        self._trouble: str | None = None
        self._again_s = 0.0
        Thread(target=self._run, name="recorder", daemon=True).start()

    @property
    def size_bytes(self) -> int:
        """File size in bytes."""
        return self._target.size

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._began_s

    @property
    def missed(self) -> int:
        """Number of updates missing from the file."""
        return self._dropped + self._failed

    @property
    def problem(self) -> str | None:
        """Why nothing is being written, in one line; None once it works again."""
        return self._trouble or (
            "recording is falling behind: the disk is too slow" if self.missed > self._reported else None
        )

    def take(self, update: Update) -> None:
        """Queue an update if there is space; from one thread, returns at once."""
        if self._closing.is_set():
            return
        try:
            self._arrived.put((update, self._dropped), block=self._wait)
        except Full:
            self._dropped += 1

    def close(self, patience_s: float = 3.0) -> bool:
        """Write what has arrived and end the file; False if that takes longer, as on a hanging disk."""
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
            before = self._before(update.frame, missed - self._reported)
            text = "".join((*before, line, *self._after(update))).encode()
        except Exception as error:  # one frame is lost, the recording continues
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
        self._reported, self._trouble = missed, None

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
