"""The file in which a rank's flight recorder is dumped at a timeout: found by its environment, opened with care."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping

from gputop.agent_client import root
from gputop.collectives.flight_record import FlightRecord, from_pickle
from gputop.safe.deadline import NoAnswer, within
from gputop.safe.files import Refused, opened
from gputop.safe.text import clean

LIMIT = 64 << 20  # bytes
_NAMES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
_READS_S = 5.0


class NoDump(Exception):
    """There is no dump of this process; the text says why one is not used, if there is a file."""


def record(
    pid: int, uid: int | None, rank: int | None, started_ticks: int, environ: Mapping[str, str]
) -> tuple[str, FlightRecord]:
    """The newest dump of a process, as path and record; NoDump if there is none since its start."""
    if rank is None:
        raise NoDump
    named, prefixes = _prefixes(environ)
    why, base = "", root(pid)
    for prefix in prefixes:
        path = f"{base}{prefix}{rank}"
        try:
            data = within(path, _read, path, uid, _started_s(started_ticks), seconds=_READS_S)
            return clean(path), from_pickle(data)
        except NoAnswer:
            why = why or f"{clean(path)} does not respond (dead mount?)"
        except FileNotFoundError:
            continue
        except OSError as error:
            why = why or f"{clean(path)}: {error.strerror or 'not readable'}"
        except (Refused, NoDump) as refused:
            why = why or (f"{clean(path)}: {refused}" if str(refused) else "")
    raise NoDump(why if named else "")


def _prefixes(environ: Mapping[str, str]) -> tuple[bool, list[str]]:
    """Whether the environment names the path, and its beginnings: it ends with the rank.

    Without a name these are torch's defaults, the newer one first; anything may be there, so nothing is said about it.
    """
    named = [prefix for name in _NAMES if os.path.isabs(prefix := environ.get(name, ""))]
    if named:
        return True, named[:1]
    cache = environ.get("XDG_CACHE_HOME", "") or os.path.join(environ.get("HOME", ""), ".cache")
    newer = [f"{cache}/torch/comm_lib_trace_rank_"] if os.path.isabs(cache) else []
    return False, [*newer, "/tmp/nccl_trace_rank_"]


def _read(path: str, uid: int | None, since_s: float) -> bytes:
    """The bytes of a regular file of this user that was written since then."""
    fd = opened(path, links=False)
    with open(fd, "rb") as file:
        info = os.fstat(fd)
        if info.st_uid != uid:
            raise NoDump("belongs to another user: not used")
        if info.st_mtime < since_s:
            raise NoDump  # of an earlier job
        if info.st_size > LIMIT:
            raise NoDump(f"larger than {LIMIT >> 20} MiB: read it with gputop explain")
        return file.read(LIMIT)


def _started_s(ticks: int) -> float:
    """Unix time at which a process started."""
    since_boot_s = ticks / os.sysconf("SC_CLK_TCK")
    return time.time() - (time.clock_gettime(time.CLOCK_BOOTTIME) - since_boot_s)
