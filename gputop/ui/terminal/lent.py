"""The terminal lent to one command of gputop's own: in the foreground, as a shell would run it, until Enter is read."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gputop
from gputop.safe import programs

# its own folder first, as a folder of this name may be where we are
_START = "import sys; sys.path[:1] = [sys.argv.pop(1)]; from gputop.entry import main; sys.exit(main())"
# a process group of its own, so that Ctrl+C is for it and not for us
_APART: dict[str, Any] = {"process_group": 0} if sys.version_info >= (3, 11) else {"preexec_fn": os.setpgrp}


def lent(arguments: Sequence[str], fd: int = 0) -> int:
    """Run `gputop ARGUMENTS`, and wait until somebody has read what it says; its exit code, negative for a signal.

    Main thread only, while the screen has given the terminal back.
    """
    command = [sys.executable, "-c", _START, str(Path(gputop.__file__).parents[1]), *arguments]
    _say(f"$ gputop {shlex.join(arguments)}\n")
    before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # or taking the terminal back would stop us
    try:
        process = programs.start_chosen(command, stdin=fd, **_APART)
        os.tcsetpgrp(fd, process.pid)
        _until_its_end(process.pid)
        code = process.wait()
        os.tcsetpgrp(fd, os.getpgrp())
    finally:
        signal.signal(signal.SIGTTOU, before)
    _say(f"\nexit code {code}; Enter returns to the screen ")
    while os.read(fd, 4096)[-1:] not in (b"\n", b""):
        pass
    return code


def _until_its_end(pid: int) -> None:
    """Wait for it; a stopped one goes on, as there is no shell that could continue it."""
    while True:
        found = os.waitid(os.P_PID, pid, os.WEXITED | os.WSTOPPED | os.WNOWAIT)
        if found is None or found.si_code in (os.CLD_EXITED, os.CLD_KILLED, os.CLD_DUMPED):
            return
        os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOHANG)
        os.killpg(pid, signal.SIGCONT)


def _say(text: str) -> None:
    sys.__stdout__.write(text)  # type: ignore[union-attr]
    sys.__stdout__.flush()  # type: ignore[union-attr]
