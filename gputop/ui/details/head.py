"""The lines on top: which process it is, whose, for how long, and where it may run."""

from __future__ import annotations

from collections.abc import Sequence

from textual.strip import Strip

from gputop import units, words
from gputop.model import Node, Role
from gputop.ui import draw
from gputop.ui.details.doing import STATES
from gputop.ui.details.opened import Opened
from gputop.ui.draw import Line, Run, wrap
from gputop.ui.look import Token

Fact = list[Run]
ROOMY = 100  # cells: narrower, less is said of each


def names(opened: Opened) -> list[str]:
    """From the outside in: its job, its rank, its pid."""
    process, found = opened.process, []
    if opened.job:
        found.append(draw.cut(opened.job.name, 32))
    by_pid = {one.pid: one for one in opened.frame.processes}
    rank = process if process.role is Role.TRAINER else by_pid.get(process.parent_pid)
    if rank and rank.role is Role.TRAINER and rank.rank is not None:
        found.append(f"rank{rank.rank}")
    if process.role in (Role.LOADER, Role.LAUNCHER):
        found.append(process.role.value)
    return [*found, str(process.pid)]


def head(opened: Opened, width: int, most: int) -> list[Strip]:
    """The command, what is known of its life, and its place, in at most `most` lines."""
    life = _life(opened, width >= ROOMY)
    beside = draw.cells(run for fact in life for run in fact) + 2 * len(life) + 2
    room = max(24, width - beside)
    command, look = words.line(opened.process), opened.look
    lines = wrap(command, room)
    shown = lines[: max(1, most - 1)]
    if len(shown) < len(lines):
        shown[-1] = f"{shown[-1]}{look.glyphs.more}"
    strips = []
    for place, text in enumerate(shown):
        line = Line(look).add(" ").add(draw.cut(text, room - 1, look.glyphs.more), "bright", bold=True)
        if place == 0:
            line.to(width - beside + 1).runs(run for fact in life for run in (Run("  "), *fact))
        strips.append(line.strip(width))
    return [*strips, *_flowing(_place(opened, width >= ROOMY), opened, width, max(1, most - len(strips)))][:most]


def _life(opened: Opened, roomy: bool) -> list[Fact]:
    process = opened.process
    state = process.state or ""
    facts = [
        [Run(process.user or units.UNKNOWN, "owner")],
        [Run(state, "text"), Run(f" {STATES.get(state, '')}" if roomy else "", "dim")],
        [Run("up ", "dim"), Run(units.clock(process.age_s))],
        [Run("nice ", "dim"), Run(units.UNKNOWN if process.nice is None else str(process.nice), _quiet(process.nice))],
    ]
    shown = facts if roomy or process.nice else facts[:-1]
    return [fact for fact in shown if fact[0].text]


def _quiet(nice: int | None) -> Token:
    return "text" if nice else "dim"


def _place(opened: Opened, roomy: bool) -> list[Fact]:
    """The most important first."""
    process, job = opened.process, opened.job
    facts: list[Fact] = []
    if job:
        slurm = f" (slurm {job.slurm_job})" if job.slurm_job else ""
        facts.append([Run("job ", "dim"), Run(draw.cut(job.name, 32)), Run(slurm, "dim")])
    if process.rank is not None:
        total = "" if process.world_size is None else f" of {process.world_size}"
        facts.append([Run("rank ", "dim"), Run(str(process.rank)), Run(total, "dim")])
    if process.local_rank is not None:
        facts.append([Run("local ", "dim"), Run(str(process.local_rank))])
    if opened.indexes:
        facts.append([Run("GPU ", "dim"), Run(draw.cut(opened.indexes, 16))])
    if process.affinity is not None:
        facts.append(
            [Run("cpus ", "dim"), Run(draw.cut(process.affinity, 20)), Run(_near(opened) if roomy else "", "dim")]
        )
    container = Run(draw.cut(process.container, 20)) if process.container else Run("none", "dim")
    facts.append([Run("container ", "dim"), container])
    return facts


def _near(opened: Opened) -> str:
    """Which NUMA nodes its CPUs are on, and which its GPUs."""
    nodes = {str(node.number) for node in opened.frame.host.nodes if _overlap(node, opened.process.affinity or "")}
    if not nodes:
        return ""
    mine = {gpu.numa_node for share in opened.process.gpus if (gpu := opened.frame.by_uuid.get(share.uuid))}
    known = sorted(str(node) for node in mine if node is not None)
    gpus = f", its GPU{'s' * (len(known) > 1)} on numa {','.join(known)}" if known else ""
    return f" (numa {','.join(sorted(nodes))}{gpus})"


def _overlap(node: Node, cpus: str) -> bool:
    return bool(_numbers(node.cpus) & _numbers(cpus))


def _numbers(text: str) -> set[int]:
    """A list of ranges as the kernel writes it: 0-3,8."""
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if first.isdigit() and (not last or last.isdigit()):
            found.update(range(int(first), min(int(last or first), int(first) + 65536) + 1))
    return found


def _flowing(facts: Sequence[Fact], opened: Opened, width: int, most: int) -> list[Strip]:
    """Facts beside each other in as few lines as hold them; what has no room is left out."""
    lines = [Line(opened.look).add(" ")]
    for fact in facts:
        if lines[-1].cells + draw.cells(fact) + 1 > width and lines[-1].cells > 1:
            if len(lines) == most:
                break
            lines.append(Line(opened.look).add(" "))
        lines[-1].runs(fact).add("  ")
    return [line.strip(width) for line in lines]
