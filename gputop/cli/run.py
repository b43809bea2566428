"""Commands that prepare jobs for tracing through environment variables alone."""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from gputop.cli.options import OK, USAGE, CliCommand, Failure
from gputop.safe import programs

if TYPE_CHECKING:
    from gputop.config import Settings


INJECT = str(Path(__file__).resolve().parents[1] / "inject")
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")


METER = "GPUTOP_METER"  # 0: no step meter
WATCH_NAN = "GPUTOP_WATCH_NAN"  # 1: a non-finite loss is an event


def agent_settings(
    environ: Mapping[str, str], threads: int | None = None, *, meter: bool = True, watch_nan: bool = False
) -> dict[str, str]:
    """The variables to set: our folder first on PYTHONPATH, threads of numeric libraries, what to measure."""
    path = environ.get("PYTHONPATH", "")
    entries = path.split(os.pathsep)
    wanted = {} if INJECT in entries else {"PYTHONPATH": f"{INJECT}{os.pathsep}{path}" if path else INJECT}
    wanted |= dict.fromkeys(THREADS, str(threads)) if threads else {}
    return wanted | ({} if meter else {METER: "0"}) | ({WATCH_NAN: "1"} if watch_nan else {})


def lines(threads: int | None = None, *, meter: bool = True) -> list[str]:
    """The same as lines for a shell profile or a Slurm prolog; an empty PYTHONPATH adds no empty entry."""
    quoted = "".join(f"\\{each}" if each in '\\"$`' else each for each in INJECT)
    told = [f'export PYTHONPATH="{quoted}${{PYTHONPATH:+:$PYTHONPATH}}"']
    told += [f"export {name}={threads}" for name in THREADS] if threads else []
    return told if meter else [*told, f"export {METER}=0"]


def usable() -> str | None:
    """Why our folder cannot be on PYTHONPATH; None if it can."""
    if os.pathsep in INJECT:
        return f"the path of gputop contains {os.pathsep}, which PYTHONPATH cannot hold; install it in another folder"
    return None


_NOT_FOUND, _NOT_RUN = 127, 126  # as shells do
_MOST_THREADS = 4096


def run(args: argparse.Namespace, settings: Settings) -> int:  # noqa: ARG001
    """Replace this process by the command: PID, signals, output and exit code are the command's."""

    argv = args.argv[1:] if args.argv[:1] == ["--"] else args.argv
    if not argv:
        raise Failure("the command is missing: gputop run -- python train.py", USAGE)
    if why := usable():
        raise Failure(why)
    chosen = agent_settings(os.environ, args.threads, meter=args.meter, watch_nan=args.watch_nan)
    told = " ".join(f"{name}={shlex.quote(value)}" for name, value in chosen.items())
    sys.stderr.write(f"gputop: starting {argv[0]} with {told or 'the environment as it is'}\n")
    sys.stderr.flush()
    # Python ignores it, and exec would keep that
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

    if why := usable():
        raise Failure(why)
    print("\n".join(lines(args.threads, meter=args.meter)))
    return OK


def threads(text: str) -> int:
    """A number of threads."""
    if not text.isdecimal() or not 1 <= int(text) <= _MOST_THREADS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of threads from 1 to {_MOST_THREADS}")
    return int(text)


def _threads(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--threads", type=threads, metavar="N", help="OpenMP, MKL, OpenBLAS and NumExpr threads per process"
    )

    parser.add_argument("--no-meter", dest="meter", action="store_false", help="do not time optimizer steps")


def _run_arguments(parser: argparse.ArgumentParser) -> None:
    _threads(parser)
    parser.add_argument(
        "--watch-nan",
        action="store_true",
        help="report a NaN or infinite loss or gradient norm passed to gputop.note",
    )
    parser.add_argument("argv", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="command to run, unchanged")


COMMANDS = (
    CliCommand(
        name="run",
        help="start a job that can be traced while it runs",
        examples=("gputop run -- python train.py", "gputop run --threads 4 -- python train.py"),
        run=run,
        arguments=_run_arguments,
    ),
    CliCommand(
        name="env",
        help="print exports that make every job traceable",
        examples=(
            'eval "$(gputop env)"                 # in a shell profile or Slurm prolog',
            "gputop env --threads 4 > gputop.sh",
        ),
        run=env,
        arguments=_threads,
    ),
)
