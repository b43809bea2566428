"""The command that says what holds memory in a training, whether it grows, and what to do about it."""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gputop import __version__
from gputop.cli.aiming import aimed, ranked
from gputop.cli.line import FAILED, OK, USAGE, Command, Failure, duration, json_flag, plain
from gputop.safe import hangup

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gputop.actions import Rights
    from gputop.cli.watched_memory import Watched
    from gputop.config import Settings
    from gputop.model import Frame, Process

_INSIDE_S = 10.0


def memory(args: argparse.Namespace, settings: Settings) -> int:
    """Sample the memory of a process, then say what it comes to."""
    if not args.target.isdecimal():
        raise Failure(f"{args.target!r} is no pid: gputop memory PID", USAGE)
    args.pid = int(args.target)
    frame, process, rights = aimed(args, settings)
    return _running(args, settings, frame, ranked(frame, process), replace(rights, looks=True))


class _Interrupted(KeyboardInterrupt):
    """Ctrl+C, a hangup, or a request to end."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


def _interrupt(number: int, frame: object) -> None:  # noqa: ARG001
    raise _Interrupted(number)


def _running(args: argparse.Namespace, settings: Settings, frame: Frame, process: Process, rights: Rights) -> int:
    """By the agent in it, where there is one; Ctrl+C ends it, and what was sampled is told."""
    from gputop import words
    from gputop.agent_client import Lost
    from gputop.cli.watched_memory import Watched, clear
    from gputop.safe.text import clean

    watched = Watched(process, frame)
    result: dict[str, Any] = {"version": 1, "gputop": __version__, "at_s": time.time(), "pid": process.pid}
    result |= {"name": f"{clean(words.script(process), 40)} (PID {process.pid})", "agent": None, "more": None}
    code = OK
    hangup.on_ending(_interrupt)
    try:
        for _ in _sampled(args, settings, frame, process, rights, watched, result):
            pass
    except Lost as lost:
        code, result["ended"] = FAILED, str(lost)
    except _Interrupted as error:
        code, result["ended"] = 128 + error.number, "interrupted"
    clear()
    result |= watched.result()
    result["longer"] = f": --for {max(60.0, 2 * result['seconds']):.0f}s"
    if result["rows"]:
        _print(args, settings, result)
    if code:
        sys.stdout.flush()
        sys.stderr.write(f"gputop: {process.pid}: {result['ended']}\n")
    return code


def _sampled(
    args: argparse.Namespace,
    settings: Settings,
    frame: Frame,
    process: Process,
    rights: Rights,
    watched: Watched,
    result: dict[str, Any],
) -> Iterator[Watched]:
    """Sample it, the better way first; why it is the worse one goes into the result."""
    from gputop.actions.aim import aim
    from gputop.actions.target import Refusal
    from gputop.agent_client import NoAgent, connect
    from gputop.cli.watched_memory import inside, show

    target = aim(process, rights, {})
    if isinstance(target, Refusal):
        if rights.elsewhere is None:
            raise Failure(f"{process.pid}: {target.text}")
        yield from _from_outside(args, settings, process, watched, result, f"it is a process of {rights.elsewhere}")
        return
    try:
        agent = connect(target)
    except NoAgent as none:
        target.close()
        yield from _from_outside(args, settings, process, watched, result, _unlock(process, frame, str(none)))
        return
    seconds = _INSIDE_S if args.seconds is None else args.seconds
    result["more"] = None if args.tensors else f"gputop memory {process.pid} --tensors"
    try:
        began_s = time.monotonic()
        for each in inside(agent, target, watched, seconds, args.steps, tensors=args.tensors):
            if args.steps is None:
                show(each, time.monotonic() - began_s, seconds, "s")
            else:
                show(each, each.steps or 0, args.steps, "steps")
            yield each
    finally:
        agent.close()
        target.close()


def _from_outside(
    args: argparse.Namespace,
    settings: Settings,
    process: Process,
    watched: Watched,
    result: dict[str, Any],
    why: str,
) -> Iterator[Watched]:
    from gputop.cli.opening import open_source
    from gputop.cli.watched_memory import OUTSIDE_S, outside, show
    from gputop.source import Interest

    if args.tensors or args.steps is not None:
        raise Failure(f"--{'tensors' if args.tensors else 'steps'} needs an agent. {why}")
    result["agent"] = f"What PyTorch has allocated and reserved, and its steps, are unknown. {why}"
    spec = getattr(args, "source", "live")
    seconds = OUTSIDE_S if args.seconds is None else args.seconds
    source = open_source(spec, settings, pace=False)
    source.interest = Interest(pids=frozenset({process.pid}), families=frozenset({process.pid}))
    began_s = time.monotonic()
    for each in outside(source, watched, process, seconds, live=spec == "live"):
        show(each, time.monotonic() - began_s, seconds, "s")
        yield each


def _unlock(process: Process, frame: Frame, why: str) -> str:
    """Why there is no agent, and what would put one there."""
    from gputop.actions.tracing.routes import start

    none = f"No agent in {process.pid}" + (f" ({why})" if why else "")
    return f"{none}: start it with `{start(process, frame)}` and ask again."


def _print(args: argparse.Namespace, settings: Settings, result: dict[str, Any]) -> None:
    from gputop.lab.memory_report import page
    from gputop.page import text

    if args.as_json:
        print(json.dumps(result, allow_nan=False))
    else:
        print(text(page(result), ascii=plain(settings)), end="")


def _some(text: str) -> int:
    """A whole number from 1 on."""
    if not text.isdecimal() or not 1 <= int(text) <= 10**6:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return int(text)


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("target", metavar="PID", help="any process of a job: its first rank, or the one of a loader")
    how_long = parser.add_mutually_exclusive_group()
    how_long.add_argument(
        "--for", dest="seconds", type=duration, metavar="T", help="how long: 30s, 5m (10s; 30s without an agent)"
    )
    how_long.add_argument("--steps", type=_some, metavar="N", help="until it has made so many steps")
    parser.add_argument(
        "--tensors",
        action="store_true",
        help="also its live tensors, and which pile up: each look halts it for up to a third of a second",
    )
    json_flag(parser)


COMMANDS = (
    Command(
        name="memory",
        help="what holds memory in a training that runs, whether it grows with each step, and what to do",
        run=memory,
        arguments=_arguments,
    ),
)
