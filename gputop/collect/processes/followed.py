"""What is remembered of a process only while it is followed closely: its other files, and how often it was blocked."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable
from typing import Literal

from gputop.collect.files import Kept, Shelf, why
from gputop.collect.processes.readings import Reading, Values, missing
from gputop.collect.processes.scale import Scale
from gputop.collect.rates import Counters
from gputop.model import Missing, Reason

BLOCKED_OVER_S = 10.0
FEWEST_LOOKS = 3  # a share of fewer says nothing
RETRY_S = 30.0  # a file that was refused is asked for again after this


class Followed:
    """The files of one process, those of every tick kept open; what they tell, and what they refuse."""

    def __init__(self, root: str, shelf: Shelf) -> None:
        self.stat = Kept(f"{root}/stat", shelf)
        self.fields: Values = {}  # of the Process: every reading updates its own, and unsets them when it fails
        self.troubles: dict[str, Reason] = {}  # by file
        self.shown = False  # somebody looks at it
        self.slow_s = 0.0  # when the slow files are due
        self.main_switches: tuple[float | None, float | None] = (None, None)
        self._root, self._shelf = root, shelf
        self._files: dict[str, Kept] = {}
        self._counters: dict[str, Counters] = {}
        self._refused_s: dict[str, float] = {}
        self._looks: deque[tuple[float, bool]] = deque()
        self._blocked = 0  # of these looks

    def read(self, reading: Reading, now_s: float, scale: Scale) -> None:
        """Read one of its files; what does not work is remembered with its reason."""
        if now_s < self._refused_s.get(reading.file, 0.0):
            return
        try:
            counters = self._counters.get(reading.file)
            if counters is None:
                counters = self._counters[reading.file] = Counters()
            self.fields.update(reading.values(self._raw(reading), counters, now_s, scale))
            if self.troubles:
                self.troubles.pop(reading.file, None)
        except OSError as error:
            self._refuse(reading, why(error), now_s)
        except (ValueError, IndexError):
            self._refuse(reading, "unsupported", now_s)

    def _raw(self, reading: Reading) -> bytes:
        if reading.when != "tick":
            path = f"{self._root}/{reading.file}"
            return self._shelf.gate.ask(path, reading.take, path, reading.size)
        file = self._files.get(reading.file)
        if file is None:
            file = self._files[reading.file] = Kept(f"{self._root}/{reading.file}", self._shelf)
        return file.read(reading.size)

    def _refuse(self, reading: Reading, error: Reason | Literal["gone"], now_s: float) -> None:
        self.fields.update(dict.fromkeys(reading.fills))
        # gone: the process has ended, or this kernel has no such file
        here: Reason = "unsupported" if os.path.exists(f"{self._root}/stat") else "lost"
        reason = here if error == "gone" else error
        self.troubles[reading.file] = reason
        if reason in ("denied", "unsupported"):
            self._refused_s[reading.file] = now_s + RETRY_S

    def watch(self, now_s: float, blocked: bool) -> bool:
        """Remember whether it was seen in state D; whether it moves anything."""
        self._looks.append((now_s, blocked))
        self._blocked += blocked
        while now_s - self._looks[0][0] > BLOCKED_OVER_S:
            self._blocked -= self._looks.popleft()[1]
        count = len(self._looks)
        self.fields["blocked_percent"] = 100 * self._blocked / count if count >= FEWEST_LOOKS else None
        return bool(self.fields.get("read_bytes_per_s") or self.fields.get("write_bytes_per_s"))

    def show(self, shown: bool, only: Iterable[Reading], now_s: float) -> None:
        """Somebody begins to look at it, and all is read; or looks elsewhere, and what is read `only` then is gone."""
        self.shown = shown
        if shown:
            self.slow_s = min(self.slow_s, now_s)
            return
        for reading in only:
            self.fields.update(dict.fromkeys(reading.fills))
            self.troubles.pop(reading.file, None)

    def bare(self) -> None:
        """It has nothing more to tell than its stat record."""
        self.fields.clear()
        self.troubles.clear()

    def missing(self, delays: bool) -> tuple[Missing, ...]:
        """What is unknown of it and why; `delays`: whether the kernel keeps block delays."""
        troubles = tuple(self.troubles.items())
        return missing(troubles if delays else (*troubles, ("io_wait_percent", "unsupported")))

    def close(self) -> None:
        """Keep no file open."""
        for file in (self.stat, *self._files.values()):
            file.close()
