"""The GPU of a training script that has none: work in time, in the order it was queued, told to the fake driver."""

from __future__ import annotations

import os
import time
from pathlib import Path

from tests.fakenvml.account import Account

ACCOUNTS = "WORKLOAD_ACCOUNTS"  # paths, one a GPU; without it the work takes its time and nobody is told


class Device:
    """One GPU as CUDA shows it: work is queued and goes on by itself, and who wants its result waits."""

    def __init__(self, account: Account | None) -> None:
        self._account = account
        self._done = 0.0  # when all that was queued is done, in seconds of the wall clock

    def run(self, seconds: float, effort: float = 1.0) -> None:
        """Queues work. Effort is what part of the chip it uses, 0-1."""
        if self._account:
            self._done = self._account.work(seconds, effort)
        else:
            self._done = max(self._done, time.time()) + seconds

    def wait(self, ahead_s: float = 0.0, *, spin: bool = False) -> None:
        """Returns when no more than `ahead_s` of work is left; spinning keeps a core busy, as a CUDA stream does."""
        while (left := self._done - time.time() - ahead_s) > 0:
            if not spin:
                time.sleep(left)

    def hold(self, count: int) -> None:
        """Holds so many bytes of device memory from now on."""
        if self._account:
            self._account.hold(count)


def devices() -> list[Device]:
    """Those that this process may use; one that nobody sees, without a fake driver."""
    paths = os.environ.get(ACCOUNTS)
    return [Device(Account(Path(path))) for path in paths.split(os.pathsep)] if paths else [Device(None)]
