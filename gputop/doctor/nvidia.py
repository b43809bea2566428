"""The NVIDIA driver, queried once in a daemon thread: its data, its error, or the call that hangs."""

from __future__ import annotations

import time
from threading import Event, Lock, Thread

from gputop.collect.nvml import notes, pci
from gputop.collect.nvml.cadence import CallCosts
from gputop.collect.nvml.connection import DriverConnection
from gputop.collect.nvml.gate import DriverGate, DriverGone, Unanswered
from gputop.frozen_dataclass import frozen_dataclass
from gputop.model import Note

PATIENCE_S = 3.0


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class ListedGpu:
    """One GPU of the driver's list; a silent one has no name."""

    name: str | None = None
    capability: tuple[int, int] | None = None


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class NvidiaFacts:
    """What the query yielded."""

    note: Note | None = None  # why the driver is unusable
    hanging: str | None = None  # the call that does not return
    kernel: str | None = None  # version of the loaded module
    library: str | None = None
    folder: str | None = None  # folder of that library, if outside the loader's search path
    version: str | None = None
    cuda: str | None = None  # newest CUDA version it supports
    cards: tuple[ListedGpu, ...] = ()
    in_sys: int = 0  # NVIDIA GPUs on the PCI bus, independent of the driver


class Driver:
    """The query and its result."""

    def __init__(
        self, sys_root: str, proc_root: str, root: str = "", *, enabled: bool = True, patience_s: float = PATIENCE_S
    ) -> None:
        self._sys_root, self._proc_root, self._root = sys_root, proc_root, root
        self._enabled, self._patience_s = enabled, patience_s
        self._gate = DriverGate(CallCosts())
        self._asked, self._answered = Lock(), Event()
        self._facts = NvidiaFacts()
        self._begun, self._until_s = False, 0.0

    def facts(self) -> NvidiaFacts:
        """The result; the first call starts the thread, and every call waits at most `patience_s`."""
        with self._asked:
            if not self._begun:
                self._begun, self._until_s = True, time.monotonic() + self._patience_s
                Thread(target=self._run, name="driver", daemon=True).start()
        if self._answered.wait(max(0.0, self._until_s - time.monotonic())):
            return self._facts
        call = self._gate.at
        return NvidiaFacts(hanging=call.name if call else "its library", kernel=self._kernel(), in_sys=self._in_sys())

    def _run(self) -> None:
        try:
            self._facts = self._ask()
        except Exception as error:  # an unexpected error is a result, too
            self._facts = NvidiaFacts(note=notes.broken(f"{type(error).__name__}: {error}"))
        self._answered.set()

    def _ask(self) -> NvidiaFacts:
        slots = pci.gpus(self._sys_root)
        if not self._enabled:
            return NvidiaFacts(note=notes.OFF, kernel=self._kernel(), in_sys=len(slots))
        if slots and all(slot.asleep for slot in slots):
            return NvidiaFacts(note=notes.ASLEEP, kernel=self._kernel(), in_sys=len(slots))
        connection = DriverConnection(self._sys_root, self._proc_root, self._root)
        opened = connection.open(self._gate)
        try:
            cards = _cards(self._gate) if opened else ()
        except DriverGone as gone:
            connection.lose(self._gate, gone.code)
            cards = ()
        library = None if _unusable(connection.note) else notes.library_version(self._gate)
        connection.close(self._gate)
        return NvidiaFacts(
            note=connection.note,
            kernel=self._kernel(),
            library=library,
            folder=connection.library.folder if opened and connection.library else None,
            version=connection.driver_version,
            cuda=connection.cuda_version,
            cards=cards,
            in_sys=len(slots),
        )

    def _kernel(self) -> str | None:
        return notes.kernel_version(self._sys_root, self._proc_root)

    def _in_sys(self) -> int:
        return len(pci.gpus(self._sys_root))


def _unusable(note: Note | None) -> bool:
    """Whether there is no library to report its version."""
    return note is not None and note.key in ("no-library", "library-refused", "shadowed-pynvml")


def _cards(gate: DriverGate) -> tuple[ListedGpu, ...]:
    count: int = gate.call("nvmlDeviceGetCount")
    return tuple(_card(gate, index) for index in range(count))


def _card(gate: DriverGate, index: int) -> ListedGpu:
    try:
        handle = gate.call("nvmlDeviceGetHandleByIndex", index)
        name: str = gate.call("nvmlDeviceGetName", handle)
    except Unanswered:
        return ListedGpu()
    try:
        major, minor = gate.call("nvmlDeviceGetCudaComputeCapability", handle)
    except Unanswered:
        return ListedGpu(name=name)
    return ListedGpu(name=name, capability=(major, minor))
