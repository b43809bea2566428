"""Who measures for the lab: the children of its commands."""

from __future__ import annotations

import os
from pathlib import Path


def children(file: str) -> list[int]:
    """Processes that still measure this file."""
    found = []
    for name in filter(str.isdecimal, os.listdir("/proc")):
        try:
            words = Path(f"/proc/{name}/cmdline").read_bytes()
        except OSError:
            continue
        if b"child_" in words and file.encode() in words:
            found.append(int(name))
    return found
