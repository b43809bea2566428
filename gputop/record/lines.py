"""The lines of a recording, plain or compressed, from any valid start; damage is skipped and counted."""

from __future__ import annotations

import zlib
from collections.abc import Generator, Iterator
from typing import BinaryIO

from gputop.export.codec import MOST_CHARS
from gputop.safe.bounded_gzip import TooLarge, Unpacker

MAGIC = b"\x1f\x8b\x08"
HEAD = MAGIC + b"\x00\x00\x00\x00\x00\x00\xff"  # no flags, no time, unknown system (RFC 1952)
FLUSHED = b"\x00\x00\xff\xff"  # end of a sync flush, on a byte boundary (RFC 1951, 3.2.4)
_LAST_BLOCK = b"\x03\x00"  # an empty one
_LEVEL = 3  # half the time of level 6, for a sixth more space


def end(crc: int, size: int) -> bytes:
    """The end of a member after any sync flush, from CRC-32 and size of the text so far."""
    return _LAST_BLOCK + crc.to_bytes(4, "little") + (size & 0xFFFFFFFF).to_bytes(4, "little")


class GzipMember:
    """One member, block by block. After each block `end` is what would complete it."""

    def __init__(self) -> None:
        self.end = b""
        self._crc = self._size = 0
        self._deflate = zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)

    def block(self, text: bytes) -> bytes:
        """These lines compressed, readable as soon as written."""
        first = b"" if self._size else HEAD
        self._crc, self._size = zlib.crc32(text, self._crc), self._size + len(text)
        self.end = end(self._crc, self._size)
        return first + self._deflate.compress(text) + self._deflate.flush(zlib.Z_SYNC_FLUSH)


def begins(data: bytes, place: int) -> bool:
    """Whether a member with a line begins at this position."""
    if not data.startswith(MAGIC, place):
        return False
    try:
        return zlib.decompressobj(31).decompress(data[place : place + 4096], 1) == b"{"
    except zlib.error:
        return False


_CHUNK = 1 << 16
_FIRST_MEMBER = 1 << 26  # bytes; range searched for the next one if the very first are damaged
_MOST_DAMAGE = 10_000  # damaged places; more are invented
_MOST_LOST = 1 << 28  # bytes per place; also the limit of a search
_ENDLESS = "a line without an end: the rest is not read"


class Damage:
    """Unusable parts of a recording: number, and description of the first."""

    def __init__(self) -> None:
        self.count = 0
        self.first = ""
        self.final = False  # so severe that reading stops

    def add(self, what: str) -> None:
        """Record a damaged place."""
        self.first = self.first or what
        self.count += 1

    def end(self, what: str) -> None:
        """Record the last one: reading stops."""
        self.add(what)
        self.final = True

    def without_frame(self, name: str) -> str:
        """Description of a recording without any frame."""
        return f"{name} holds no frame{f' that can be read: {self.first}' if self.count else ': nothing to show'}"

    def __str__(self) -> str:
        """Description of the damage; empty for an intact recording."""
        places = "1 place" if self.count == 1 else f"{self.count} places"
        return f"the recording is damaged in {places}: {self.first}" if self.count else ""

    @property
    def gives_up(self) -> bool:
        """Whether to stop searching for intact parts."""
        return self.final or self.count >= _MOST_DAMAGE


Line = tuple[int | None, bytes]  # position where reading can start with this line, if possible; the line


def read(file: BinaryIO, place: int, damage: Damage) -> Iterator[Line]:
    """The complete lines of an open file, from 0 or a position returned with a line."""
    file.seek(0)
    start = file.read(len(MAGIC))
    packed = start == MAGIC or (not start.startswith(b"{") and _next(file, 1, _FIRST_MEMBER) is not None)
    return _packed(file, place, damage) if packed else _plain(file, place, damage)


def _plain(file: BinaryIO, place: int, damage: Damage) -> Iterator[Line]:
    file.seek(place)
    while line := file.readline(MOST_CHARS):
        if line.endswith((b"\n", b"}")):
            yield place, line
        elif len(line) < MOST_CHARS:
            damage.add("the last line is truncated")
        else:
            while line and not line.endswith(b"\n"):
                if file.tell() - place > _MOST_LOST:
                    damage.end(_ENDLESS)
                    return
                line = file.readline(_CHUNK)
            damage.add("a line without an end")
        if damage.gives_up:
            return
        place = file.tell()


class Splitter:
    """Splits incoming text into complete lines."""

    def __init__(self, damage: Damage) -> None:
        self.rest: list[bytes] = []  # of an unfinished line
        self._size = 0
        self._damage = damage

    def feed(self, text: bytes) -> Iterator[bytes]:
        """The lines that end in this piece."""
        *whole, rest = text.split(b"\n")
        for line in whole:
            if self._size + len(line) <= MOST_CHARS:
                yield b"".join((*self.rest, line, b"\n"))
            else:
                self._damage.add("a line without an end")
            self.rest, self._size = [], 0
        if rest:
            self._size += len(rest)
            if self._size <= MOST_CHARS:
                self.rest.append(rest)
            elif self._size > _MOST_LOST and not self._damage.final:
                self._damage.end(_ENDLESS)


def _packed(file: BinaryIO, place: int, damage: Damage) -> Iterator[Line]:
    unpack = Unpacker()
    while True:
        try:
            ended = yield from _member(file, place, unpack, damage)
        except TooLarge as bomb:
            damage.add(str(bomb))
            return
        if ended is None:
            if damage.gives_up:
                return
            ended = _next(file, place + 1)
            if ended is None:
                return
        place = ended
        file.seek(place)
        if not file.read(1):
            return


def _member(file: BinaryIO, place: int, unpack: Unpacker, damage: Damage) -> Generator[Line, None, int | None]:
    """The lines of one member; returns its end, None if it is truncated or damaged."""
    unpack.again()
    splitter = Splitter(damage)
    begin: int | None = place
    file.seek(place)
    try:
        while unpack.rest is None:
            if damage.final:
                return None
            data = file.read(_CHUNK)
            if not data:
                if splitter.rest:
                    damage.add("the last line is truncated")
                return None
            for text in unpack.feed(data):
                for line in splitter.feed(text):
                    yield begin, line
                    begin = None
    except zlib.error:
        damage.add("a damaged part")
        return None
    if splitter.rest:  # without a line end, as other programs may leave it
        yield begin, b"".join(splitter.rest)
    return file.tell() - len(unpack.rest)


def _next(file: BinaryIO, place: int, most: int | None = None) -> int | None:
    """Start of the next member from a position on; searched for at most `most` bytes."""
    overlap, end = 4096, place + (_MOST_LOST if most is None else most)
    while True:
        file.seek(place)
        data = file.read(16 * _CHUNK + overlap)
        found = data.find(MAGIC)
        while 0 <= found < 16 * _CHUNK:
            if begins(data, found):
                return place + found
            found = data.find(MAGIC, found + 1)
        place += 16 * _CHUNK
        if len(data) < 16 * _CHUNK + overlap or place > end:
            return None
