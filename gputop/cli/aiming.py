"""A process named on the command line, taken hold of as the screen does it, and an action on it followed to its end."""

from __future__ import annotations

import argparse
import sys
from itertools import islice
from pathlib import Path
from queue import SimpleQueue
from threading import Event
from typing import TYPE_CHECKING, Any

from gputop.cli.line import FAILED, OK, USAGE, Failure
from gputop.cli.opening import open_source
from gputop.safe.hangup import on_ending

if TYPE_CHECKING:
    from gputop.actions import Action, Result, Rights, Run
    from gputop.config import Settings
    from gputop.model import Frame, Process

_LOOKS = 3  # on a busy machine a command line is read after the first


def aimed(args: argparse.Namespace, settings: Settings) -> tuple[Frame, Process, Rights]:
    """The process with the pid of the command line, the frame it is in, and what may be done."""
    from gputop.actions import Rights
    from gputop.source import Interest

    pid, spec = args.pid, getattr(args, "source", "live")
    if pid <= 0:
        raise Failure(f"{pid} is no pid", USAGE)
    if spec == "live" and not Path(f"/proc/{pid}").is_dir():
        raise Failure(f"there is no process {pid} that you may see")
    source = open_source(spec, settings)
    source.interest = Interest(pids=frozenset({pid}))
    for frame in islice(source.frames(Event()), _LOOKS):
        process = next((process for process in frame.processes if process.pid == pid), None)
        if process is None or process.command:
            break
    if process is None:
        raise Failure(f"there is no process {pid} that you may see: it has ended, or {pid} is a thread of another")
    return frame, process, Rights(readonly=settings.readonly, elsewhere=source.elsewhere)


def followed(action: Action[Any], frame: Frame, process: Process, rights: Rights, options: Any) -> tuple[Result, int]:
    """Run an action to its end, with its progress on a terminal; the result and the exit code.

    Ctrl+C, SIGTERM and SIGHUP cancel it, and what it has is kept; a second one does not wait for that.
    """
    from gputop.actions import Hold

    arrived: SimpleQueue[Run | int] = SimpleQueue()
    on_ending(lambda number, _: arrived.put(number))
    hold = Hold(frame, process, rights)
    run = action.run(hold, options, arrived.put)
    hold.close()
    ended = 0
    while True:
        what = arrived.get()
        if isinstance(what, int):
            if ended:
                raise Failure("ended before it was done", 128 + what)
            ended = what
            run.cancel()
        elif what.result is not None:
            _say("")
            code = OK if what.result.good else FAILED
            return what.result, 128 + ended if ended else code
        else:
            _say(what.line)


def _say(line: str) -> None:
    """The progress, in one line of a terminal that is written over; nothing elsewhere."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{line}")
        sys.stderr.flush()
