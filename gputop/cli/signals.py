"""Send a signal to processes by PID and start time: what the screen of another host does, and scripts can."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from gputop.cli.options import FAILED, OK, USAGE, CliCommand, Failure

if TYPE_CHECKING:
    from gputop.actions.target import Refusal, Rights, TargetProcess
    from gputop.config import Settings

_NAMES = ("INT", "TERM", "KILL", "USR1", "STOP", "CONT")
_MOST = 4096  # processes


def send(args: argparse.Namespace, settings: Settings) -> int:
    """Send to each process, and say for each whether it was sent: 1 if it was not sent to all."""
    from gputop.actions.signals import BY_NAME
    from gputop.actions.target import Rights, TargetProcess, attempt, own_processes
    from gputop.safe.text import clean

    choice = BY_NAME[args.signal]
    rights = Rights(readonly=settings.readonly)
    if rights.why_not:
        raise Failure(f"nothing sent: {rights.why_not}", USAGE)
    if len(args.process) > _MOST:
        raise Failure(f"more than {_MOST} processes", USAGE)
    carriers = own_processes()
    code = OK
    for given in args.process:
        held = _held(given, rights, carriers)
        outcome = attempt(held, False, "nothing sent", lambda one: one.signal(choice.number))
        name = held.process.name if isinstance(held, TargetProcess) else ""
        print(clean(f"{choice.name} sent to {held.pid} ({name})" if outcome.kind == "done" else outcome.text))
        code = code if outcome.kind == "done" else FAILED
        if isinstance(held, TargetProcess):
            held.close()
    return code


def _held(given: tuple[int, int | None], rights: Rights, carriers: dict[int, str]) -> TargetProcess | Refusal:
    """A handle on the process that has this PID now, if it started then."""
    from gputop.actions.target import Refusal, open_target
    from gputop.model import Process
    from gputop.safe.identity import read_stat

    pid, started_ticks = given
    stat = read_stat(pid)
    if stat is None or stat.started_ticks is None:
        return Refusal(pid, "it exited", gone=True)
    if started_ticks is not None and stat.started_ticks != started_ticks:
        return Refusal(pid, "it exited; another process has its PID now", gone=True)
    try:
        uid = Path(f"/proc/{pid}").stat().st_uid
    except OSError:
        return Refusal(pid, "it exited", gone=True)
    process = Process(pid=pid, started_ticks=stat.started_ticks, name=stat.comm, uid=uid)
    return open_target(process, rights, carriers)


def _process(text: str) -> tuple[int, int | None]:
    """PID, or PID:TICKS with its start time."""
    pid, _, ticks = text.partition(":")
    if not pid.isdecimal() or (ticks and not ticks.isdecimal()) or len(text) > 40:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a process: use PID, or PID:START with its start time in ticks"
        )
    return int(pid), int(ticks) if ticks else None


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("signal", metavar="SIGNAL", choices=_NAMES, help=f"one of {', '.join(_NAMES)}")
    parser.add_argument(
        "process", metavar="PID[:START]", type=_process, nargs="+",
        help="process; with its start time (field 22 of /proc/PID/stat) never another one that has its PID",
    )  # fmt: skip


COMMANDS = (
    CliCommand(
        name="signal",
        help="send a signal to processes, identified by start time",
        examples=("gputop signal TERM $(pgrep -nf train.py)", "gputop signal CONT $(pgrep -nf train.py)"),
        run=send,
        arguments=_arguments,
    ),
)
