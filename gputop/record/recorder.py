"""The recorder: takes updates as any other sink does, and writes them down in a thread of its own."""

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
from gputop.record.deltas import Lines
from gputop.record.parse import Header, parse
from gputop.safe.files import Refused
from gputop.safe.output import Appended, Output
from gputop.safe.text import clean, redact

_TAIL = 64 * 1024 * 1024  # in which the last member or line must begin
_TRIES = 64
_MOST_ANEW = 8 * 1024 * 1024  # of text that is packed anew
_FIRST_LINE = 64 * 1024
_HEADER = b'{"type":"header"'


class Target:
    """A recording that is open for appending: whole blocks of lines, or what was there before."""

    def __init__(self, file: Appended, packed: bool) -> None:
        self._file = file
        self._packed = packed
        self._member: members.Member | None = None
        self._unended = b""  # what ends a member that could not be ended

    @property
    def size(self) -> int:
        """Bytes in the file."""
        return self._file.size

    def append(self, text: bytes, whole: bool = True) -> None:
        """Write lines, `whole` if they hold a whole frame; OSError leaves the file as it was before."""
        if not self._packed:
            self._file.append(text)
            return
        if self._member and whole:  # who reads can begin at a member, and at a whole frame only
            self._end()
        before = self._member.end if self._member else b""
        self._member = self._member or members.Member()
        block = self._member.block(text)
        try:
            self._file.append(self._unended + block)
        except OSError:
            # what the compressor remembers is not in the file: the next block begins a new member
            self._unended, self._member = self._unended or before, None
            raise
        self._unended = b""

    def close(self) -> None:
        """End what is open and let go of the file; OSError if the end could not be written."""
        try:
            self._end()
        finally:
            self._file.close()

    def _end(self) -> None:
        self._unended, self._member = self._unended or (self._member.end if self._member else b""), None
        self._file.append(self._unended)
        self._unended = b""


def open_target(path: str) -> Target:
    """A new file of mode 0600, or a recording of ours that is gone on with; Refused says why not and what to do.

    What is new is packed if its name ends in .gz. A cut end of an older recording is mended first.
    """
    file = Appended(path)
    try:
        target = Target(file, _mended(file) if file.size else path.endswith(".gz"))
        file.withhold()
    except OSError as error:
        file.close()
        raise Refused(f"{path}: {os.strerror(error.errno or 0)}: not recorded there; choose another file") from None
    except Refused:
        file.close()
        raise
    return target


def _mended(file: Appended) -> bool:
    """Whether a recording is packed, once its end is whole; Refused if it is none."""
    packed = file.read(len(members.MAGIC), 0) == members.MAGIC
    if not _ours(file.read(_FIRST_LINE, 0), packed):
        raise Refused(f"{file.path} exists and is not a recording: not touched; choose another file")
    if not (_mend_member(file) if packed else _mend_line(file)):
        raise Refused(f"the end of {file.path} is damaged: not appended to; choose another file")
    return packed


def _ours(start: bytes, packed: bool) -> bool:
    if packed:
        try:
            start = zlib.decompressobj(31).decompress(start, _FIRST_LINE)
        except zlib.error:
            return False
    first, ended, _ = start.partition(b"\n")
    if not ended:  # a crash may have cut the very first line
        return _HEADER.startswith(first[: len(_HEADER)])
    try:
        return isinstance(parse(first), Header)
    except ValueError:
        return False


def _mend_line(file: Appended) -> bool:
    """End a last line that lacks no more than its end, and let go of one that a crash cut."""
    begin = max(0, file.size - _TAIL)
    last = file.read(file.size - begin, begin).rpartition(b"\n")[2]
    if last:
        try:
            parse(last)
        except ValueError:
            return file.cut_line(_TAIL)
        file.append(b"\n")
    return True


def _mend_member(file: Appended) -> bool:
    """End a member that a crash left open after its last whole line; False if that cannot be done."""
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
    if not good and (lines := text[: text.rfind(b"\n") + 1]):  # whole ones, but no place at which to cut
        if len(lines) > _MOST_ANEW:
            return False
        anew = members.Member()
        ending = anew.block(lines) + anew.end
    file.cut(begin + place + good)
    file.append(ending)
    return True


def _unpacked(data: bytes) -> tuple[int, bytes]:
    """How many bytes the member at the start takes, 0 if it is cut or damaged; and the start of its text."""
    unpack = zlib.decompressobj(31)
    try:
        text = unpack.decompress(data, _TAIL)
    except zlib.error:
        return 0, b""
    return (len(data) - len(unpack.unused_data) if unpack.eof else 0), text


def _cut(data: bytes) -> tuple[int, bytes]:
    """After how many bytes the last whole line of a cut member ends, and what ends the member there."""
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
