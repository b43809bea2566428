"""The text of a trace file, plain or compressed, in pieces and within limits."""

from __future__ import annotations

import codecs
import os
import stat
import zlib
from collections import deque
from collections.abc import Iterator

from gputop.safe.bounded_gzip import TooLarge, Unpacker
from gputop.safe.files import Refused

MOST_FILE = 4 * 2**30
_MOST_BYTES = 8 * 2**30  # uncompressed
_CHUNK = 1 << 16
_MAGIC = b"\x1f\x8b"
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # starts like that of UTF-16
    (codecs.BOM_UTF16_LE, "utf-16"),  # written by `>` in Windows PowerShell
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_ENOUGH = 64  # bytes that identify the encoding


def encoding(beginning: bytes) -> str:
    """The encoding of a text by its first bytes, with or without a byte order mark."""
    for mark, name in _MARKS:
        if beginning.startswith(mark):
            return name
    even, odd = beginning[: 2 * _ENOUGH : 2], beginning[1 : 2 * _ENOUGH : 2]
    if len(odd) < 4 or (0 in even and 0 in odd):
        return "utf-8"
    # every second byte of English text in UTF-16 is zero
    return (
        "utf-16-le"
        if 10 * odd.count(0) >= 9 * len(odd)
        else "utf-16-be"
        if 10 * even.count(0) >= 9 * len(even)
        else "utf-8"
    )


class Text:
    """An open file as text; problems are in `notes`, and what was read before them stays valid."""

    def __init__(self, path: str) -> None:
        """Open a file; Refused says in one line why it is not read."""
        try:
            # a pipe without a writer would block forever
            self.fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not a file name"
            raise Refused(f"{path}: {reason}: use a trace that torch.profiler wrote") from None
        info = os.fstat(self.fd)
        problem = None
        if not stat.S_ISREG(info.st_mode):
            problem = "is not a regular file"
        elif not info.st_size:
            problem = "is empty: the program that wrote it was stopped early"
        elif info.st_size > MOST_FILE:
            problem = "is larger than 4 GiB: trace fewer steps"
        if problem:
            os.close(self.fd)
            raise Refused(f"{path} {problem}")
        self.path = path
        self.notes: list[str] = []
        self.size_bytes = info.st_size
        self.read_bytes = 0

    def close(self) -> None:
        """Close the file."""
        os.close(self.fd)

    @property
    def packed(self) -> bool:
        """Whether it is a gzip file."""
        return os.pread(self.fd, len(_MAGIC), 0) == _MAGIC

    def beginning(self) -> str:
        """The first characters, to identify the kind of file; reading still starts at the beginning.

        If there are none, `notes` has the reason.
        """
        first = next(self.pieces(), "")
        os.lseek(self.fd, 0, os.SEEK_SET)
        self.read_bytes = 0
        if first:
            self.notes.clear()
        return first[:4096]

    def whole(self, limit: int) -> str:
        """The whole text if it has at most `limit` characters; Refused otherwise."""
        parts, size = [], 0
        for piece in self.pieces():
            parts.append(piece)
            size += len(piece)
            if size > limit:
                raise Refused(f"larger than {limit >> 20} MiB: profile for a shorter time")
        return "".join(parts)

    def _skip(self, most: int) -> bool:
        """Skip all but the last `most` bytes of a plain file, which may have a hole of many gigabytes."""
        ahead = (self.size_bytes - most) // 4 * 4  # a character boundary in any encoding, or the rest is replaced
        if ahead <= 0 or self.packed:
            return False
        os.lseek(self.fd, ahead, os.SEEK_SET)
        return True

    def last(self, limit: int) -> bytes:
        """Its last bytes, uncompressed, at most `limit`. Reading still starts at the beginning."""
        self._skip(2 * limit)
        kept = bytearray()
        for data in self._bytes():
            kept += data
            if len(kept) > 2 * limit:
                del kept[:-limit]
        os.lseek(self.fd, 0, os.SEEK_SET)
        self.read_bytes = 0
        return bytes(kept[-limit:])

    def tail(self, limit: int) -> tuple[str, bool]:
        """Its last characters, and whether more precede them. Reading still starts at the beginning."""
        begins = os.pread(self.fd, 2 * _ENOUGH, 0)
        parts, size, more = deque[str](), 0, self._skip(8 * limit)
        for piece in self._decoded(begins) if more else self.pieces():
            parts.append(piece)
            size += len(piece)
            while size - len(parts[0]) >= limit:
                size -= len(parts.popleft())
                more = True
        os.lseek(self.fd, 0, os.SEEK_SET)
        self.read_bytes = 0
        return "".join(parts)[-limit:], more or size > limit

    def _decoded(self, begins: bytes) -> Iterator[str]:
        """The text from here on, in the encoding of a file with this beginning."""
        name = encoding(begins)
        if name in ("utf-16", "utf-32"):  # the byte order given by the mark, which is not here
            name += "-be" if begins.startswith(codecs.BOM_UTF16_BE) else "-le"
        decode = codecs.getincrementaldecoder(name.removesuffix("-sig"))("replace").decode
        yield from filter(None, map(decode, self._bytes()))

    def pieces(self) -> Iterator[str]:
        """The text from the beginning, each piece once, without a byte order mark."""
        decode, first = None, b""
        for data in self._bytes():
            if decode is None:
                first += data
                if len(first) < _ENOUGH:
                    continue
                decode, data = codecs.getincrementaldecoder(encoding(first))("replace").decode, first
            if piece := decode(data):
                yield piece
        if decode is None and first:
            yield first.decode(encoding(first), "replace")

    def _bytes(self) -> Iterator[bytes]:
        first = self._read()
        if not first.startswith(_MAGIC):
            given = 0
            while first and given <= _MOST_BYTES:  # the file may grow while it is read
                yield first
                given += len(first)
                first = self._read()
            return
        try:
            yield from self._unpacked(first)
        except zlib.error:
            self.notes.append("the compressed file is damaged: read up to there")
        except TooLarge as bomb:
            self.notes.append(f"{bomb}: read up to there")

    def _unpacked(self, data: bytes) -> Iterator[bytes]:
        unpack = Unpacker(_MOST_BYTES)
        while data:
            yield from unpack.feed(data)
            if unpack.rest is None:
                data = self._read()
                if not data:
                    self.notes.append("the compressed file is truncated: read up to there")
            else:
                data = unpack.rest or self._read()
                if not data.startswith(_MAGIC):
                    return
                unpack.again()

    def _read(self) -> bytes:
        data = os.read(self.fd, _CHUNK)
        self.read_bytes += len(data)
        return data
