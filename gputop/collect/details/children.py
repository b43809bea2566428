"""The children of an open process, and the data file that each of them reads now."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable

from gputop.collect.details.files import OpenFiles, file_now
from gputop.collect.files import why
from gputop.collect.processes.readings import Values
from gputop.model import File, Identity, Missing, Process, Relative
from gputop.safe import attach
from gputop.safe.identity import identity as identity_of

FILLS = ("children",)
MOST = 128  # children whose files are looked at


class Children:
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
        looked = [identity for identity, _ in born[:MOST]]
        self._files = {
            identity: self._files.get(identity) or OpenFiles(self._root, identity, self._clock) for identity in looked
        }
        denied: set[Identity] = set()
        files = {identity: self._file(identity, self._parent.files, denied) for identity in looked}
        return {
            "children": tuple(Relative(identity=one, name=name, file=files.get(one)) for one, name in born),
            "missing": (Missing(metric="file", reason="denied", unlock=attach.unlock()),) if denied else (),
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
