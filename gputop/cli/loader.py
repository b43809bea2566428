"""The command that measures a DataLoader in the user's own Python."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gputop import __version__
from gputop.cli.line import FAILED, OK, USAGE, Command, Failure, Parser, duration, json_flag, plain
from gputop.safe import hangup
from gputop.safe.text import clean

if TYPE_CHECKING:
    from gputop.config import Settings
    from gputop.lab.loading import Plan

_KIND = "loader"
_MOST_WORKERS = 1024
_LONGEST = 400  # characters of what a child says
_SETTINGS = 5  # measured after the numbers of workers, for the time that is left


def loader(args: argparse.Namespace, settings: Settings) -> int:
    """Measure, print what was reached, and keep it."""
    from gputop.lab.child import Trouble
    from gputop.lab.loading import Plan, sweep

    if args.last:
        return _last(args, settings)
    factory, python = _wanted(args)
    cpus, jobs = _host(settings)
    plan = Plan(cpus=cpus, jobs=jobs, workers=args.workers, batches=args.batches)
    result: dict[str, Any] = {"version": 1, "gputop": __version__, "at_s": time.time(), "factory": factory.name}
    result |= {"args": list(factory.args), "python": python, "cpus": cpus, "jobs": jobs}
    trouble: Trouble | None = None
    child = Path(__file__).parents[1] / "lab" / "child_loader.py"
    asked = _Asked([python, str(child)], {**factory.request(), "batch_size": args.batch_size}, args, plan)
    code = OK
    hangup.on_ending(_interrupt)  # or what a worker hangs in would outlive us
    try:
        sweep(asked, plan, result)
    except Trouble as error:
        trouble, code = error, FAILED
        result["ended"] = f"{asked.title if asked.ready else factory.name}: {clean(str(error), _LONGEST)}"
    except _Interrupted as error:
        code = 128 + error.number
        result["ended"] = f"{asked.title}: interrupted"
    asked.clear()
    if result.get("workers"):
        _print(args, settings, result)
        _keep(settings, result)
    if code:
        sys.stdout.flush()
        if trouble is not None and args.verbose:
            sys.stderr.write(trouble.trace)
        sys.stderr.write(f"gputop: {result['ended']}\n")
    return code


class _Interrupted(KeyboardInterrupt):
    """Ctrl+C, a hangup, or a request to end."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


def _interrupt(number: int, frame: object) -> None:  # noqa: ARG001
    raise _Interrupted(number)


