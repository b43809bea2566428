"""Entry point: orders sys.path before any other import, so that a job's PYTHONPATH cannot replace modules.

A job's folder may contain its own `dataclasses.py` or `psutil.py`. If PYTHONPATH provides gputop, it is still found
with its dependencies, but never in place of the standard library.
"""

# no `from __future__ import annotations`: that is a module, too
import os
import sys


def main() -> int:
    """Run the command line; returns the exit code."""
    _put_behind()
    import signal

    # during imports Ctrl+C ends the process directly: as an exception it would print a traceback, or be swallowed by a
    # callback of the import machinery
    interrupts = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if interrupts:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from gputop.cli import main as run

    if interrupts:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return run()


def _put_behind() -> None:
    """Order sys.path: Python's own folders, gputop's, installed packages, the job's.

    The job's are those of PYTHONPATH and the first entry: the current folder, or the script's.
    """
    jobs = set() if sys.flags.ignore_environment else {_whole(part) for part in _path().split(os.pathsep)}
    if sys.path and not getattr(sys.flags, "safe_path", False):
        jobs.add(_whole(sys.path[0]))
    own = os.path.dirname(os.path.abspath(os.__file__))
    jobs -= {own, os.path.join(own, "lib-dynload")}
    home = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    python: list[str] = []
    installed: list[str] = []
    rest: list[str] = []
    for entry in sys.path:
        whole = _whole(entry)
        if whole in jobs and whole != home:
            rest.append(entry)
        elif whole == own or whole.startswith(own + os.sep + "lib-dynload") or whole.endswith(".zip"):
            python.append(entry)
        else:
            installed.append(entry)
    if home in jobs:  # before installed packages: dependencies shipped with this gputop fit it
        installed.sort(key=lambda entry: _whole(entry) != home)
    sys.path[:] = [*python, *installed, *rest]
    for name, module in list(sys.modules.items()):  # a sitecustomize may have imported the job's module already
        file = getattr(module, "__file__", None)
        if name in sys.stdlib_module_names and file and os.path.dirname(os.path.abspath(file)) in jobs:
            del sys.modules[name]


def _path() -> str:
    return os.environ.get("PYTHONPATH", "")


def _whole(entry: str) -> str:
    try:
        return os.path.abspath(entry)
    except OSError:  # the current folder is gone
        return entry
