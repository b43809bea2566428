"""How a process was started, for commands that start it in another way; secrets are masked in them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from gputop.model import Job, Process
from gputop.safe.text import redact_argv

_LONGEST = 120  # characters
_USUAL = ("python", "train.py")
_PYTHON = re.compile(r"(?:.*/)?(?:python|pypy)[\d.]*t?(?:-dbg)?", re.DOTALL)
# -m, -c, -W and -X, behind flags in the same word or not, and what follows in it
_TAKES_VALUE = re.compile(r"(?:-[a-zA-Z]*?([mcWX])|--check-hash-based-pycs)(.*)", re.DOTALL)


def started(process: Process) -> str:
    """Its command line as a shell takes it, the end of a long one left out; where nobody knows it, a usual one."""
    return _typed(_words(process), least=2)


def starts_all(process: Process, job: Job | None) -> bool:
    """Whether its command line alone starts what runs: what a launcher or a notebook made is a part of more."""
    if not process.command or (process.world_size or 1) > 1:
        return False
    if job is None:
        return True
    first = not job.members or job.members[0] == process.identity
    return first and len(job.ranks) <= 1 and job.launcher in (None, "python")


def started_for_each_gpu(process: Process, count: int) -> str:
    """The same program as so many ranks on this machine."""
    program = _program(_words(process))
    words = ("torchrun", f"--nproc_per_node={count}", *program)
    return _typed(words, least=4 if program[0].startswith("-") else 3)


def _words(process: Process) -> tuple[str, ...]:
    words = process.command
    if len(words) == 1:  # a title that was written over the arguments
        words = tuple(words[0].split())
    return redact_argv(words) or _USUAL


def _typed(words: Sequence[str], least: int) -> str:
    """Cut between two words, after the least that say what runs."""
    quoted = [shlex.quote(word) for word in words]
    kept = len(quoted)
    while kept > least and len(" ".join(quoted[:kept])) > _LONGEST:
        kept -= 1
    return " ".join((*quoted[:kept], "...") if kept < len(quoted) else quoted)


def _program(words: Sequence[str]) -> tuple[str, ...]:
    """What torchrun takes: it starts an interpreter of its own, and neither code nor what comes from a pipe."""
    if not _PYTHON.fullmatch(words[0]):
        return ("--no-python", *words)
    return program(words) or _USUAL[1:]


def program(words: Sequence[str]) -> tuple[str, ...]:
    """What an interpreter of Python runs, and its arguments: a script, or -m and a module.

    Nothing where it runs code or what comes from a pipe, and where the first word is no interpreter.
    """
    if not words or not _PYTHON.fullmatch(words[0]):
        return ()
    rest = list(words[1:])
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        if found := _TAKES_VALUE.fullmatch(option):
            value = found[2] or (rest.pop(0) if rest else "")
            if found[1] == "m" and value:
                return ("-m", value, *rest)
        if option == "-" or (found and found[1] == "c"):
            return ()
    return tuple(rest)
