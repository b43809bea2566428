"""The driver, opened once: why it is closed if it is, and when to try again."""

from __future__ import annotations

import re

from gputop.collect.nvml import notes
from gputop.collect.nvml.device import Release
from gputop.collect.nvml.gate import FUNCTION_NOT_FOUND, LIBRARY_NOT_FOUND, DriverGate, DriverGone, Unanswered
from gputop.model import Note

RETRY_S = 10.0
_RELEASE = re.compile(r"(\d+)\.(\d+)")


def release(version: str | None) -> Release | None:
    """Branch and number of a driver, (580, 82) of `580.82.07`; None where the text has none."""
    found = _RELEASE.match(version or "")
    return (int(found[1]), int(found[2])) if found else None


class DriverConnection:
    """One nvmlInit for a process; another only when the driver as a whole stopped to answer."""

    def __init__(self, sys_root: str, proc_root: str, root: str = "") -> None:
        """`root` stands before the places where a library is looked for that the loader does not find."""
        self.is_open = False
        self.worked = False  # it has been open once
        self.note: Note | None = None  # why it is closed
        self.driver_version: str | None = None
        self.cuda_version: str | None = None
        self.library: notes.UnloadedLibrary | None = (
            None  # where the loader does not look: the one that is used, or refused
        )
        self._sys_root, self._proc_root, self._root = sys_root, proc_root, root
        self._held = False  # between nvmlInit and nvmlShutdown
        self._retry_s = float("-inf")

    @property
    def release(self) -> Release | None:
        """Branch and number of the driver, as (580, 82); None while they are not known."""
        return release(self.driver_version)

    def due(self, now_s: float) -> bool:
        """Whether it is time to try again."""
        return now_s >= self._retry_s

    def open(self, gate: DriverGate) -> bool:
        """Try; whether it is open now. No other thread may be inside the driver."""
        self.close(gate)
        try:
            self._init(gate)
        except (Unanswered, DriverGone) as failed:
            self.lose(gate, failed.code)
            return False
        self.is_open = self.worked = self._held = True
        self.note = None
        self._read_versions(gate)
        return True

    def lose(self, gate: DriverGate, code: int) -> None:
        """It does not answer any more, or would not open."""
        was_open, self.is_open = self.is_open, False
        # what broke while it was open may work at once; what would not open is given time
        self._retry_s = gate.clock() + (0.0 if was_open else RETRY_S)
        self.note = notes.closed(
            code, worked=self.worked, gate=gate, sys_root=self._sys_root, proc_root=self._proc_root, found=self.library
        )

    def close(self, gate: DriverGate) -> None:
        """Let go of the driver; nothing of ours stays open under /dev. No other thread may be inside it."""
        self.is_open = False
        if self._held:
            self._held = False
            try:
                gate.call("nvmlShutdown")
            except (Unanswered, DriverGone):
                pass

    def _init(self, gate: DriverGate) -> None:
        try:
            self._start(gate)
        except Unanswered as refused:
            if refused.code != LIBRARY_NOT_FOUND:
                raise
            if not self._load(gate):
                raise
            self._start(gate)

    def _start(self, gate: DriverGate) -> None:
        try:
            gate.call("nvmlInit")
        except Unanswered as refused:
            if refused.code != FUNCTION_NOT_FOUND:
                raise
            gate.symbol("nvmlInit_v2")

    def _load(self, gate: DriverGate) -> bool:
        """Whether the library is loaded now from where the loader does not look."""
        tried = []
        for found in notes.elsewhere(self._root):
            opened = notes.LibraryLoader(found)
            if gate.load(opened):
                self.library = found
                return True
            tried.append(opened.result)
        self.library = tried[0] if tried else None
        return False

    def _read_versions(self, gate: DriverGate) -> None:
        try:
            self.driver_version = gate.call("nvmlSystemGetDriverVersion")
            number: int = gate.call("nvmlSystemGetCudaDriverVersion")
            self.cuda_version = f"{number // 1000}.{number % 1000 // 10}"
        except (Unanswered, DriverGone):
            pass
