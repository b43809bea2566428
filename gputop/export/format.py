"""The interface of an export format, and the removal of data that must not leave the machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol, TextIO

from gputop.model import Frame, Process
from gputop.monitor import Update
from gputop.safe.text import redact_argv


def redacted(frame: Frame) -> Frame:
    """The frame with apparent secrets masked in its command lines."""
    return replace(frame, processes=tuple(masked(process) for process in frame.processes))


def masked(process: Process) -> Process:
    """A process with apparent secrets masked in its command line."""
    command = redact_argv(process.command)
    return process if command == process.command else replace(process, command=command)


def without_commands(frame: Frame) -> Frame:
    """The frame with each process's name in place of its command line."""
    return replace(frame, processes=tuple(_name_only(process) for process in frame.processes))


def _name_only(process: Process) -> Process:
    only = (process.name,) if process.command else ()
    return process if process.command == only else replace(process, command=only)


Write = Callable[[Update], None]


class Format(Protocol):
    """Opens a format on a stream; the result writes one update at a time."""

    def __call__(self, out: TextIO, *, ascii: bool = False) -> Write:
        """A writer; with `ascii` its output is ASCII only."""
        ...
