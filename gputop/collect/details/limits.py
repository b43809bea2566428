"""The resource limits of a process, and what it has used of those where it can be told."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from math import inf

from gputop.collect.files import slurp
from gputop.collect.processes.readings import Values, line
from gputop.model import Identity, Limit, LimitUnit, Process
from gputop.safe.identity import parse_stat
from gputop.safe.text import decode

FILLS = ("limits",)
_LINE = re.compile(rb"Max (.+?)\s{2,}(unlimited|-?\d+)\s+(unlimited|-?\d+)\s*(\S*)")
_UNITS: dict[bytes, LimitUnit] = {
    b"seconds": "seconds", b"bytes": "bytes", b"processes": "processes", b"files": "files", b"locks": "locks",
    b"signals": "signals", b"us": "microseconds",
}  # fmt: skip
_STATUS = {"address space": b"\nVmSize:", "locked memory": b"\nVmLck:", "data size": b"\nVmData:"}


class Limits:
    """Reads the limits of one process; `processes` are all that are known, for how many its user has."""

    def __init__(self, root: str, identity: Identity, processes: Callable[[], Iterable[Process]]) -> None:
        self._folder, self._identity, self._processes = f"{root}/{identity.pid}", identity, processes

    def read(self) -> Values:
        """The limits in the order of the kernel; OSError when they may not be read."""
        raw = slurp(f"{self._folder}/limits", 8192)
        used = self._used()
        return {"limits": tuple(limit for row in raw.splitlines() if (limit := _limit(row, used)) is not None)}

    def _used(self) -> dict[str, float | None]:
        status = slurp(f"{self._folder}/status", 16384)
        used: dict[str, float | None] = {name: _kilobytes(line(status, field)) for name, field in _STATUS.items()}
        queued = line(status, b"\nSigQ:").partition(b"/")[0]
        used["pending signals"] = int(queued) if queued.isdigit() else None
        used["cpu time"] = self._cpu_s()
        used["processes"] = self._tasks(line(status, b"\nUid:").split()[:1])
        try:
            used["open files"] = len(os.listdir(f"{self._folder}/fd"))
        except OSError:
            used["open files"] = None
        return used

    def _cpu_s(self) -> float | None:
        stat = parse_stat(slurp(f"{self._folder}/stat"))
        if stat is None or stat.user_ticks is None or stat.system_ticks is None:
            return None
        return (stat.user_ticks + stat.system_ticks) / os.sysconf("SC_CLK_TCK")

    def _tasks(self, uid: list[bytes]) -> float | None:
        """Tasks of its user: the kernel counts threads, whatever the limit is called."""
        if not uid or not uid[0].isdigit():
            return None
        mine = [process for process in self._processes() if process.uid == int(uid[0])]
        return sum(process.threads or 0 for process in mine) if mine else None


def _limit(row: bytes, used: dict[str, float | None]) -> Limit | None:
    found = _LINE.match(row)
    if found is None:
        return None
    name, unit = decode(found[1]), _UNITS.get(found[4], "priority")
    return Limit(name=name, unit=unit, soft=_number(found[2]), hard=_number(found[3]), used=used.get(name))


def _number(raw: bytes) -> float:
    return inf if raw == b"unlimited" else int(raw)


def _kilobytes(raw: bytes) -> int | None:
    words = raw.split()
    return int(words[0]) * 1024 if words and words[0].isdigit() else None
