"""gputop doctor: what works on this machine, and what would unlock the rest."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from gputop.cli.options import FAILED, OK, CliCommand, Failure, ascii_only, encoding, json_flag

if TYPE_CHECKING:
    from gputop.config import Settings


def doctor(args: argparse.Namespace, settings: Settings) -> int:
    """Print the report; a limitation is no failure, a broken check is."""
    from gputop.doctor import DoctorContext, as_json, render, run_checks

    if args.pid is not None and not Path(f"/proc/{args.pid}").is_dir():
        raise Failure(f"no process with PID {args.pid} is visible to you")
    size = shutil.get_terminal_size() if sys.stdout.isatty() else None
    machine = DoctorContext(
        pid=args.pid,
        nvml=settings.nvml,
        encoding=encoding(),
        terminal=(size.columns, size.lines) if size else None,
    )
    report = run_checks(machine, os.uname().nodename)
    if args.as_json:
        print(json.dumps(as_json(report)))
    else:
        print(render(report, ascii=ascii_only(settings)), end="")
    return FAILED if report.failed else OK


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--pid", type=int, metavar="PID", help="also check this process: its limits and its Python")
    json_flag(parser)


COMMANDS = (
    CliCommand(
        name="doctor",
        help="check what gputop can read, and how to unlock more",
        examples=("gputop doctor", "gputop doctor --pid $(pgrep -nf train.py)"),
        run=doctor,
        arguments=_arguments,
    ),
)
