"""Gzip from outside as plain bytes, piece by piece, within bounds."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator

MOST_RATIO = 200  # bytes that a packed byte may hold
_MORE = 16 * 2**20  # bytes beyond that, of all members together: a small file may be packed better
_MOST_AT_ONCE = 1 << 22


class Bomb(Exception):
    """A file that unpacks to more than it may hold; says in one line what that is."""


class Unpacker:
    """Packed bytes as they were, piece by piece, within bounds.

    Each member is held against its own size: what is good and large lends nothing to what follows it.
    """

    def __init__(self, most: float = math.inf) -> None:
        """`most` is how many bytes all members may hold: for who keeps what is in them."""
        self._most = most
        self._left: float = _MORE
        self._taken = self._given = self._whole = 0
        self._inflate = zlib.decompressobj(31)

    def feed(self, data: bytes) -> Iterator[bytes]:
        """What these bytes hold, up to the end of the member; zlib.error if they are damaged, or Bomb."""
        self._taken += len(data)
        text = b"..."
        while text and not self._inflate.eof:
            text = self._inflate.decompress(data, _MOST_AT_ONCE)
            data = self._inflate.unconsumed_tail
            self._given += len(text)
            self._whole += len(text)
            if self._given > MOST_RATIO * self._taken + self._left:
                raise Bomb(f"it unpacks to more than {MOST_RATIO} times its size")
            if self._whole > self._most:
                raise Bomb(f"it unpacks to more than {self._most / 2**30:g} GiB")
            yield text
        self._taken -= len(self._inflate.unused_data)

    @property
    def rest(self) -> bytes | None:
        """What comes after the member; None as long as it has not ended."""
        return self._inflate.unused_data if self._inflate.eof else None

    def again(self) -> None:
        """Another member."""
        self._left -= max(0, self._given - MOST_RATIO * self._taken)
        self._taken = self._given = 0
        self._inflate = zlib.decompressobj(31)
