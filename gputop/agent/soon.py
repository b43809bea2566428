"""A call made by the main thread as soon as it runs Python, between two bytecodes, as a signal handler is."""

from __future__ import annotations

from collections import deque
from typing import Any, Callable

_calls: deque[Callable[[], None]] = deque()
_entry: Any = None


def on_main_thread(call: Callable[[], None]) -> None:
    """Have it called once; it must not raise. Py_AddPendingCall: unlike a signal it interrupts no system call."""
    global _entry
    import ctypes  # torch has loaded it long ago

    if _entry is None:  # kept for good: the interpreter may still hold it
        _entry = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(_run)
    _calls.append(call)
    ctypes.pythonapi.Py_AddPendingCall(_entry, None)


def _run(_: Any) -> int:
    try:
        _calls.popleft()()
    except Exception:
        pass
    return 0
