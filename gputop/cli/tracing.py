"""The command that traces a training that runs, and says what the trace says."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from gputop.cli.aiming import aimed, answered, followed, ranked
from gputop.cli.line import USAGE, Command, Failure, duration, plain

if TYPE_CHECKING:
    from gputop.actions.tracing import Traced
    from gputop.config import Settings


def trace(args: argparse.Namespace, settings: Settings) -> int:
    """Record some steps of a process, of all ranks of its job at once; then explain them."""
    from gputop.actions import Scope
    from gputop.actions.tracing import TRACE, Order, Traced
    from gputop.actions.tracing.order import MOST_STEPS

    if not 1 <= args.steps <= MOST_STEPS:
        raise Failure(f"--steps {args.steps}: 1 to {MOST_STEPS} can be recorded", USAGE)
    frame, process, rights = aimed(args, settings)
    process = ranked(frame, process)
    if barred := answered(process, TRACE.barred, process, rights, frame):
        raise Failure(barred.line)
    order = Order(
        scope=Scope.PROCESS if args.alone else Scope.JOB,
        steps=args.steps,
        shapes=args.shapes,
        stacks=args.stacks,
        memory=args.memory,
        wait_s=args.wait,
        confirmed=frozenset(RISKS) if args.yes else frozenset(),
    )
    result, code = followed(TRACE, frame, process, TRACE.rights(rights), order)
    if not isinstance(result, Traced):
        raise Failure(result.text, code)
    if result.risk is not None:
        raise Failure(f"{result.text}; add --yes to go on")
    if not result.views:
        raise Failure(": ".join((result.text, *result.lines[:1])), code)
    _print(result, plain(settings))
    for line in result.lines:
        sys.stderr.write(f"gputop: {line}\n")
    return code


RISKS = ("cuda-graphs", "remote-exec", "kineto")


def _print(result: Traced, plain: bool) -> None:
    from gputop.page import text
    from gputop.safe.text import to_ascii
    from gputop.trace.told import page, ranks

    pages = [ranks(result.views)] if len(result.views) > 1 else []
    pages += [page(view) for view in result.views]
    print("\n".join(text(each, ascii=plain) for each in pages))
    said = dict.fromkeys(fact.text for fact in result.notes)
    if said:
        print(
            "\n".join(("What the program says of itself", *(f"  {to_ascii(each) if plain else each}" for each in said)))
        )
        print()
    for file in result.files:
        print(file)
    print("open in https://ui.perfetto.dev; again with: gputop explain", Path(result.files[0]).parent / "*")


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pid", type=int, metavar="PID", help="any process of a job: a rank, a loader, its launcher")
    parser.add_argument("--steps", type=int, default=3, metavar="N", help="how many steps (3, at most 100)")
    parser.add_argument("--wait", type=duration, default=30.0, metavar="T", help="how long for a step to end (30s)")
    parser.add_argument("--shapes", action="store_true", help="the shapes of inputs too")
    parser.add_argument("--stacks", action="store_true", help="Python stacks too: the job is slower meanwhile")
    parser.add_argument("--memory", action="store_true", help="allocations too")
    who = parser.add_mutually_exclusive_group()
    who.add_argument("--job", action="store_true", help="all ranks of its job (this is the default)")
    who.add_argument("--alone", action="store_true", help="only this process, not all ranks of its job")
    parser.add_argument("--yes", action="store_true", help="go on where something may harm the job, after reading what")


COMMANDS = (
    Command(
        name="trace",
        help="record some steps of a training that runs with torch.profiler, and say what they show",
        run=trace,
        arguments=_arguments,
    ),
)
