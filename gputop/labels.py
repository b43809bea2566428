"""Labels of table rows: role and command of a process, composition of a job."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath

from gputop import units
from gputop.model import Job, Process, Role

MOST = 400  # characters of a command passed to a screen
_UNSEEN = {"exited": "exited (driver still lists)", "hidden": "hidden (other user)"}


def command(process: Process, number: int | None = None, folded: int = 0) -> str:
    """Role, rank and command line of a process; `number` counts the workers of a rank, `folded` the hidden ones."""
    if process.unseen == "foreign":
        return f"host PID {process.pid} (other namespace)"
    if process.unseen:
        return _UNSEEN[process.unseen]
    if process.role is Role.LOADER:
        return workers(process.name, number, number)
    text = line(process, f"(+{amount(folded, 'worker')})" if folded else "")
    if process.role is Role.TRAINER and process.rank is not None:
        return f"rank{process.rank} {text}"
    return f"launcher {text}" if process.role is Role.LAUNCHER else text


def first(names: Sequence[str], most: int) -> str:
    """The first of some names: `n1, n2 and 5 more`."""
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest


def role(role: Role) -> str:
    """What a person reads of a role: a DataLoader worker is a `worker`; `loader` stays its name in JSON."""
    return "worker" if role is Role.LOADER else role.value


def searched(process: Process) -> str:
    """Searchable text: label, name and full command line. A worker has its trainer's command."""
    own = () if process.role is Role.LOADER else (" ".join(process.command),)
    return "\n".join((command(process), process.name, *own))


def workers(name: str, first: int | None, last: int | None) -> str:
    """DataLoader workers by thread name and number: `worker pt_data_worker 2-7`."""
    if first is None:
        return f"worker {name}"
    return f"worker {name} {first}" if first == last else f"worker {name} {first}-{last}"


def job(
    job: Job, ranks: Sequence[Process], workers: int, others: int, *, sampled: int = 0, of: int | None = None
) -> str:
    """Composition of a job: `torchrun · 4 ranks · 32 workers`; if large, `1 rank · 8,000 children, sampled`.

    If only some `of` its ranks are shown: `torchrun · 1 of 4 ranks · 8 workers`.
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
    elif workers:
        parts.append(amount(workers, "worker"))
    return " · ".join(parts)


def amount(number: float, noun: str) -> str:
    """`1 rank`, `32 workers`, `2 processes`, `0.5 CPUs`."""
    return f"{units.cpus(number)} {plural(number, noun)}"


def script(process: Process) -> str:
    """Display name of its program: the script, else the module, else the executable."""
    for before, argument in zip(process.command, process.command[1:], strict=False):
        if argument.endswith(".py") or before == "-m":
            return PurePosixPath(argument).name
    return process.name


def plural(number: float, noun: str) -> str:
    """`rank` for one, else `ranks`."""
    return noun if units.cpus(number) == "1" else f"{noun}{'es' if noun.endswith('s') else 's'}"


def numbers(names: Sequence[str]) -> str:
    """GPU numbers in few cells: 0-3,5; unchanged if some are not integers, as for MIG instances."""
    return units.ranges(tuple(map(int, names))) if all(map(str.isdecimal, names)) else ",".join(names)


def holding(vram_bytes: float | None, idle_s: float) -> str:
    """Label of a job with idle GPUs: `holds 2.1G, idle 2h 11m`."""
    held = "" if vram_bytes is None else f"holds {units.size(vram_bytes)}, "
    return f"{held}idle {units.ago(idle_s)}"


def line(process: Process, aside: str = "") -> str:
    """The command line without program path and interpreter version; `aside` is inserted after the script."""
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
