"""How this program was started, for commands that a person is to type."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

# where every sudo looks for a name; what pipx, uv and `pip install --user` install lies elsewhere, and so, for some
# systems, does /usr/local/bin
_KNOWN_TO_SUDO = frozenset({"/usr/bin", "/bin", "/usr/sbin", "/sbin"})
# as it was at the start: a relative path is of the folder of then
_STARTED = str(Path(sys.argv[0]).absolute()) if "/" in sys.argv[0] else sys.argv[0]


def as_root(*arguments: str, started: str | None = None, python: str | None = None) -> str:
    """`sudo gputop doctor`, or with the path of this very program where sudo would not find it by its name.

    `started` and `python` are what this process was started as, sys.argv[0] and sys.executable.
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
