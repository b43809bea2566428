"""What an export format is, and what must not leave the machine in one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol, TextIO

from gputop.model import Frame, Process
from gputop.monitor import Update
from gputop.safe.text import redact_argv


def redacted(frame: Frame) -> Frame:
    """The frame with whatever looks like a secret masked in its command lines."""
    return replace(frame, processes=tuple(masked(process) for process in frame.processes))


def masked(process: Process) -> Process:
    """A process with whatever looks like a secret masked in its command line."""
    command = redact_argv(process.command)
    return process if command == process.command else replace(process, command=command)


def without_commands(frame: Frame) -> Frame:
    """The frame with the name of each process in place of its command line."""
    return replace(frame, processes=tuple(_named(process) for process in frame.processes))


def _named(process: Process) -> Process:
    only = (process.name,) if process.command else ()
    return process if process.command == only else replace(process, command=only)


Write = Callable[[Update], None]


class Format(Protocol):
    """Opens a format on a stream: what comes back writes one update at a time."""

    def __call__(self, out: TextIO, *, ascii: bool = False) -> Write:
        """A writer; with `ascii` it writes nothing but ASCII."""
        ...
