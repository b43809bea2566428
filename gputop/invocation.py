"""How this program was started, for commands that the user is to type."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

# where every sudo finds programs; pipx, uv and `pip install --user` install elsewhere, as on some systems does
# /usr/local/bin
_KNOWN_TO_SUDO = frozenset({"/usr/bin", "/bin", "/usr/sbin", "/sbin"})
# at the start: a relative path refers to the folder at that time
_STARTED = str(Path(sys.argv[0]).absolute()) if "/" in sys.argv[0] else sys.argv[0]


def as_root(*arguments: str, started: str | None = None, python: str | None = None) -> str:
    """`sudo gputop doctor`, or with this program's path if sudo would not find it by name.

    `started` and `python` are sys.argv[0] and sys.executable of this process.
    """
    started = _STARTED if started is None else started
    python = sys.executable if python is None else python
    folder, _, name = started.rpartition("/")
    program = ["gputop"]
    if name == "gputop" and folder.startswith("/") and folder not in _KNOWN_TO_SUDO:
        program = [started]
    elif started.endswith("gputop/__main__.py") and python:
        program = [python, "-m", "gputop"]
    return shlex.join(["sudo", *program, *arguments])


def as_root_on(hostname: str) -> str:
    """The same for a frame of this host: the path of this program means nothing on another machine."""
    return as_root() if hostname == os.uname().nodename else "sudo gputop"
