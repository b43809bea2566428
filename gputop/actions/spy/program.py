"""The py-spy that is run: beside our own interpreter or on PATH."""

from __future__ import annotations

import os
import shlex
import sys

from gputop.safe import programs
from gputop.safe.attach import Barred

NAME = "py-spy"


def find() -> str | Barred:
    """The absolute path of py-spy, or why none is run."""
    try:
        return programs.find(NAME, os.environ.get("PATH", programs.PATH), first=os.path.dirname(sys.executable))
    except programs.NotFound as why:
        return Barred(str(why), f"{shlex.quote(sys.executable)} -m pip install py-spy")
    except programs.NotRun as why:
        return Barred(str(why), "sudo python3 -m pip install py-spy" if os.geteuid() == 0 else None)
