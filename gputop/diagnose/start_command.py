"""The command line of a process, for commands that start it differently; secrets are masked."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from gputop.model import Job, Process
from gputop.safe.text import redact_argv

_LONGEST = 120  # characters
_USUAL = ("python", "train.py")
_PYTHON = re.compile(r"(?:.*/)?(?:python|pypy)[\d.]*t?(?:-dbg)?", re.DOTALL)
# -m, -c, -W and -X, with or without other flags in the same word, and an attached value
_TAKES_VALUE = re.compile(r"(?:-[a-zA-Z]*?([mcWX])|--check-hash-based-pycs)(.*)", re.DOTALL)


def start_command(process: Process) -> str:
    """Its command line quoted for a shell, truncated if long; a typical one if unknown."""
    return _shell_line(_words(process), least=2)


def is_whole_command(process: Process, job: Job | None) -> bool:
    """Whether its command line alone starts the program; a launcher or notebook starts more."""
    if not process.command or (process.world_size or 1) > 1:
        return False
    if job is None:
        return True
    first = not job.members or job.members[0] == process.identity
    return first and len(job.ranks) <= 1 and job.launcher in (None, "python")


def torchrun_command(process: Process, count: int) -> str:
    """The command that runs the same program with `count` ranks on this machine."""
    program = _program(_words(process))
    words = ("torchrun", f"--nproc_per_node={count}", *program)
    return _shell_line(words, least=4 if program[0].startswith("-") else 3)


def _words(process: Process) -> tuple[str, ...]:
    words = process.command
    if len(words) == 1:  # a process title written over the arguments
        words = tuple(words[0].split())
    return redact_argv(words) or _USUAL


def _shell_line(words: Sequence[str], least: int) -> str:
    """Truncate between two words, after the `least` words that identify the program."""
    quoted = [shlex.quote(word) for word in words]
    kept = len(quoted)
    while kept > least and len(" ".join(quoted[:kept])) > _LONGEST:
        kept -= 1
    return " ".join((*quoted[:kept], "...") if kept < len(quoted) else quoted)


def _program(words: Sequence[str]) -> tuple[str, ...]:
    """The program as torchrun takes it: it starts its own interpreter, and accepts neither code nor standard input."""
    if not _PYTHON.fullmatch(words[0]):
        return ("--no-python", *words)
    return program(words) or _USUAL[1:]


def program(words: Sequence[str]) -> tuple[str, ...]:
    """What a Python interpreter runs, with arguments: a script, or -m and a module.

    Empty if it runs code or standard input, or if the first word is not an interpreter.
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
