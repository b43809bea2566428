"""The lines on top: which process it is, its owner, its age, and where it may run."""

from __future__ import annotations

from collections.abc import Sequence

from textual.strip import Strip

from gputop import labels, units
from gputop.model import Node, Role
from gputop.ui.details.activity import STATES
from gputop.ui.details.process_view import ProcessView
from gputop.ui.theme import Token
from gputop.ui.widgets import drawing
from gputop.ui.widgets.drawing import Line, Run, wrap

Fact = list[Run]
ROOMY = 100  # cells: narrower, less is said of each
COMMAND = 20  # cells, at least


def names(view: ProcessView) -> list[str]:
    """From the outside in: its job, its rank, its pid."""
    process, found = view.process, []
    if view.job:
        found.append(drawing.cut(view.job.name, 32))
    by_pid = {one.pid: one for one in view.frame.processes}
    rank = process if process.role is Role.TRAINER else by_pid.get(process.parent_pid)
    if rank and rank.role is Role.TRAINER and rank.rank is not None:
        found.append(f"rank{rank.rank}")
    if process.role in (Role.LOADER, Role.LAUNCHER):
        found.append(labels.role(process.role))
    return [*found, str(process.pid)]


def head(view: ProcessView, width: int, most: int) -> list[Strip]:
    """The command, what is known of its life, and its place, in at most `most` lines."""
    life = _life(view, width >= ROOMY, width - COMMAND)
    beside = _beside(life)
    room = max(COMMAND, width - beside)
    command, look = labels.line(view.process), view.look
    lines = wrap(command, room)
    shown = lines[: max(1, most - 1)]
    if len(shown) < len(lines):
        shown[-1] = f"{shown[-1]}{look.glyphs.more}"
    strips = []
    for place, text in enumerate(shown):
        line = Line(look).add(" ").add(drawing.cut(text, room - 1, look.glyphs.more), "bright", bold=True)
        if place == 0:
            line.to(width - beside + 1).runs(run for fact in life for run in (Run("  "), *fact))
        strips.append(line.strip(width))
    return [*strips, *_flowing(_place(view, width >= ROOMY), view, width, max(1, most - len(strips)))][:most]


def _life(view: ProcessView, roomy: bool, most: int) -> list[Fact]:
    """Its user, its state, since when, how nice: what has no room beside the command is left out, whole."""
    process = view.process
    state = process.state or ""
    user = [Run(process.user or units.UNKNOWN, "owner")]
    now = [Run(state, "text"), Run(f" {STATES.get(state, '')}" if roomy else "", "dim")]
    age = [Run("up ", "dim"), Run(units.clock(process.age_s))]
    nice = [
        Run("nice ", "dim"),
        Run(units.UNKNOWN if process.nice is None else str(process.nice), _quiet(process.nice)),
    ]
    facts = [fact for fact in (user, now, age) if fact[0].text] + ([nice] if roomy or process.nice else [])
    for fact in (user, nice, age, now):
        if fact in facts and _beside(facts) > most:
            facts.remove(fact)
    return facts


def _beside(facts: Sequence[Fact]) -> int:
    """Cells of facts at the end of a line, with what is left free around them."""
    return drawing.cells(run for fact in facts for run in fact) + 2 * len(facts) + 2


def _quiet(nice: int | None) -> Token:
    return "text" if nice else "dim"


def _place(view: ProcessView, roomy: bool) -> list[Fact]:
    """The most important first."""
    process, job = view.process, view.job
    facts: list[Fact] = []
    if job:
        step = f".{process.slurm_step}" if process.slurm_step and process.slurm_job == job.slurm_job else ""
        slurm = f" (slurm {job.slurm_job}{step})" if job.slurm_job else ""
        facts.append([Run("job ", "dim"), Run(drawing.cut(job.name, 32)), Run(slurm, "dim")])
    if process.rank is not None:
        total = "" if process.world_size is None else f" of {process.world_size}"
        facts.append([Run("rank ", "dim"), Run(str(process.rank)), Run(total, "dim")])
    if process.local_rank is not None:
        facts.append([Run("local ", "dim"), Run(str(process.local_rank))])
    if view.indexes:
        facts.append([Run("GPU ", "dim"), Run(_some(view.indexes, 16, view.look.glyphs.more))])
    if process.affinity is not None:
        cpus = _some(process.affinity, 20, view.look.glyphs.more)
        facts.append([Run("cpus ", "dim"), Run(cpus), Run(_near(view) if roomy else "", "dim")])
    container = Run(drawing.cut(process.container, 20)) if process.container else Run("none", "dim")
    pod = f" (pod {process.pod[:8]})" if process.pod else ""
    facts.append([Run("container ", "dim"), container, Run(pod, "dim")])
    return facts


def _some(listed: str, most: int, more: str) -> str:
    """The first entries of a list: an entry is not cut, half a number is another one."""
    return listed if len(listed) <= most else f"{listed[: most - 1].rpartition(',')[0]},{more}"


def _near(view: ProcessView) -> str:
    """Which NUMA nodes its CPUs are on, and which its GPUs."""
    nodes = {str(node.number) for node in view.frame.host.nodes if _overlap(node, view.process.affinity or "")}
    if not nodes:
        return ""
    mine = {gpu.numa_node for share in view.process.gpus if (gpu := view.frame.by_uuid.get(share.uuid))}
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


def _flowing(facts: Sequence[Fact], view: ProcessView, width: int, most: int) -> list[Strip]:
    """Facts beside each other in as few lines as hold them; what has no room is left out."""
    lines = [Line(view.look).add(" ")]
    for fact in facts:
        shown = fact if drawing.cells(fact) + 2 <= width else fact[:2]  # what it is: without what else is known of it
        if lines[-1].cells + drawing.cells(shown) + 1 > width and lines[-1].cells > 1:
            if len(lines) == most:
                break
            lines.append(Line(view.look).add(" "))
        lines[-1].runs(shown).add("  ")
    return [line.strip(width) for line in lines]
