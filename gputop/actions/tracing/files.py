"""Traces brought home: from where the programs wrote them, packed, to where profiles are kept."""

from __future__ import annotations

import gzip
import io
import os
import re
import time
from collections.abc import Sequence

from gputop.actions.naming import described
from gputop.actions.tracing.shots import Shot
from gputop.model import Process
from gputop.profile import kept
from gputop.profile.kept import Kept
from gputop.safe import plain
from gputop.safe.deadline import within
from gputop.safe.files import Refused

_NAME = re.compile(r"(?!\.)[A-Za-z0-9._-]{1,120}\.json")
_MOST_BYTES = 1 << 30
_CHUNK = 1 << 20
_CHUNK_S = 10.0  # for each part of it: a file server may be slow
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LEVEL = 3  # a trace packs to a tenth with any


def brought(process: Process, shots: Sequence[Shot]) -> tuple[Kept, dict[str, Shot]]:
    """Keep the traces of these under the name of a process: where, and which file is whose. Refused if they cannot be.

    What the programs wrote is removed.
    """
    names = {_file(shot.target.process, len(shots) > 1): shot for shot in shots}
    packed = {name: _packed(shot) for name, shot in names.items()}
    meta = {
        "at_s": time.time(),
        **described(process),
        "how": shots[0].how,
        "traces": list(packed),
        "stop_ms": max((stop for shot in shots if (stop := shot.took_ms("stop_ms"))), default=None),
    }
    return kept.keep(meta, packed), names


def _file(process: Process, several: bool) -> str:
    name = "trace" if not several else f"pid{process.pid}" if process.rank is None else f"rank{process.rank}"
    return f"{name}.json.gz"


def _packed(shot: Shot) -> bytes:
    """The file that a process wrote, packed, and gone from there.

    The path is what the process says: nothing but a plain file of its own user, in a folder of that user, is touched.
    """
    path, uid = str((shot.told or {}).get("out", "")), shot.target.process.uid
    where, base = os.path.split(path)
    if not os.path.isabs(path) or not _NAME.fullmatch(base):
        raise Refused(f"it names a file that is none of its own: {path[:200]}")
    packed = io.BytesIO()
    try:
        source = within(path, _opened, shot.root + where, base, uid, seconds=_CHUNK_S)
        file = open(source, "rb")  # noqa: SIM115  a thread may never come back from it: it is not closed then
        with gzip.GzipFile("", "wb", _LEVEL, packed) as written:
            while data := within(path, file.read, _CHUNK, seconds=_CHUNK_S):
                written.write(data)
        file.close()
        within(path, _removed, shot.root + where, base, seconds=_CHUNK_S)
    except OSError as error:
        raise Refused(f"{path[:200]}: {error.strerror}") from None
    return packed.getvalue()


def _opened(folder: str, name: str, uid: int | None) -> int:
    """The file, open to be read; Refused where it is not a plain one of this user, in a folder of that user."""
    there = os.open(folder, _FOLDER)
    try:
        source = plain.opened(name, folder=there, links=False)
        info = os.fstat(source)
        problem = ""
        if info.st_uid != uid or os.fstat(there).st_uid != uid:
            problem = "is not a file of its user: not taken"
        elif info.st_size > _MOST_BYTES:
            problem = "is larger than 1 GiB: ask for fewer steps"
        if problem:
            os.close(source)
            raise Refused(f"{folder}/{name[:200]} {problem}")
        return source
    finally:
        os.close(there)


def _removed(folder: str, name: str) -> None:
    there = os.open(folder, _FOLDER)
    try:
        os.unlink(name, dir_fd=there)
    finally:
        os.close(there)
