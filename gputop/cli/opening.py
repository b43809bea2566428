"""The source that a --source spelling names."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from gputop.cli.line import USAGE, Failure
from gputop.safe.text import clean

if TYPE_CHECKING:
    from gputop.config import Settings
    from gputop.source import Source


def open_source(spec: str, settings: Settings, *, pace: bool = True, patience_s: float | None = None) -> Source:
    """The source a --source spelling names. Without pace what is not live runs to its end as fast as it can.

    `patience_s` is how long a first frame waits for a driver that is slow to open; else not for long.
    """
    if spec == "live":
        from gputop.collect.live import DRIVER_PATIENCE_S, Live

        return Live(
            interval_s=settings.interval_s,
            nvml=settings.nvml,
            gpm=settings.gpm,
            driver_patience_s=DRIVER_PATIENCE_S if patience_s is None else patience_s,
        )
    kind, _, name = spec.partition(":")
    if is_recorded(spec):
        return open_recording(spec, pace=pace)
    if kind == "demo" and name:
        from gputop.demo import open_demo

        try:
            return open_demo(name, pace=pace, interval_s=settings.interval_s)
        except ValueError as error:
            raise Failure(str(error), USAGE) from None
    raise Failure(
        f"{clean(spec)!r} is no file that can be seen, nor live, demo:NAME or -; `gputop demo --list` names the demos",
        USAGE,
    )


def is_recorded(spec: str) -> bool:
    """Whether a --source spelling names a recording: a file, or - for standard input."""
    return spec == "-" or "/" in spec or os.path.exists(spec)  # noqa: PTH110  Path raises where a folder is closed


def open_recording(spec: str, *, pace: bool) -> Source:
    """A recorded file, or - for a stream on standard input; with pace the keyboard then is the terminal's."""
    from gputop.safe.files import Refused

    try:
        if spec != "-":
            from gputop.record.recording import Recording

            return Recording(spec, pace=pace)
        from gputop.record.stream import Stream

        if os.isatty(0):
            raise Failure("standard input is a terminal: use it as in gputop record - | gputop replay -", USAGE)
        stream = os.dup(0)
        if pace:
            _keyboard()
        return Stream(stream, pace=pace)
    except Refused as refused:
        raise Failure(str(refused)) from None


def uncollected(error: Exception) -> Exception:
    """What to raise for what ended a source: a failure if the machine or the file said no, else the mistake itself."""
    from gputop.record.parse import Newer
    from gputop.safe.files import Refused

    known = isinstance(error, (OSError, Refused, Newer))
    return Failure(f"collection failed: {type(error).__name__}: {clean(str(error))}") if known else error


def say_damage(source: Source) -> None:
    """Say on standard error what of a recording could not be read: what was made of it may be less than was seen."""
    from gputop.source import Recorded

    if isinstance(source, Recorded) and source.damage:
        sys.stderr.write(f"gputop: {source.damage}\n")


def _keyboard() -> None:
    """Standard input was a pipe: from here on it is the terminal, if there is one."""
    try:
        terminal = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return  # the screen says that there is none
    os.dup2(terminal, 0)
    os.close(terminal)