class _Asked:
    """Asks the child for one setting after the other, and shows on a terminal how far it is."""

    def __init__(self, command: list[str], request: Mapping[str, Any], args: argparse.Namespace, plan: Plan) -> None:
        self.title, self.ready = "the first setting", False  # whether the function has made what is measured
        self._command, self._request, self._args = command, request, args
        self._count, self._took_s = 0, 0.0
        self._whole = len(plan.counts) + _SETTINGS
        self._tty = sys.stderr.isatty()

    def __call__(self, title: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
        from gputop.lab.child import ask

        self.title, self.ready = title, False
        begin = time.monotonic()
        ready: dict[str, Any] = {}

        def hear(line: Mapping[str, Any]) -> None:
            if line.get("kind") == "ready":
                ready.update(line)
                self.ready = True
            self._show(title, int(line.get("done") or 0), int(request["batches"]), time.monotonic() - begin)

        quiet = self._count > 0 and not self._args.verbose  # the same warnings once are enough
        answer = ask(self._command, {**self._request, **request}, self._args.timeout, hear, quiet=quiet)
        self._count, self._took_s = self._count + 1, self._took_s + time.monotonic() - begin
        return {**answer, "ready": ready}

    def _show(self, title: str, done: int, batches: int, took_s: float) -> None:
        """One line that is written over: the setting, its batches, their rate and the time left."""
        if not self._tty:
            return
        from gputop.units import ago

        words = f"{title}: {done} of {batches} batches"
        if done:
            words += f", {done / took_s:.3g}/s"
        if self._count:
            each_s = self._took_s / self._count
            left_s = each_s * max(0, self._whole - self._count) - min(took_s, each_s)
            words += f", about {ago(max(1.0, left_s))} left"
        sys.stderr.write(f"\r\x1b[K{words[: shutil.get_terminal_size().columns - 1]}")
        sys.stderr.flush()

    def clear(self) -> None:
        """Take the line away."""
        if self._tty:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def _wanted(args: argparse.Namespace) -> tuple[Any, str]:
    from gputop.lab import factory

    if args.factory is None:
        raise Failure(f"which function makes the loader? gputop loader {factory.EXAMPLE.partition(' ')[0]}", USAGE)
    try:
        return factory.factory(args.factory, tuple(args.tail)), factory.interpreter(args.python, os.environ)
    except ValueError as error:
        raise Failure(str(error), USAGE) from None


def _host(settings: Settings) -> tuple[int, int]:
    """CPUs that may be used here, and how many ranks share them, as `gputop doctor` counts them."""
    from gputop.doctor.machine import Machine
    from gputop.doctor.share import share

    try:
        found = share(Machine(nvml=settings.nvml))
    except OSError:
        return len(os.sched_getaffinity(0)), 1
    return found.allowed, found.jobs


def _print(args: argparse.Namespace, settings: Settings, result: Mapping[str, Any]) -> None:
    from gputop.lab.loader_report import page, plan_of
    from gputop.lab.loading import line, per_rank
    from gputop.page import text

    if args.as_json:
        advice = None
        if "recommended" in result and not result.get("ended"):
            advice = line(result, per_rank(plan_of(result), result["recommended"]))
        print(json.dumps({**result, "line": advice}, allow_nan=False))
        return
    print(text(page(result), ascii=plain(settings)), end="")


def _keep(settings: Settings, result: Mapping[str, Any]) -> None:
    """Save it for --last; that it is not saved is no failure."""
    from gputop.lab import results
    from gputop.safe.files import Refused

    if settings.readonly:
        return
    try:
        results.keep(_KIND, result)
    except Refused as refused:
        sys.stderr.write(f"gputop: the result is not saved: {refused}\n")


def _last(args: argparse.Namespace, settings: Settings) -> int:
    from gputop.lab import results
    from gputop.safe.files import Refused

    try:
        result = results.last(_KIND)
    except Refused as refused:
        raise Failure(str(refused)) from None
    if result is None:
        raise Failure("no loader was measured yet: gputop loader FACTORY")
    try:
        _print(args, settings, result)
    except (KeyError, TypeError, AttributeError, ValueError, StopIteration):
        raise Failure("the newest result is of another version of gputop: measure again") from None
    return OK


def _counts(text: str) -> tuple[int, ...]:
    """Numbers of workers, with commas."""
    parts = text.split(",")
    if not all(part.strip().isdecimal() and int(part) <= _MOST_WORKERS for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r} is no list of numbers of workers: write 0,4,8")
    return tuple(int(part) for part in parts)


def _some(text: str) -> int:
    """A whole number from 1 on."""
    if not text.isdecimal() or not 1 <= int(text) <= 10**6:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return int(text)


def _arguments(parser: argparse.ArgumentParser) -> None:
    from gputop.lab.loading import BATCH_SIZE, BATCHES

    assert isinstance(parser, Parser)
    parser.keeps_tail("ARGS")
    parser.add_argument(
        "factory",
        nargs="?",
        metavar="FACTORY",
        help="file.py:function or module:function that returns a DataLoader or a Dataset, or one with the step: "
        "(loader, step)",
    )
    parser.add_argument(
        "--python", metavar="PYTHON", help="the Python of the training (this one, or the first with torch)"
    )
    parser.add_argument(
        "--workers", type=_counts, metavar="LIST", help="numbers of workers (0,2,4,8,12, as far as there are CPUs)"
    )
    parser.add_argument(
        "--batches", type=_some, default=BATCHES, metavar="N", help=f"batches timed for each setting ({BATCHES})"
    )
    parser.add_argument(
        "--batch-size", type=_some, default=BATCH_SIZE, metavar="N", help=f"where it returns a Dataset ({BATCH_SIZE})"
    )
    parser.add_argument(
        "--timeout", type=duration, default=60.0, metavar="T", help="longest wait for one batch before it hangs (60s)"
    )
    parser.add_argument("--last", action="store_true", help="print the newest result again")
    parser.add_argument("--verbose", action="store_true", help="whole tracebacks, and all that the loader prints")
    json_flag(parser)


COMMANDS = (
    Command(
        name="loader",
        help="measure a DataLoader with different settings, and print the best one for this host",
        run=loader,
        arguments=_arguments,
    ),
)
