"""Gzip from outside as plain bytes, piece by piece, within bounds."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

MOST_BYTES = 8 * 2**30  # that a packed file may hold
MOST_RATIO = 200  # bytes that a packed byte may hold, where it is not a small file
_SMALL = 16 * 2**20
_MOST_AT_ONCE = 1 << 22


class Bomb(Exception):
    """A file that unpacks to more than it may hold."""


class Unpacker:
    """Packed bytes as they were, piece by piece, within bounds."""

    def __init__(self) -> None:
        self._taken = self._given = 0
        self._inflate = zlib.decompressobj(31)

    def feed(self, data: bytes) -> Iterator[bytes]:
        """What these bytes hold, up to the end of the member; zlib.error if they are damaged, or Bomb."""
        self._taken += len(data)
        text = b"..."
        while text and not self._inflate.eof:
            text = self._inflate.decompress(data, _MOST_AT_ONCE)
            data = self._inflate.unconsumed_tail
            self._given += len(text)
            if self._given > MOST_BYTES or self._given > MOST_RATIO * self._taken + _SMALL:
                raise Bomb
            yield text
        self._taken -= len(self._inflate.unused_data)

    @property
    def rest(self) -> bytes | None:
        """What comes after the member; None as long as it has not ended."""
        return self._inflate.unused_data if self._inflate.eof else None

    def again(self) -> None:
        """Another member."""
        self._inflate = zlib.decompressobj(31)
