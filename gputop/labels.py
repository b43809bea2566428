"""What a line of the table says in words: a process's role and command, a job's composition."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import PurePosixPath

from gputop import units
from gputop.model import Job, Process, Role

MOST = 400  # characters of a command that are worth carrying to a screen
_UNSEEN = {"exited": "exited (driver still lists)", "hidden": "hidden (other user)"}


def command(process: Process, number: int | None = None, folded: int = 0) -> str:
    """Role, rank and command line of a process; `number` counts the loaders of a rank, `folded` those not shown."""
    if process.unseen == "foreign":
        return f"host PID {process.pid} (other namespace)"
    if process.unseen:
        return _UNSEEN[process.unseen]
    if process.role is Role.LOADER:
        return loaders(process.name, number, number)
    text = line(process, f"(+{amount(folded, 'loader')})" if folded else "")
    if process.role is Role.TRAINER and process.rank is not None:
        return f"rank{process.rank} {text}"
    return f"launcher {text}" if process.role is Role.LAUNCHER else text


def searched(process: Process) -> str:
    """All that is found by: what it shows, its name, its whole command line. A loader has that of its trainer."""
    own = () if process.role is Role.LOADER else (" ".join(process.command),)
    return "\n".join((command(process), process.name, *own))


def loaders(name: str, first: int | None, last: int | None) -> str:
    """Loaders by their thread's name and number: `loader pt_data_worker 2-7`."""
    if first is None:
        return f"loader {name}"
    return f"loader {name} {first}" if first == last else f"loader {name} {first}-{last}"


def job(
    job: Job, ranks: Sequence[Process], loaders: int, others: int, *, sampled: int = 0, of: int | None = None
) -> str:
    """What a job is made of: `torchrun · 4 ranks · 32 loaders`; of many `1 rank · 8,000 children, sampled`.

    Where only some `of` its ranks are shown: `torchrun · 1 of 4 ranks · 8 loaders`.
    """
    parts = [] if job.launcher in (None, "python") else [str(job.launcher)]
    numbered = sum(rank.rank is not None for rank in ranks)
    if of is not None and len(ranks) < of:
        parts.append(f"{len(ranks)} of {amount(of, 'rank' if numbered or not ranks else 'process')}")
    elif numbered:
        parts.append(amount(len(ranks), "rank"))
    else:
        parts.append(amount(len(ranks) or others, "process"))
    if sampled:
        parts.append(f"{sampled:,} children, sampled")
    elif loaders:
        parts.append(amount(loaders, "loader"))
    return " · ".join(parts)


def amount(number: float, noun: str) -> str:
    """`1 rank`, `32 loaders`, `2 processes`, `0.5 CPUs`."""
    return f"{units.cpus(number)} {plural(number, noun)}"


def script(process: Process) -> str:
    """What it runs, as people call it: the script, else the module, else the program."""
    for before, argument in zip(process.command, process.command[1:], strict=False):
        if argument.endswith(".py") or before == "-m":
            return PurePosixPath(argument).name
    return process.name


def plural(number: float, noun: str) -> str:
    """`rank` of one, else `ranks`."""
    return noun if units.cpus(number) == "1" else f"{noun}{'es' if noun.endswith('s') else 's'}"


def numbers(names: Sequence[str]) -> str:
    """Numbers of GPUs in few cells: 0-3,5; as they are where some are no whole numbers, as instances have."""
    return units.ranges(tuple(map(int, names))) if all(map(str.isdecimal, names)) else ",".join(names)


def at_most(lost_share: float, most: float = math.inf) -> str:
    """What can be had back of a share that is lost, below 1: a bound and no promise. `most`: another one, in times."""
    times = min(1 / (1 - lost_share), most)
    return f"at most {times:.{0 if times >= 10 else 1}f} times as fast"


def holding(vram_bytes: float | None, idle_s: float) -> str:
    """What is said of a job whose GPUs do nothing: `holds 2.1G, idle 2h 11m`."""
    held = "" if vram_bytes is None else f"holds {units.size(vram_bytes)}, "
    return f"{held}idle {units.ago(idle_s)}"


def line(process: Process, aside: str = "") -> str:
    """The command line without the program's path and the interpreter's version; an aside follows the script."""
    if not any(process.command):
        return f"[{process.name}] {aside}".rstrip()
    program = process.command[0].rsplit("/", 1)[-1] or process.command[0]
    if program.startswith("python") and program[6:].replace(".", "").isdecimal():
        program = "python"
    text, aside = program, f" {aside}" if aside else ""
    after_module = False
    for argument in process.command[1:]:
        if len(text) > MOST:
            break
        text = f"{text} {argument}"
        if aside and (after_module or argument.endswith(".py")):
            text, aside = f"{text}{aside}", ""
        after_module = argument == "-m"
    return f"{text[:MOST]}{aside}"
