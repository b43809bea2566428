"""How long a thread of ours has waited for a CPU: time that no driver has cost."""

from __future__ import annotations

import os
import weakref

_PATH = "/proc/thread-self/schedstat"  # ns that it ran, ns that it waited to run, time slices


class RunQueue:
    """The wait of the thread that asks first; on a crowded host a call lasts longer, though the driver is as fast."""

    def __init__(self) -> None:
        self._file: int | None = None  # stays open: opening costs more than reading
        self._unread = False

    def waited_s(self) -> float:
        """Seconds since the thread began, in about 2 us; always 0.0 where the kernel does not count them."""
        if self._unread:
            return 0.0
        try:
            if self._file is None:
                self._file = os.open(_PATH, os.O_RDONLY | os.O_CLOEXEC)
                weakref.finalize(self, os.close, self._file)
            return int(os.pread(self._file, 64, 0).split()[1]) / 1e9
        except (OSError, ValueError, IndexError):
            self._unread = True
            return 0.0
