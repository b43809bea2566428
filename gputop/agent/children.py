"""How a forked child of a process that was traced ends. Kineto has a thread since then, and waits for it at the end of
the program: in a child, which has no such thread, for ever.

So a child that ends as programs do, by exit(3), leaves by _exit(2) before it comes to that: with its own exit code,
all that it had printed written out. A child of multiprocessing does that anyway.
"""

from __future__ import annotations


def leave_early() -> None:
    """Have this process do so; what it registers with atexit(3) from now on is still called before."""
    import ctypes  # torch has loaded it long ago

    libc = ctypes.CDLL(None)
    # the last that is registered is called first; no Python in them, there is none any more then
    libc.on_exit(ctypes.cast(libc._exit, ctypes.c_void_p), None)
    getattr(libc, "__cxa_atexit")(ctypes.cast(libc.fflush, ctypes.c_void_p), None, None)
