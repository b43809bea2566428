"""What must not leave the machine in an export: secrets in command lines."""

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
