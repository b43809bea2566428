"""Shared command line of the lab's experiments: options, sequential child processes, stored result.

A command declares one `Experiment`: its name, its program beside gputop/lab, and its report. It creates `Asked`, which
takes the factory and the Python from the options, and calls `run` with a function that requests measurements:
`asked(title, request)` is a separate child. What that function puts into `result` is printed and stored, even if it
ends early: on an error, which is one line and exit code 1, or on Ctrl+C, which ends the children.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gputop import __version__
from gputop.cli.from_process import process_id
from gputop.cli.options import FAILED, OK, USAGE, Failure, OneLineParser, ascii_only, json_flag, positive_duration
from gputop.frozen_dataclass import frozen_dataclass
from gputop.safe import terminal
from gputop.safe.identity import read_stat
from gputop.safe.text import clean

if TYPE_CHECKING:
    from gputop.config import Settings
    from gputop.lab.child import NotMeasured
    from gputop.report import Page

_LONGEST = 400  # characters of a child's message
_BAR = 12  # cells


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentCommand:
    """One kind of measurement: its name, its program, and the presentation of its result."""

    kind: str  # name of its command and of its results
    program: str  # file name beside the modules of the lab
    example: str  # the function in five lines, for --help
    unit: str  # what progress counts: "batches"; the request has the total under this name
    rows: str  # key of the result without which nothing is printed
    page: Callable[[Mapping[str, Any]], Page]
    extra: Callable[[Mapping[str, Any]], Mapping[str, Any]] = dict  # additional fields of --json

    def says(self, result: Mapping[str, Any]) -> str:
        """The result in one line: the report's item, with the code line to write if that is the whole advice."""
        from gputop.report import Do

        point = next(iter(self.page(result).points), None)
        if point is None:
            return ""
        code = [step.command for step in point.steps if isinstance(step, Do)]
        return f"{point.text}: {code[0]}" if len(code) == 1 else point.text


