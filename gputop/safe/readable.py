"""Waiting for several files or sockets at once."""

from __future__ import annotations

import selectors
from collections.abc import Iterable
from typing import Protocol, TypeVar


class _File(Protocol):
    def fileno(self) -> int: ...


_F = TypeVar("_F", bound=_File)


def readable(files: Iterable[_F], seconds: float) -> list[_F]:
    """Those that can be read, or have ended, within so many seconds; none if there is none until then.

    Not by select.select: it refuses numbers from 1024 on, and so many files of /proc are open where jobs have many
    threads.
    """
    with selectors.PollSelector() as waiting:
        by_number = {file.fileno(): file for file in files}
        for number in by_number:
            waiting.register(number, selectors.EVENT_READ)
        return [by_number[key.fd] for key, _ in waiting.select(seconds)]
