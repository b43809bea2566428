"""The commands that prepare jobs for traces: one starts a command, one prints what a shell needs for all of them."""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import sys
from typing import TYPE_CHECKING, NoReturn

from gputop.cli.line import OK, USAGE, Command, Failure
from gputop.safe import programs

if TYPE_CHECKING:
    from gputop.config import Settings

_NOT_FOUND, _NOT_RUN = 127, 126  # as the shells say it
_MOST_THREADS = 4096


def run(args: argparse.Namespace, settings: Settings) -> int:  # noqa: ARG001
    """Become the command: its pid, its signals, its output and its exit code are its own."""
    from gputop import launch

    argv = args.argv[1:] if args.argv[:1] == ["--"] else args.argv
    if not argv:
        raise Failure("what is to be started? gputop run -- python train.py", USAGE)
    if why := launch.usable():
        raise Failure(why)
    chosen = launch.settings(os.environ, args.threads, meter=args.meter, watch_nan=args.watch_nan)
    told = " ".join(f"{name}={shlex.quote(value)}" for name, value in chosen.items())
    sys.stderr.write(f"gputop: starts {argv[0]} with {told or 'what is set already'}\n")
    sys.stderr.flush()
    # a Python ignores it, and what is ignored stays so across exec
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    _become(argv, {**os.environ, **chosen})


def _become(argv: list[str], environ: dict[str, str]) -> NoReturn:
    try:
        programs.become(argv, environ)
    except OSError as error:
        code = _NOT_FOUND if isinstance(error, FileNotFoundError) else _NOT_RUN
        raise Failure(f"{argv[0]}: {error.strerror}", code) from None


def env(args: argparse.Namespace, settings: Settings) -> int:  # noqa: ARG001
    """Print the lines."""
    from gputop import launch

    if why := launch.usable():
        raise Failure(why)
    print("\n".join(launch.lines(args.threads, meter=args.meter)))
    return OK


def threads(text: str) -> int:
    """A number of threads."""
    if not text.isdecimal() or not 1 <= int(text) <= _MOST_THREADS:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of threads: 1 to {_MOST_THREADS}")
    return int(text)


def _threads(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--threads", type=threads, metavar="N", help="threads of OpenMP, MKL, OpenBLAS and NumExpr in each process"
    )

    parser.add_argument(
        "--no-meter", dest="meter", action="store_false", help="do not measure how long each optimizer step takes"
    )


def _run_arguments(parser: argparse.ArgumentParser) -> None:
    _threads(parser)
    parser.add_argument(
        "--watch-nan",
        action="store_true",
        help="report a loss or gradient norm noted by gputop.note that is NaN or infinite",
    )
    parser.add_argument("argv", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="what to start, as it is")


COMMANDS = (
    Command(
        name="run", help="start a job so that it can be traced while it runs", run=run, arguments=_run_arguments
    ),
    Command(
        name="env", help="print lines for a shell profile or Slurm prolog that do so for every job", run=env,
        arguments=_threads,
    ),
)  # fmt: skip
