"""How a command is started so that gputop can look into it later: by its environment alone, never by wrapping it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

INJECT = str(Path(__file__).resolve().parent / "inject")
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")


METER = "GPUTOP_METER"  # 0: without the step meter
WATCH_NAN = "GPUTOP_WATCH_NAN"  # 1: a loss that is no finite number is an event


def settings(
    environ: Mapping[str, str], threads: int | None = None, *, meter: bool = True, watch_nan: bool = False
) -> dict[str, str]:
    """The variables to set: our folder first on PYTHONPATH, the threads of the numeric libraries, what is measured."""
    path = environ.get("PYTHONPATH", "")
    entries = path.split(os.pathsep)
    wanted = {} if INJECT in entries else {"PYTHONPATH": f"{INJECT}{os.pathsep}{path}" if path else INJECT}
    wanted |= dict.fromkeys(THREADS, str(threads)) if threads else {}
    return wanted | ({} if meter else {METER: "0"}) | ({WATCH_NAN: "1"} if watch_nan else {})


def lines(threads: int | None = None, *, meter: bool = True) -> list[str]:
    """The same as lines of a shell profile or of a Slurm prolog; an empty PYTHONPATH gets no empty part."""
    quoted = "".join(f"\\{each}" if each in '\\"$`' else each for each in INJECT)
    told = [f'export PYTHONPATH="{quoted}${{PYTHONPATH:+:$PYTHONPATH}}"']
    told += [f"export {name}={threads}" for name in THREADS] if threads else []
    return told if meter else [*told, f"export {METER}=0"]


def usable() -> str | None:
    """Why our folder cannot stand on PYTHONPATH; None if it can."""
    if os.pathsep in INJECT:
        return f"gputop is installed in a folder with a {os.pathsep} in its name, which PYTHONPATH cannot hold"
    return None
