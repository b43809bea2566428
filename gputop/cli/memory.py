"""The command that says what holds memory in a training, whether it grows, and what to do about it."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gputop import __version__
from gputop.cli import experiment
from gputop.cli.aiming import aimed, ranked
from gputop.cli.experiment import Asked, Experiment, whole_number
from gputop.cli.line import FAILED, OK, USAGE, Command, Failure, lasting, plain
from gputop.safe import hangup

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gputop.actions import Rights
    from gputop.cli.watched_memory import Watched
    from gputop.config import Settings
    from gputop.model import Frame, Process
    from gputop.page import Page

_INSIDE_S = 10.0
_STEPS, _WARMUP = 60, 10
_SNAPSHOT = 512 << 20  # bytes
_EXAMPLE = """\
def make():                              # in train.py: gputop memory train.py:make
    model = torchvision.models.resnet18()
    data = ImageFolder("/data/train", transform)
    loader = DataLoader(data, batch_size=64, shuffle=True)
    return model, loader                 # or loader, step: step(batch) does one training step of yours
"""


def _page(result: Mapping[str, Any]) -> Page:
    from gputop.lab.memory_report import of_steps, page

    return page(result if "pid" in result else of_steps(result))


def _verdict(result: Mapping[str, Any]) -> Mapping[str, Any]:
    from gputop.lab.memory_report import of_steps

    return {} if "pid" in result else of_steps(result)


MEMORY = Experiment(
    kind="memory",
    program="child_memory.py",
    example=_EXAMPLE,
    unit="steps",
    rows="samples",
    page=_page,
    extra=_verdict,
)


def memory(args: argparse.Namespace, settings: Settings) -> int:
    """Sample the memory of a process, or that of training steps of a function; then say what it comes to."""
    if args.last:
        return experiment.last(MEMORY, args, settings)
    if args.factory is None and args.from_pid is None:
        raise Failure("name a process or a function: gputop memory PID, or gputop memory train.py:make", USAGE)
    if args.factory is None or not args.factory.isdecimal():
        return _trained(args, settings)
    args.pid = int(args.factory)
    frame, process, rights = aimed(args, settings)
    return _running(args, settings, frame, ranked(frame, process), replace(rights, looks=True))


def _trained(args: argparse.Namespace, settings: Settings) -> int:
    """Take steps in a child, each told as it ends."""
    from gputop.cli.from_process import MAKERS, SKETCH, filled
    from gputop.lab.memory import CENSUSES

    if args.seconds is not None or args.tensors:
        raise Failure(f"{'--tensors' if args.tensors else '--for'} is for a PID; a function takes --steps", USAGE)
    filled(args, settings, "memory", MAKERS, SKETCH)
    asked, steps = Asked(MEMORY, args), args.steps or _STEPS
    warmup = min(_WARMUP, steps // 4)
    looks = [warmup + (steps - warmup) * part // CENSUSES for part in range(CENSUSES + 1)]
    facts: dict[str, Any] = {"warmup": warmup, "samples": [], "made": {}, "sites": None}

    def measure(result: dict[str, Any]) -> None:
        began_s = time.monotonic()

        def heard(line: Mapping[str, Any]) -> None:
            if line.get("kind") == "ready":
                result["made"] = dict(line)
            now_s = round(time.monotonic() - began_s, 3)
            result["samples"] += [{**row, "s": now_s} for row in line.get("rows", ())]

        asked.heard = heard
        with tempfile.TemporaryDirectory(prefix="gputop-") as folder:
            file = Path(folder, "snapshot.pickle")
            asked("memory", {"steps": steps, "censuses": looks, "snapshot": str(file)})
            result["sites"] = _sites(file, steps - warmup)

    return experiment.run(asked, settings, facts, measure)


def _sites(file: Path, steps: int) -> list[dict[str, Any]] | None:
    """The lines that hold device memory, by PyTorch's own snapshot; what is kept of each step is `kept`."""
    from gputop.paste.memory_snapshot import read
    from gputop.safe.files import Refused

    try:
        with file.open("rb") as opened:
            numbers = read(opened.read(_SNAPSHOT)).numbers
    except (OSError, Refused):
        return None
    return [
        {**site, "gpu": gpu["gpu"], "kept": kept}
        for gpu in numbers["gpus"]
        for kept, sites in ((False, gpu["sites"]), (True, gpu["not_freed"]))
        for site in sites
        if not kept or site["blocks"] >= steps
    ]


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
    hangup.on_ending(experiment.interrupt)
    try:
        for _ in _sampled(args, settings, frame, process, rights, watched, result):
            pass
    except Lost as lost:
        code, result["ended"] = FAILED, str(lost)
    except experiment.Interrupted as error:
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
    from gputop.cli.watched_memory import outside, show
    from gputop.lab.memory_samples import TIME_S
    from gputop.source import Interest

    if args.tensors or args.steps is not None:
        raise Failure(f"--{'tensors' if args.tensors else 'steps'} needs an agent. {why}")
    result["agent"] = f"What PyTorch has allocated and reserved, and its steps, are unknown. {why}"
    spec = getattr(args, "source", "live")
    seconds = TIME_S if args.seconds is None else args.seconds
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


def _arguments(parser: argparse.ArgumentParser) -> None:
    model = "model, loader, or loader, step: its training steps are measured"
    experiment.arguments(parser, MEMORY, model, pid="a process that trains")
    parser.add_argument("--steps", type=whole_number, metavar="N", help=f"steps that it makes ({_STEPS} of a function)")
    parser.add_argument(
        "--for", dest="seconds", type=lasting, metavar="T", help="of a PID, how long (10s; 30s without an agent)"
    )
    parser.add_argument(
        "--tensors",
        action="store_true",
        help="of a PID, also its live tensors, and which pile up: each look halts it for up to a third of a second",
    )


COMMANDS = (
    Command(
        name="memory",
        help="what holds memory in a training, whether it grows with each step, and what to do",
        run=memory,
        arguments=_arguments,
    ),
)
