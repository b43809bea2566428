"""Standard output as a place for lines, one after the other, whatever else is done with its number."""

from __future__ import annotations

import os


class Output:
    """Takes all that it is given, or waits for who reads it."""

    def __init__(self) -> None:
        self.size = 0  # in bytes, of what was written
        self._fd = os.dup(1)

    def append(self, data: bytes, whole: bool = True) -> None:  # noqa: ARG002  a packed file is told so
        """Write all of it; OSError when nobody reads any more."""
        view = memoryview(data)
        while view:
            written = os.write(self._fd, view)
            self.size += written
            view = view[written:]

    def close(self) -> None:
        """Nothing is left open but what ends with the program: others print too."""
