"""gputop memory: what holds memory in a training, whether it grows, and what to do about it."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

from gputop import __version__
from gputop.agent_client import Agent, AgentLost
from gputop.cli import experiment
from gputop.cli.experiment import Children, ExperimentCommand, whole_number
from gputop.cli.options import FAILED, OK, USAGE, CliCommand, Failure, ascii_only, positive_duration
from gputop.cli.process import rank_of, target_process
from gputop.collect.kernel_files import slurp
from gputop.lab.memory import CENSUSES, LEAST_POINTS, MemorySamples
from gputop.safe import terminal

if TYPE_CHECKING:
    from gputop.actions import Rights
    from gputop.actions.target import TargetProcess
    from gputop.config import Settings
    from gputop.model import Frame, Process
    from gputop.report import Page
    from gputop.source import Source


_APART_S = 0.1
_ANSWERS_S = 30.0  # for a census of many tensors, and the agent's pause after it
_STEPS_S = 600.0  # longest wait for a number of steps
_BETWEEN = 4  # samples between two censuses
_LATEST_S = 60.0  # longest wait for enough samples if less time was requested
_STATUS = {"rss": b"VmRSS", "peak": b"VmHWM", "shared": b"RssShmem", "anonymous": b"RssAnon"}


class ProcessSamples(MemorySamples):
    """Memory samples of a running process."""

    def __init__(self, process: Process, frame: Frame) -> None:
        super().__init__()
        self._process, self._frame = process, frame
        self._began_s, self._first_s = time.monotonic(), frame.mono_s

    def add_message(self, said: Any) -> None:
        """Take in a message of its agent."""
        self.take(said, status(self._process.pid), time.monotonic() - self._began_s)

    def add_outside(self, process: Process, frame: Frame, *, live: bool) -> None:
        """Take in what is visible from outside."""
        self.seconds = time.monotonic() - self._began_s if live else frame.mono_s - self._first_s
        self._process, self._frame = process, frame
        for share in process.gpus:
            gpu = frame.by_uuid.get(share.uuid)
            if share.vram_bytes is not None and gpu is not None:
                self.take_driver(gpu.index, share.vram_bytes)
        self.take_host(status(process.pid) if live else {"rss": process.rss_bytes})

    def result(self) -> dict[str, Any]:
        """All samples as one plain object."""
        return {**super().result(), "driver": list(_by_driver(self._process, self._frame))}


def sample_by_agent(
    agent: Agent, target: TargetProcess, watched: ProcessSamples, seconds: float, steps: int | None, *, tensors: bool
) -> Iterator[ProcessSamples]:
    """Poll the agent for some seconds or steps; yields after each sample."""
    began_s, censuses, since = time.monotonic(), 0, 0
    limit_s = seconds if steps is None else _STEPS_S
    while True:
        passed_s = time.monotonic() - began_s
        done = min(1.0, passed_s / limit_s) if steps is None else min(1.0, (watched.steps or 0) / steps)
        # at the start, at the end, and in between; the agent pauses after each
        census = tensors and done >= censuses / CENSUSES and (since >= _BETWEEN or not censuses)
        said = agent.answer("memory", _ANSWERS_S, tensors=census)
        if "error" in said:
            raise Failure(
                f"the agent in {target.pid} cannot report memory: it is from an older gputop; restart the job"
            )
        reported = said.get("memory")
        if not isinstance(reported, dict):
            raise AgentLost("unexpected answer from the agent")
        censuses, since = censuses + census, 0 if census else since + 1
        watched.add_message(reported)
        yield watched
        enough = watched.count >= LEAST_POINTS and (censuses > CENSUSES or not tensors)
        if passed_s >= max(limit_s, _LATEST_S) or (done >= 1.0 and enough):
            return
        if target.ended():
            raise AgentLost("the process has exited")
        time.sleep(_APART_S)


def sample_from_outside(
    source: Source, watched: ProcessSamples, process: Process, seconds: float, *, live: bool
) -> Iterator[ProcessSamples]:
    """Sample from outside for some seconds; yields after each sample."""
    first_s: float | None = None
    for frame in source.frames(Event()):
        first_s = frame.mono_s if first_s is None else first_s
        found = frame.by_identity.get(process.identity)
        if found is None or found.unseen is not None:
            raise AgentLost("the process has exited")
        watched.add_outside(found, frame, live=live)
        yield watched
        if frame.mono_s - first_s >= seconds:
            return


def show(watched: ProcessSamples, passed: float, whole: float, unit: str) -> None:
    """Rewrite the progress line of a terminal."""
    if sys.stderr.isatty():
        steps = "" if watched.steps is None or unit == "steps" else f", {watched.steps} steps"
        sys.stderr.write(f"\r\x1b[Ksampling memory: {min(passed, whole):.0f} of {whole:.0f} {unit}{steps}")
        sys.stderr.flush()


def clear() -> None:
    """Erase the progress line."""
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()


def status(pid: int) -> dict[str, int | None]:
    """The kernel's memory values of a process in bytes; None for missing ones."""
    found: dict[str, int | None] = dict.fromkeys(_STATUS)
    try:
        raw = slurp(f"/proc/{pid}/status", 1 << 14)
    except OSError:
        return found
    lines = dict(line.split(b":", 1) for line in raw.splitlines() if b":" in line)
    for name, key in _STATUS.items():
        words = lines.get(key, b"").split()
        if words[1:] == [b"kB"] and words[0].isdigit():
            found[name] = int(words[0]) << 10
    return found


