"""The gate: every call into the NVIDIA driver passes here, is timed, and answers or says why it does not."""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable
from threading import Lock
from typing import Any, NamedTuple

from gputop.collect.nvml.cadence import CallCosts
from gputop.frozen_dataclass import frozen_dataclass
from gputop.model import Reason
from gputop.safe.text import clean, decode

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


HANG_S = 2.0  # a call that takes longer counts as one that hangs
_SHORT_S = 0.0002  # a call so short has hardly waited for a CPU
_SINCE_S = 0.02  # no wait of longer ago is taken for that of a call; to ask before each takes as long as a short one
_TEXT_LIMIT = 96  # the driver's longest name buffer

OK, UNINITIALIZED, NOT_SUPPORTED, NO_PERMISSION, INSUFFICIENT_SIZE = 0, 1, 3, 4, 7
DRIVER_NOT_LOADED, TIMEOUT, LIBRARY_NOT_FOUND, FUNCTION_NOT_FOUND = 9, 10, 12, 13
GPU_IS_LOST, RESET_REQUIRED, BLOCKED, MISMATCH, NO_GPU, UNKNOWN = 15, 16, 17, 18, 28, 999
_UNSUPPORTED = frozenset({2, NOT_SUPPORTED, FUNCTION_NOT_FOUND, 22, 25, 26})
_LOST = frozenset({GPU_IS_LOST, NO_GPU})
_ABSENT = frozenset({6, 21})  # nothing found, no data: normal answers
SHADOWED = -1  # our own code: a module named pynvml that is not NVIDIA's

PASSES = frozenset({TIMEOUT, RESET_REQUIRED, 19, 27})  # sooner or later: the last two are "in use" and "not ready"

_OLD = "a newer driver, or a newer nvidia-ml-py"


@frozen_dataclass(frozen=True, slots=True)
class NoValue:
    """Why there is no value, and what would unlock it."""

    reason: Reason
    unlock: str | None = None
    passing: bool = False  # it was an error that may pass, each time: it is asked for again


ABSENT = NoValue("absent")


class Unanswered(Exception):
    """A call that brought no value. `code` is the driver's."""

    def __init__(self, no: NoValue, code: int = OK) -> None:
        super().__init__(no.reason)
        self.no = no
        self.code = code


class Lost(Unanswered):
    """The GPU is gone from its bus."""


