"""The file that is recorded to: opened with care, mended where a crash cut it, appended to and never overwritten."""

from __future__ import annotations

import os
import zlib

from gputop.record import member
from gputop.record.parse import Header, parse
from gputop.safe.appended import Appended
from gputop.safe.files import Refused

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
        self._member: member.Member | None = None
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
        self._member = self._member or member.Member()
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
    packed = file.read(len(member.MAGIC), 0) == member.MAGIC
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
    place = data.rfind(member.MAGIC)
    while place >= 0 and not (member.begins(data, place) or begin + place == 0):
        place = data.rfind(member.MAGIC, 0, place)
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
        anew = member.Member()
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