def _by_driver(process: Process, frame: Frame) -> Iterator[dict[str, Any]]:
    for share in process.gpus:
        gpu = frame.by_uuid.get(share.uuid)
        if gpu is not None:
            total, used = gpu.vram_total_bytes, gpu.vram_used_bytes
            free = None if total is None or used is None else max(0, total - used - (gpu.vram_reserved_bytes or 0))
            yield {"gpu": gpu.index, "used": share.vram_bytes, "total": total, "free": free}


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


MEMORY = ExperimentCommand(
    kind="memory",
    program="child_memory.py",
    example=_EXAMPLE,
    unit="steps",
    rows="samples",
    page=_page,
    extra=_verdict,
)


def memory(args: argparse.Namespace, settings: Settings) -> int:
    """Sample the memory of a process, or of a function's training steps; then print the report."""
    if args.last:
        return experiment.last(MEMORY, args, settings)
    if args.factory is None and args.from_pid is None:
        raise Failure("PID or FACTORY is missing: gputop memory PID, or gputop memory train.py:make", USAGE)
    if args.factory is None or not args.factory.isdecimal():
        return _measure_function(args, settings)
    args.pid = int(args.factory)
    frame, process, rights = target_process(args, settings)
    return _measure_process(args, settings, frame, rank_of(frame, process), replace(rights, reads_only=True))


def _measure_function(args: argparse.Namespace, settings: Settings) -> int:
    """Run steps in a child, which reports each as it ends."""
    from gputop.cli.from_process import MAKERS, SKETCH, take_settings
    from gputop.lab.memory import CENSUSES

    if args.seconds is not None or args.tensors:
        raise Failure(
            f"{'--tensors' if args.tensors else '--for'} applies to a PID; use --steps with a function", USAGE
        )
    take_settings(args, settings, "memory", MAKERS, SKETCH)
    asked, steps = Children(MEMORY, args), args.steps or _STEPS
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
    """Source lines that hold device memory, from PyTorch's snapshot; `kept`: memory kept per step."""
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


def _measure_process(
    args: argparse.Namespace, settings: Settings, frame: Frame, process: Process, rights: Rights
) -> int:
    """Sample through its agent if it has one; Ctrl+C ends sampling, and the samples so far are reported."""
    from gputop import labels
    from gputop.agent_client import AgentLost
    from gputop.safe.text import clean

    watched = ProcessSamples(process, frame)
    result: dict[str, Any] = {"version": 1, "gputop": __version__, "at_s": time.time(), "pid": process.pid}
    result |= {"name": f"{clean(labels.script(process), 40)} (PID {process.pid})", "agent": None, "more": None}
    code = OK
    terminal.on_ending(experiment.interrupt)
    try:
        for _ in _sample(args, settings, frame, process, rights, watched, result):
            pass
    except AgentLost as lost:
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