class DriverGone(Exception):
    """The driver as a whole does not answer; it must be opened again."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class Late(Exception):
    """A call on a GPU came back after it counted as hung; another thread may serve the other GPUs by now."""

    def __init__(self, since_s: float) -> None:
        super().__init__(since_s)
        self.since_s = since_s


class DriverCall(NamedTuple):
    """A call under way: the GPU it is about (None: the driver as a whole), its name, since when."""

    gpu: int | None
    name: str
    since_s: float


def for_ever(code: int) -> NoValue:
    """What an error means that may pass, and never does."""
    return NoValue("unsupported", f"the driver rejects this call every time (NVML error {code})", passing=True)


def refusal(code: int, about_gpu: bool = True) -> Unanswered:
    """What an error code means for the value that was asked for; asked about the driver as a whole no GPU is lost."""
    if code in _LOST and about_gpu:
        return Lost(NoValue("lost"), code)
    if code in _UNSUPPORTED:
        return Unanswered(NoValue("unsupported", _OLD if code == FUNCTION_NOT_FOUND else None), code)
    if code == NO_PERMISSION:
        unlock = "run as root" if os.geteuid() else "run where the whole GPU is accessible, not only a MIG instance"
        return Unanswered(NoValue("denied", unlock), code)
    if code in _ABSENT:
        return Unanswered(ABSENT, code)
    return Unanswered(NoValue("stale"), code)


class DriverGate:
    """One thread's way into the driver. `at` is its progress board: other threads see a call that hangs."""

    def __init__(self, costs: CallCosts, clock: Callable[[], float] = time.monotonic) -> None:
        self.at: DriverCall | None = None
        self.superseded = False
        self.answered = 0  # calls that worked
        self.unknown = 0  # calls that failed with Unknown Error
        self.spent_s = 0.0  # by the driver in the last call
        self.clock = clock
        self._costs = costs
        self._queue = RunQueue()
        self._waited_s, self._asked_s = 0.0, float("-inf")  # how long we had waited for a CPU when we asked last
        self._board = Lock()
        self._binding: Any = None

    def supersede(self, call: DriverCall) -> bool:
        """Mark the thread as replaced, if it is still inside this call: it finds out when it comes back."""
        with self._board:
            self.superseded = self.at is call
            return self.superseded

    @property
    def binding(self) -> Any:
        """NVIDIA's module pynvml; Unanswered with SHADOWED if it is missing or another module of that name."""
        if self._binding is None:
            try:
                import pynvml  # late: 40 ms that the first screen need not wait for, and it may not be there
            except Exception as error:
                raise Unanswered(NoValue("unsupported"), SHADOWED) from error
            if not all(hasattr(pynvml, name) for name in ("nvmlInit", "NVMLError", "nvmlDeviceGetFieldValues")):
                raise Unanswered(NoValue("unsupported"), SHADOWED)
            self._binding = pynvml
        return self._binding

    def call(self, name: str, *args: Any, gpu: int | None = None, allowed_s: float = HANG_S) -> Any:
        """The answer of the wrapper of this name, text cleaned. Unanswered, Lost, DriverGone or Late if not.

        `allowed_s`: who is not replaced meanwhile takes an answer that comes within so many seconds.
        """
        function = getattr(self.binding, name, None)
        if function is None:
            raise Unanswered(NoValue("unsupported", _OLD), FUNCTION_NOT_FOUND)
        answer = self._timed(name, function, args, gpu, allowed_s)
        self.answered += 1
        return clean(answer, _TEXT_LIMIT) if isinstance(answer, str) else answer

    def load(self, open_library: Callable[[], Any]) -> bool:
        """Whether there is a library that the binding does not find itself: from now on it uses that one."""
        library = self._timed("dlopen", open_library, (), None)
        if library is not None:
            self.binding.nvmlLib = library
        return library is not None

    def symbol(self, name: str, *args: Any, gpu: int | None = None) -> int:
        """The return code of the C function of this name, OK or INSUFFICIENT_SIZE; any other is raised as in call."""
        binding = self.binding
        code: int = self._timed(name, lambda *given: binding._nvmlGetFunctionPointer(name)(*given), args, gpu)
        if code not in (OK, INSUFFICIENT_SIZE):
            raise self._refused(code, gpu)
        self.answered += 1
        return code

    def file(self, name: str, read: Callable[[], bool], gpu: int) -> bool:
        """What a file of the kernel says about a GPU: it may hang as a call does, and counts as one."""
        said: bool = self._timed(name, read, (), gpu)
        return said

    def _timed(
        self,
        name: str,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        gpu: int | None,
        allowed_s: float = HANG_S,
    ) -> Any:
        since_s = self.clock()
        if since_s - self._asked_s > _SINCE_S:
            self._waited()
            since_s = self.clock()
        with self._board:
            self.at = DriverCall(gpu, name, since_s)
        try:
            return function(*args)
        except UnicodeDecodeError as error:
            return decode(error.object, _TEXT_LIMIT)
        except Exception as error:
            raise self._refused(self._code(error), gpu) from None
        finally:
            spent_s = self.clock() - since_s
            with self._board:
                self.at = None
            if spent_s > _SHORT_S:
                spent_s -= min(spent_s, self._waited())
            self.spent_s = spent_s
            if self.superseded or (spent_s > allowed_s and gpu is not None):
                raise Late(since_s)
            if spent_s <= HANG_S:
                self._costs.add(gpu, spent_s)

    def _waited(self) -> float:
        """Seconds that this thread has waited for a CPU since it asked last."""
        before_s, self._waited_s, self._asked_s = self._waited_s, self._queue.waited_s(), self.clock()
        return max(0.0, self._waited_s - before_s)  # below it the kernel does not say any more

    def _code(self, error: Exception) -> int:
        binding = self.binding
        if isinstance(error, binding.NVMLError):
            return int(error.value)
        mismatch = getattr(binding, "NVMLLibraryMismatchError", None)
        if mismatch is not None and isinstance(error, mismatch):
            return FUNCTION_NOT_FOUND
        return NOT_SUPPORTED  # a wrapper that cannot speak with this library

    def _refused(self, code: int, gpu: int | None) -> Exception:
        if code == UNINITIALIZED:
            return DriverGone(code)
        if code == UNKNOWN:
            self.unknown += 1
        elif code != OK:
            self.answered += 1  # an error with a name is an answer: the driver is there
        return refusal(code, about_gpu=gpu is not None)
