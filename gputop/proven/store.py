"""Storage of fixes: a private file each in the state folder; old ones expire, as do the oldest beyond a limit."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from threading import Thread

from gputop.proven.fixes import Fix, decode, encode
from gputop.safe.files import Folder, Refused, in_state_folder, state_place

FOLDER = "proven"
KEPT_S = 30 * 86_400.0
MOST = 200
_MOST_BYTES = 1 << 18
_AHEAD_S = 86_400.0  # possible clock error
_PATIENCE_S = 2.0


class FixStore:
    """The folder, shared by several gputop processes: files are replaced atomically, and outcomes are never lost."""

    def __init__(self, *, writes: bool = True, clock: Callable[[], float] = time.time) -> None:
        self._writes, self._clock = writes, clock

    def load(self) -> dict[str, Fix]:
        """All stored fixes by name, oldest first; invalid, expired and excess files are removed."""
        with self._folder() as folder:
            return {} if folder is None else self._sweep(folder)

    def put(self, fix: Fix) -> None:
        """Store a fix, replacing an earlier one. Refused on a disk error."""
        with self._folder() as folder:
            if folder is None or not self._writes:
                return
            kept = self._sweep(folder)
            mine = kept.get(fix.name)
            if mine and mine.outcome and not fix.outcome:
                return  # another gputop has stored the outcome
            for name, other in kept.items():
                if fix.replaces(other):
                    folder.remove(name)
            folder.replace(fix.name, json.dumps(encode(fix), allow_nan=False).encode())

    def forget(self) -> int:
        """Remove all of them; return their number."""
        with self._folder() as folder:
            names = [] if folder is None else _names(folder)
            for name in names:
                folder.remove(name)  # type: ignore[union-attr]  # none exist without it
            return len(names)

    def _sweep(self, folder: Folder) -> dict[str, Fix]:
        now_s, found = self._clock(), dict[str, Fix]()
        for name in _names(folder):
            with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError, RecursionError):
                fix = decode(json.loads(folder.read(name, _MOST_BYTES) or b""))
                newest_s = max(fix.at_s, fix.outcome.at_s if fix.outcome else 0.0)
                if now_s - KEPT_S <= newest_s <= now_s + _AHEAD_S and fix.name == name:
                    found[name] = fix
        kept = dict(sorted(found.items(), key=lambda item: item[1].at_s)[-MOST:])
        for name in _names(folder) if self._writes else ():
            if name not in kept:
                folder.remove(name)
        return kept

    @contextmanager
    def _folder(self) -> Iterator[Folder | None]:
        """Creates nothing if writing is not allowed."""
        if not self._writes and not Path(state_place(), "gputop", FOLDER).is_dir():
            yield None
            return
        folder = in_state_folder(FOLDER)
        try:
            yield folder
        finally:
            folder.close()


def _names(folder: Folder) -> list[str]:
    return sorted(name for name in folder.sizes() if name.endswith(".json"))


class BackgroundStore:
    """A store in a background thread: its disk may be a server that does not respond. Results are used later."""

    def __init__(self, store: FixStore) -> None:
        self._store = store
        self._asked: SimpleQueue[Fix | bool] = SimpleQueue()
        self._thread: Thread | None = None
        self._kept: dict[str, Fix] = {}  # as last read; replaced atomically
        self._own: dict[str, Fix] = {}
        self.ready = False

    @property
    def fixes(self) -> dict[str, Fix]:
        """All known fixes by name: those last read, and newer ones."""
        own = self._own.values()
        kept = {name: fix for name, fix in self._kept.items() if not any(one.replaces(fix) for one in own)}
        return {**kept, **self._own}

    def refresh(self) -> None:
        """Read again what other processes may have written."""
        self._ask(True)

    def put(self, fix: Fix) -> None:
        """Store a fix; it is visible here at once."""
        self._own = {name: one for name, one in self._own.items() if not fix.replaces(one)} | {fix.name: fix}
        self._ask(fix)

    def finish(self) -> None:
        """Wait a moment until all is written."""
        if self._thread is not None:
            self._asked.put(False)
            self._thread.join(_PATIENCE_S)
            self._thread = None

    def _ask(self, what: Fix | bool) -> None:
        if self._thread is None:
            self._thread = Thread(target=self._work, name="proven", daemon=True)
            self._thread.start()
        self._asked.put(what)

    def _work(self) -> None:
        while (asked := self._asked.get()) is not False:
            with contextlib.suppress(Refused, OSError):  # only this process knows it then
                if isinstance(asked, Fix):
                    self._store.put(asked)
                else:
                    self._kept = self._store.load()
            self.ready = True
