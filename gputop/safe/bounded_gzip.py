"""Decompress untrusted gzip data piece by piece, within limits."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator

MOST_RATIO = 200  # output bytes per input byte
_MORE = 16 * 2**20  # bytes beyond that over all members: a small file may be compressed better
_MOST_AT_ONCE = 1 << 22


class TooLarge(Exception):
    """The data decompress to more than allowed; the message says so in one line."""


class Unpacker:
    """Decompresses piece by piece, within limits.

    Each member has its own limit: a large valid one leaves no allowance for the next.
    """

    def __init__(self, most: float = math.inf) -> None:
        """`most`: total bytes of all members, for callers that keep the data."""
        self._most = most
        self._left: float = _MORE
        self._taken = self._given = self._whole = 0
        self._inflate = zlib.decompressobj(31)

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The output for these bytes, up to the end of the member; raises zlib.error if damaged, or Bomb."""
        self._taken += len(data)
        text = b"..."
        while text and not self._inflate.eof:
            text = self._inflate.decompress(data, _MOST_AT_ONCE)
            data = self._inflate.unconsumed_tail
            self._given += len(text)
            self._whole += len(text)
            if self._given > MOST_RATIO * self._taken + self._left:
                raise TooLarge(f"it decompresses to more than {MOST_RATIO} times its size")
            if self._whole > self._most:
                raise TooLarge(f"it decompresses to more than {self._most / 2**30:g} GiB")
            yield text
        self._taken -= len(self._inflate.unused_data)

    @property
    def rest(self) -> bytes | None:
        """The data after the member; None until it has ended."""
        return self._inflate.unused_data if self._inflate.eof else None

    def again(self) -> None:
        """Start another member."""
        self._left -= max(0, self._given - MOST_RATIO * self._taken)
        self._taken = self._given = 0
        self._inflate = zlib.decompressobj(31)