def _sample(
    args: argparse.Namespace,
    settings: Settings,
    frame: Frame,
    process: Process,
    rights: Rights,
    watched: ProcessSamples,
    result: dict[str, Any],
) -> Iterator[ProcessSamples]:
    """Sample by the better available method; the reason for the worse one goes into the result."""
    from gputop.actions.target import Refusal, open_target
    from gputop.agent_client import NoAgent, connect

    target = open_target(process, rights, {})
    if isinstance(target, Refusal):
        if rights.elsewhere is None:
            raise Failure(f"{process.pid}: {target.text}")
        yield from _sample_outside(args, settings, process, watched, result, f"it is a process of {rights.elsewhere}")
        return
    try:
        agent = connect(target)
    except NoAgent as none:
        target.close()
        yield from _sample_outside(args, settings, process, watched, result, _unlock(process, frame, str(none)))
        return
    seconds = _INSIDE_S if args.seconds is None else args.seconds
    result["more"] = None if args.tensors else f"gputop memory {process.pid} --tensors"
    try:
        began_s = time.monotonic()
        for each in sample_by_agent(agent, target, watched, seconds, args.steps, tensors=args.tensors):
            if args.steps is None:
                show(each, time.monotonic() - began_s, seconds, "s")
            else:
                show(each, each.steps or 0, args.steps, "steps")
            yield each
    finally:
        agent.close()
        target.close()


def _sample_outside(
    args: argparse.Namespace,
    settings: Settings,
    process: Process,
    watched: ProcessSamples,
    result: dict[str, Any],
    why: str,
) -> Iterator[ProcessSamples]:
    from gputop.cli.sources import open_source
    from gputop.lab.memory import TIME_S
    from gputop.source import Interest

    if args.tensors or args.steps is not None:
        raise Failure(f"--{'tensors' if args.tensors else 'steps'} needs an agent. {why}")
    result["agent"] = f"PyTorch's allocated and reserved memory and its steps are unknown. {why}"
    spec = getattr(args, "source", "live")
    seconds = TIME_S if args.seconds is None else args.seconds
    source = open_source(spec, settings, pace=False)
    source.interest = Interest(pids=frozenset({process.pid}), families=frozenset({process.pid}))
    began_s = time.monotonic()
    for each in sample_from_outside(source, watched, process, seconds, live=spec == "live"):
        show(each, time.monotonic() - began_s, seconds, "s")
        yield each


def _unlock(process: Process, frame: Frame, why: str) -> str:
    """Why there is no agent, and what would start one."""
    from gputop.actions.torch_trace.routes import start_command

    none = f"No agent in {process.pid}" + (f" ({why})" if why else "")
    return f"{none}: start the job with `{start_command(process, frame)}`, then repeat."


def _print(args: argparse.Namespace, settings: Settings, result: dict[str, Any]) -> None:
    from gputop.lab.memory_report import page
    from gputop.report import text

    if args.as_json:
        print(json.dumps(result, allow_nan=False))
    else:
        print(text(page(result), ascii=ascii_only(settings)), end="")


def _arguments(parser: argparse.ArgumentParser) -> None:
    model = "(model, loader) or (loader, step), to measure its training steps"
    experiment.arguments(parser, MEMORY, model, pid="training process to measure")
    parser.add_argument("--steps", type=whole_number, metavar="N", help=f"number of steps ({_STEPS} for a function)")
    parser.add_argument(
        "--for",
        dest="seconds",
        type=positive_duration,
        metavar="T",
        help="PID only: duration (10s; 30s without an agent)",
    )
    parser.add_argument(
        "--tensors",
        action="store_true",
        help="PID only: list live tensors and which ones accumulate; pauses the process for up to 0.3 s per sample",
    )


COMMANDS = (
    CliCommand(
        name="memory",
        help="report what holds memory, and whether it grows",
        examples=("gputop memory $(pgrep -nf train.py)", "gputop memory --steps 100 train.py:make"),
        run=memory,
        arguments=_arguments,
    ),
)
