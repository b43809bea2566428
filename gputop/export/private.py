"""What must not leave the machine in an export: secrets in command lines, or command lines altogether."""

from __future__ import annotations

from dataclasses import replace

from gputop.model import Frame, Process
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
