"""The text of a trace file, plain or packed, in pieces and within bounds."""

from __future__ import annotations

import codecs
import os
import stat
import zlib
from collections.abc import Iterator

from gputop.safe.files import Refused
from gputop.safe.packed import Bomb, Unpacker

MOST_FILE = 4 * 2**30
_MOST_BYTES = 8 * 2**30  # unpacked
_CHUNK = 1 << 16
_MAGIC = b"\x1f\x8b"


class Text:
    """An open file as text; what is wrong with it is in `notes`, what was read up to there stays good."""

    def __init__(self, path: str) -> None:
        """Refused says in one line why a file is not read."""
        try:
            # a pipe without a writer would block us here for ever
            self.fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not a file name"
            raise Refused(f"{path}: {reason}: use a trace that torch.profiler wrote") from None
        info = os.fstat(self.fd)
        problem = None
        if not stat.S_ISREG(info.st_mode):
            problem = "is not a regular file"
        elif not info.st_size:
            problem = "is empty: the program that wrote it was stopped before the end"
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
        """Lets go of the file."""
        os.close(self.fd)

    @property
    def packed(self) -> bool:
        """Whether it is a gzip file."""
        return os.pread(self.fd, len(_MAGIC), 0) == _MAGIC

    def beginning(self) -> str:
        """Some of the first characters: what kind of file it is. The text still begins at its beginning."""
        first = next(self.pieces(), "")
        os.lseek(self.fd, 0, os.SEEK_SET)
        self.read_bytes = 0
        self.notes.clear()
        return first[:4096]

    def whole(self, limit: int) -> str:
        """All of it, where it is not more than so many characters; Refused where it is."""
        parts, size = [], 0
        for piece in self.pieces():
            parts.append(piece)
            size += len(piece)
            if size > limit:
                raise Refused(f"it is larger than {limit >> 20} MiB: profile for less long")
        return "".join(parts)

    def last(self, limit: int) -> bytes:
        """Its last bytes, unpacked: all of them where there are no more. The text still begins at its beginning."""
        kept = bytearray()
        for data in self._bytes():
            kept += data
            if len(kept) > 2 * limit:
                del kept[:-limit]
        os.lseek(self.fd, 0, os.SEEK_SET)
        self.read_bytes = 0
        return bytes(kept[-limit:])

    def pieces(self) -> Iterator[str]:
        """The text from the beginning, each piece once."""
        decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        for data in self._bytes():
            yield decode(data)

    def _bytes(self) -> Iterator[bytes]:
        first = self._read()
        if not first.startswith(_MAGIC):
            given = 0
            while first and given <= _MOST_BYTES:  # a file may grow while it is read
                yield first
                given += len(first)
                first = self._read()
            return
        try:
            yield from self._unpacked(first)
        except zlib.error:
            self.notes.append("the packed file is damaged: read up to there")
        except Bomb as bomb:
            self.notes.append(f"{bomb}: read up to there")

    def _unpacked(self, data: bytes) -> Iterator[bytes]:
        unpack = Unpacker(_MOST_BYTES)
        while data:
            yield from unpack.feed(data)
            if unpack.rest is None:
                data = self._read()
                if not data:
                    self.notes.append("the packed file is cut: read up to there")
            else:
                data = unpack.rest or self._read()
                if not data.startswith(_MAGIC):
                    return
                unpack.again()

    def _read(self) -> bytes:
        data = os.read(self.fd, _CHUNK)
        self.read_bytes += len(data)
        return data
