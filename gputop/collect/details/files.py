"""The open files of a process and of its children: what each is, and how far it has been read."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Collection, Iterable
from math import inf

from gputop.collect.kernel_files import slurp, why
from gputop.collect.proc.proc_files import Values, line
from gputop.collect.rates import Counters
from gputop.model import File, FileKind, Identity, Missing, Process, Relative
from gputop.safe import ptrace_access
from gputop.safe.identity import identity as identity_of
from gputop.safe.text import decode

FILLS = ("files", "files_count", "file_now")
MOST = 4096  # descriptors that are read, the first ones,
MOST_POSITIONS = 512  # and those whose position is read
_DELETED = " (deleted)"
_MODES = {os.O_RDONLY: "r", os.O_WRONLY: "w", os.O_RDWR: "rw"}
_WHERE_MEMORY_IS = ("/dev/shm/", "/memfd:", "/SYSV")
_LIBRARIES = (".so", ".py", ".pyc")

Key = tuple[int, str]  # a descriptor and what it is of: another file may have it at the next sample


class OpenFiles:
    """Reads the descriptors of one process at each sample. Sizes are asked apart: a file server may never answer."""

    def __init__(self, root: str, identity: Identity, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder, self._clock = f"{root}/{identity.pid}", clock
        self._positions: dict[Key, Counters] = {}
        self._sizes: dict[Key, int] = {}  # swapped whole: another thread measures
        self.files: tuple[File, ...] = ()  # of the last sample

    def read(self) -> Values:
        """The files; OSError when they may not be seen."""
        fds = sorted(int(name) for name in os.listdir(f"{self._folder}/fd"))
        before, self._positions = self._positions, {}
        files = [file for fd in fds[:MOST] if (file := self._file(fd, before)) is not None]
        self.files = tuple(files)
        return {"files": self.files, "files_count": len(fds), "file_now": file_now(self.files)}

    def measure(self) -> Values:
        """Ask for the sizes of the files of the last sample; they are known from the next sample on."""
        sizes: dict[Key, int] = {}
        for file in self.files:
            if file.kind == "file":
                try:
                    found = os.stat(f"{self._folder}/fd/{file.fd}")
                except OSError:
                    continue
                if stat.S_ISREG(found.st_mode):
                    sizes[file.fd, file.path] = found.st_size
        self._sizes = sizes
        return {}

    def _file(self, fd: int, before: dict[Key, Counters]) -> File | None:
        """One descriptor; None if it was closed since."""
        try:
            path = decode(os.fsencode(os.readlink(f"{self._folder}/fd/{fd}")))
        except OSError:
            return None
        deleted = path.endswith(_DELETED)
        path = path.removesuffix(_DELETED)
        kind = _kind(path)
        if kind in ("socket", "pipe", "other") or len(self._positions) >= MOST_POSITIONS:
            return File(fd=fd, path=path, kind=kind, deleted=deleted)
        try:
            raw, now_s = b"\n" + slurp(f"{self._folder}/fdinfo/{fd}"), self._clock()
            position, flags = int(line(raw, b"\npos:")), int(line(raw, b"\nflags:"), 8)
        except (OSError, ValueError):
            return File(fd=fd, path=path, kind=kind, deleted=deleted)
        mode = _MODES.get(flags & os.O_ACCMODE, "") + ("a" if flags & os.O_APPEND else "")
        if kind != "file" or flags & os.O_DIRECTORY:
            kind = "folder" if flags & os.O_DIRECTORY else kind
            return File(fd=fd, path=path, kind=kind, deleted=deleted, mode=mode)
        counters = self._positions[fd, path] = before.get((fd, path)) or Counters()
        (moved,) = counters.rates(now_s, (position,))
        return File(
            fd=fd,
            path=path,
            kind=kind,
            mode=mode,
            deleted=deleted,
            position_bytes=position,
            size_bytes=self._sizes.get((fd, path)),
            moved_bytes_per_s=moved,
        )


def _kind(path: str) -> FileKind:
    if not path.startswith("/"):
        return "socket" if path.startswith("socket:") else "pipe" if path.startswith("pipe:") else "other"
    if path.startswith(_WHERE_MEMORY_IS):
        return "shared memory"
    if path.startswith("/dev/"):
        return "device"
    return "file"


def file_now(files: Collection[File], inherited: Collection[File] = ()) -> File | None:
    """The data file a process reads: the one whose position moves fastest, else the one it opened last.

    One that stands at its end, or was open in the parent already, counts only while it moves.
    """
    old = {(file.fd, file.path) for file in inherited}

    def rank(file: File) -> tuple[float, int] | None:
        if file.kind != "file" or file.deleted or file.mode not in ("r", "rw") or file.path.endswith(_LIBRARIES):
            return None
        moved = file.moved_bytes_per_s or 0.0
        if not moved and ((file.fd, file.path) in old or file.fd < 3):
            return None
        size = inf if file.size_bytes is None else file.size_bytes
        if not moved and file.position_bytes is not None and 0 < size <= file.position_bytes:
            return None
        return moved, file.fd

    ranked = [(place, file) for file in files if (place := rank(file)) is not None]
    return max(ranked, key=lambda ranking: ranking[0])[1] if ranked else None


CHILDREN_FILLS = ("children",)
MOST_CHILDREN = 128  # children whose files are read


class ChildrenReader:
    """Reads the children of one process, as the newest list of processes has them."""

    def __init__(
        self,
        root: str,
        identity: Identity,
        processes: Callable[[], Iterable[Process]],
        parent: OpenFiles,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._root, self._identity, self._processes, self._clock = root, identity, processes, clock
        self._parent = parent
        self._files: dict[Identity, OpenFiles] = {}  # swapped whole: another thread measures

    def read(self) -> Values:
        """The children by pid; stale as long as the list does not know the process itself."""
        processes = list(self._processes())
        if not any(process.identity == self._identity for process in processes):
            return {"missing": (Missing(metric="children", reason="stale"),)}
        born = sorted(
            (process.identity, process.name)
            for process in processes
            if process.parent_pid == self._identity.pid and process.started_ticks >= self._identity.started_ticks
        )
        looked = [identity for identity, _ in born[:MOST_CHILDREN]]
        self._files = {
            identity: self._files.get(identity) or OpenFiles(self._root, identity, self._clock) for identity in looked
        }
        denied: set[Identity] = set()
        files = {identity: self._file(identity, self._parent.files, denied) for identity in looked}
        return {
            "children": tuple(Relative(identity=one, name=name, file=files.get(one)) for one, name in born),
            "missing": (Missing(metric="file", reason="denied", unlock=ptrace_access.unlock()),) if denied else (),
        }

    def measure(self) -> None:
        """Ask for the sizes of their files."""
        for files in self._files.values():
            files.measure()

    def _file(self, identity: Identity, inherited: Collection[File], denied: set[Identity]) -> File | None:
        files = self._files[identity]
        try:
            files.read()
        except OSError as error:
            if why(error) == "denied":
                denied.add(identity)
            return None
        return file_now(files.files, inherited) if identity_of(identity.pid, self._root) == identity else None
