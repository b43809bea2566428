"""The account of one GPU: programs write into it what they do there, and the fake driver answers what is true.

account = Account(path)                 # made by Fake.lend
account.hold(24 << 30)                  # from now on this process is on the GPU, with so much memory
end = account.work(0.120)               # queued behind what everybody has queued before
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
import time
from pathlib import Path

TENANTS, DEEP = 64, 16384  # the layout is that of account.c
_HEAD, _TENANT, _WORK = struct.Struct("QQ"), struct.Struct("QQ"), struct.Struct("5dQ")
_WORKS_AT = _HEAD.size + TENANTS * _TENANT.size
SIZE = _WORKS_AT + DEEP * _WORK.size


class Account:
    """One process' hand on the account of one GPU. Works follow each other: a GPU that is shared takes turns."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if os.fstat(self._file).st_size < SIZE:
            os.ftruncate(self._file, SIZE)
        self._map = mmap.mmap(self._file, SIZE)

    def work(self, seconds: float, effort: float = 1.0) -> float:
        """Queues so much work; when it will be done, in seconds of the wall clock. Effort is 0-1, for the power."""
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            (written, _) = _HEAD.unpack_from(self._map, 0)
            start, busy, strain = time.time(), 0.0, 0.0
            if written:
                before = _WORK.unpack_from(self._map, self._place(written - 1))
                length = before[1] - before[0]
                start = max(start, before[1])
                busy, strain = before[2] + length, before[3] + length * before[4]
            _WORK.pack_into(self._map, self._place(written), start, start + seconds, busy, strain, effort, os.getpid())
            _HEAD.pack_into(self._map, 0, written + 1, 0)
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)
        return start + seconds

    def hold(self, count: int) -> None:
        """Says how many bytes this process holds on the GPU; 0 is a context that is gone."""
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            places = [_HEAD.size + number * _TENANT.size for number in range(TENANTS)]
            pids = [_TENANT.unpack_from(self._map, place)[0] for place in places]
            place = places[pids.index(os.getpid() if os.getpid() in pids else 0)]
            _TENANT.pack_into(self._map, place, os.getpid() if count else 0, count)
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    @staticmethod
    def _place(number: int) -> int:
        return _WORKS_AT + number % DEEP * _WORK.size