class Children:
    """Runs one child per measurement, and shows progress on a terminal."""

    def __init__(self, experiment: ExperimentCommand, args: argparse.Namespace) -> None:
        self.experiment, self.args = experiment, args
        self.factory, self.python = _latest(experiment, args)
        self.request: dict[str, Any] = {}  # fields of every request
        self.rounds: int | None = None  # total children, if known; a request may give the number left
        self.heard: Callable[[Mapping[str, Any]], object] = bool  # called with a child's messages before the final one
        self.title, self.ready = "the first setting", False  # whether the user's function has returned
        program = Path(__file__).parents[1] / "lab" / experiment.program
        self._command = [self.python, str(program)]
        self._count, self._took_s, self._done = 0, 0.0, 0
        self._tty = sys.stderr.isatty()

    def __call__(self, title: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
        from gputop.lab.child import ask

        self.title, self.ready, self._done = title, False, 0
        if request.get("rounds_left") is not None:
            self.rounds = self._count + request["rounds_left"]
        begin = time.monotonic()
        ready: dict[str, Any] = {}
        full = {**self.factory.request(), **self.request, **request}
        whole = int(full.get(self.experiment.unit) or 1)

        def hear(line: Mapping[str, Any]) -> None:
            if line.get("kind") == "ready":
                ready.update(line)
                self.ready = True
            self.heard(line)
            self._done = int(line.get("done") or self._done)  # unnumbered additional measurement
            self._show(title, self._done, whole, time.monotonic() - begin)

        quiet = self._count > 0 and not self.args.verbose  # show the same warnings once
        try:
            answer = ask(self._command, full, self.args.timeout, hear, quiet=quiet)
        finally:
            self._count, self._took_s = self._count + 1, self._took_s + time.monotonic() - begin
        return {**answer, "ready": ready}

    def _show(self, title: str, done: int, whole: int, took_s: float) -> None:
        """Rewrite the progress line: setting, number done, rate, time left."""
        if not self._tty:
            return
        from gputop.units import ago_text

        full = min(_BAR, _BAR * done // max(1, whole))
        words = f"[{'#' * full}{'.' * (_BAR - full)}] {title}: {done} of {whole} {self.experiment.unit}"
        if done:
            words += f", {done / took_s:.3g}/s"
        if self._count and self.rounds is not None:
            each_s = self._took_s / self._count
            left_s = each_s * max(0, self.rounds - self._count) - min(took_s, each_s)
            words += f", about {ago_text(max(1.0, left_s))} left"
        sys.stderr.write(f"\r\x1b[K{words[: shutil.get_terminal_size().columns - 1]}")
        sys.stderr.flush()

    def clear(self) -> None:
        """Erase the progress line."""
        if self._tty:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    @property
    def error_place(self) -> str:
        """Where an error belongs: to the setting, or to the function until that has returned."""
        return self.title if self.ready else clean(self.factory.name)


def run(
    asked: Children, settings: Settings, facts: Mapping[str, Any], measure: Callable[[dict[str, Any]], None]
) -> int:
    """Measure, print and store the result, even a partial one.

    `facts`: data on the host, in the result from the start.
    """
    from gputop.lab.child import NotMeasured

    experiment, factory = asked.experiment, asked.factory
    result: dict[str, Any] = {"version": 1, "gputop": __version__, "at_s": time.time(), "factory": factory.name}
    result |= {"args": list(factory.args), "python": asked.python, "of": _identity(asked.args.from_pid), **facts}
    trouble: NotMeasured | None = None
    code = OK
    terminal.on_ending(interrupt)  # or the object that hangs in a child would outlive us
    try:
        measure(result)
    except NotMeasured as error:
        trouble, code = error, FAILED
        result["ended"] = f"{asked.error_place}: {clean(str(error), _LONGEST)}"
    except Interrupted as error:
        code = 128 + error.number
        result["ended"] = f"{asked.title}: interrupted"
    finally:
        asked.clear()
    if result.get(experiment.rows):
        result["says"] = "" if code else experiment.says(result)
        _print(experiment, asked.args, settings, result)
        _keep(experiment, settings, result)
    if code:
        sys.stdout.flush()
        if trouble is not None and asked.args.verbose:
            sys.stderr.write(trouble.trace)
        sys.stderr.write(f"gputop: {result['ended']}\n")
    return code


def _identity(pid: int | None) -> list[int | None] | None:
    """PID and start of the process that provided the settings: the finding on it shows this result."""
    stat = None if pid is None else read_stat(pid)
    return None if stat is None else [pid, stat.started_ticks]


def last(experiment: ExperimentCommand, args: argparse.Namespace, settings: Settings) -> int:
    """Print the latest stored result; with a function, the latest of that one."""
    from gputop.lab import results
    from gputop.safe.files import Refused

    try:
        result = results.last(experiment.kind, args.factory)
    except Refused as refused:
        raise Failure(str(refused)) from None
    if result is None:
        of = f" of {args.factory}" if args.factory else ""
        raise Failure(f"no stored result{of}: run gputop {experiment.kind} {args.factory or 'FACTORY'}")
    try:
        _print(experiment, args, settings, result)
    except (KeyError, TypeError, AttributeError, ValueError, StopIteration, IndexError):
        raise Failure("the latest result is from another version of gputop: measure again") from None
    return OK


class Interrupted(KeyboardInterrupt):
    """Ctrl+C, a hangup, or a termination request."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


def interrupt(number: int, frame: object) -> None:  # noqa: ARG001
    """Signal handler that raises Interrupted."""
    raise Interrupted(number)


def _latest(experiment: ExperimentCommand, args: argparse.Namespace) -> tuple[Any, str]:
    from gputop.lab import factory

    if args.factory is None:
        example = f"gputop {experiment.kind} {factory.EXAMPLE.partition(' ')[0]}"
        raise Failure(f"FACTORY is missing: {example}", USAGE)
    try:
        return factory.factory(args.factory, tuple(args.tail)), factory.interpreter(args.python, os.environ)
    except ValueError as error:
        raise Failure(str(error), USAGE) from None


def _print(
    experiment: ExperimentCommand, args: argparse.Namespace, settings: Settings, result: Mapping[str, Any]
) -> None:
    from gputop.report import text

    if args.as_json:
        print(json.dumps({**result, **experiment.extra(result)}, allow_nan=False))
        return
    print(text(experiment.page(result), ascii=ascii_only(settings)), end="")


def _keep(experiment: ExperimentCommand, settings: Settings, result: Mapping[str, Any]) -> None:
    """Store it for --last; failing to store it is no error."""
    from gputop.lab import results
    from gputop.safe.files import Refused

    if settings.readonly:
        return
    try:
        results.keep(experiment.kind, result)
    except Refused as refused:
        sys.stderr.write(f"gputop: result not saved: {refused}\n")


def whole_number(text: str) -> int:
    """An integer of at least 1."""
    if not text.isdecimal() or not 1 <= int(text) <= 10**6:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive integer")
    return int(text)


def arguments(parser: argparse.ArgumentParser, experiment: ExperimentCommand, returns: str, *, pid: str = "") -> None:
    """The options of every experiment; `returns`: what the function must return, `pid`: effect of a PID instead."""
    assert isinstance(parser, OneLineParser)
    parser.keeps_tail(experiment.example)
    metavar, other = ("PID|FACTORY", f"{pid}; or ") if pid else ("FACTORY", "")
    text = f"{other}file.py:function or module:function that returns {returns}"
    parser.add_argument("factory", nargs="?", metavar=metavar, help=text)
    parser.add_argument(
        "--python", metavar="PYTHON", help="Python to run the function with (this one, or the first with torch)"
    )
    text = "use the Python, folder and variables of a running job; without FACTORY, suggest one"
    parser.add_argument("--from", dest="from_pid", type=process_id, metavar="PID", help=text)
    parser.add_argument(
        "--timeout",
        type=positive_duration,
        default=60.0,
        metavar="T",
        help="time without progress after which it is stopped (60s)",
    )
    parser.add_argument("--last", action="store_true", help="print the latest result again, of FACTORY if given")
    parser.add_argument("--verbose", action="store_true", help="print full tracebacks and the output of your code")
    json_flag(parser)
