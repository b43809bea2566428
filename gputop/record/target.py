"""The file that is recorded to: opened with care, mended where a crash cut it, appended to and never overwritten."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import zlib
from pathlib import Path

from gputop.export import codec
from gputop.record import member
from gputop.record.parse import Header, parse
from gputop.safe.files import Refused

_TAIL = 64 * 1024 * 1024  # in which the last member or line must begin
_TRIES = 64
_FIRST_LINE = 64 * 1024
_FLAGS = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY


class Target:
    """A recording that is open for appending: whole blocks of lines, or what was there before."""

    def __init__(self, fd: int, size: int, packed: bool) -> None:
        self.size = size  # in bytes, as far as all is whole
        self._fd = fd
        self._packed = packed
        self._member: member.Member | None = None
        self._unended = b""  # what ends a member that could not be ended

    def append(self, text: bytes) -> None:
        """Write lines; OSError leaves the file as it was before."""
        if not self._packed:
            self._write(text)
            return
        if self._member and self._member.frames == member.FRAMES:
            self._end()
        before = self._member.end if self._member else b""
        self._member = self._member or member.Member()
        block = self._member.block(text)
        try:
            self._write(self._unended + block)
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
            os.close(self._fd)

    def _end(self) -> None:
        ending = self._unended or (self._member.end if self._member else b"")
        if ending and self._packed:
            self._unended, self._member = ending, None
            self._write(ending)
        self._unended, self._member = b"", None

    def _write(self, data: bytes) -> None:
        done = 0
        try:
            while done < len(data):
                done += os.pwrite(self._fd, data[done:], self.size + done)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, self.size)
            raise
        self.size += done


class Stream:
    """Standard output, or any descriptor that takes lines one after the other."""

    def __init__(self, fd: int) -> None:
        self.size = 0
        self._fd = fd

    def append(self, text: bytes) -> None:
        """Write lines; OSError when nobody reads any more."""
        view = memoryview(text)
        while view:
            written = os.write(self._fd, view)
            self.size += written
            view = view[written:]

    def close(self) -> None:
        """Nothing is left open; the descriptor belongs to others."""


def open_target(path: str) -> Target:
    """A new file of mode 0600, or a recording of ours that is gone on with; Refused says why not and what to do.

    What is new is packed if its name ends in .gz. A cut end of an older recording is mended first.
    """
    try:
        fd = _open(path)
    except OSError as error:
        raise Refused(f"{path}: {os.strerror(error.errno or 0)}: not recorded there; choose another file") from None
    try:
        return _checked(path, fd)
    except BaseException:
        os.close(fd)
        raise


def _open(path: str) -> int:
    try:
        return os.open(path, _FLAGS | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        pass
    if Path(path).is_symlink():
        raise Refused(f"{path} is a link: not written through; name the file itself")
    return os.open(path, _FLAGS)


def _checked(path: str, fd: int) -> Target:
    info = os.fstat(fd)
    if not stat.S_ISREG(info.st_mode):
        raise Refused(f"{path} is not a regular file: not recorded there; use - for a stream")
    if info.st_uid != os.geteuid():
        raise Refused(f"{path} belongs to another user (uid {info.st_uid}): not written; choose another file")
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Refused(f"{path} is being recorded to by another gputop: choose another file") from None
    except OSError:
        pass  # a file system without locks
    size = os.fstat(fd).st_size
    if size == 0:
        return Target(fd, 0, path.endswith(".gz"))
    packed = os.pread(fd, len(member.MAGIC), 0) == member.MAGIC
    if not _ours(fd, packed):
        raise Refused(f"{path} exists and is not a recording: not touched; choose another file")
    good = _mended(path, fd, size) if packed else _last_line(path, fd, size)
    return Target(fd, good, packed)


def _ours(fd: int, packed: bool) -> bool:
    start = os.pread(fd, _FIRST_LINE, 0)
    if packed:
        try:
            start = zlib.decompressobj(31).decompress(start, _FIRST_LINE)
        except zlib.error:
            return False
    first, ended, _ = start.partition(b"\n")
    if not ended:  # a crash may have cut the very first line
        return codec.dumps({"type": "header"})[:-1].encode().startswith(first[:16])
    try:
        return isinstance(parse(first), Header)
    except ValueError:
        return False


def _last_line(path: str, fd: int, size: int) -> int:
    """Where the last whole line ends; what a crash left after it is cut off."""
    begin = max(0, size - _TAIL)
    good = begin + os.pread(fd, size - begin, begin).rfind(b"\n") + 1
    if good == begin and begin:
        raise _beyond_repair(path)
    os.ftruncate(fd, good)
    return good


def _mended(path: str, fd: int, size: int) -> int:
    """Where the last member ends; a member that a crash left open is cut after its last whole line and ended."""
    begin = max(0, size - _TAIL)
    data = os.pread(fd, size - begin, begin)
    place = data.rfind(member.MAGIC)
    while place >= 0 and not (member.begins(data, place) or begin + place == 0):
        place = data.rfind(member.MAGIC, 0, place)
    if place < 0:
        raise _beyond_repair(path)
    last = data[place:]
    whole, text = _unpacked(last)
    if whole:
        good, ending = whole, b""
    else:
        good, ending = _cut(last)
        if not good and b"\n" in text:  # somebody else packed it: cutting would lose lines
            raise _beyond_repair(path)
    os.ftruncate(fd, begin + place + good)
    os.pwrite(fd, ending, begin + place + good)
    return begin + place + good + len(ending)


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
        place = data.rfind(member.FLUSHED, 0, place)
        if place < 0:
            break
        good = place + len(member.FLUSHED)
        try:
            text = zlib.decompressobj(31).decompress(data[:good], _TAIL)
        except zlib.error:
            continue
        if text.endswith(b"\n"):
            return good, member.end(zlib.crc32(text), len(text))
    return 0, b""


def _beyond_repair(path: str) -> Refused:
    return Refused(f"the end of {path} is damaged: not appended to; choose another file")
