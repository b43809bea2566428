"""How a process is written down with what was taken of it: secrets in its command line are masked."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import Any

from gputop import words
from gputop.model import Process
from gputop.safe.text import clean, redact_argv


def command(process: Process) -> str:
    """Its command line, by which later ones are told to be of the same program."""
    return " ".join(redact_argv(process.command)) or process.name


def typed(process: Process) -> str:
    """Its command line as a shell takes it, secrets masked; empty where it is not known."""
    return clean(shlex.join(redact_argv(process.command)), 1 << 20)


def described(process: Process) -> dict[str, Any]:
    """Who it was."""
    return {
        "pid": process.pid,
        "started_ticks": process.started_ticks,
        "command": command(process),
        "short": words.line(replace(process, command=redact_argv(process.command))),
        "user": process.user,
        "job": process.job,
        "rank": process.rank,
    }
