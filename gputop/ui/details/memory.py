"""The memory tab: where its memory is."""

from __future__ import annotations

from gputop import units
from gputop.model import Memory, Process, metrics
from gputop.ui.details.lines import plain, said
from gputop.ui.details.process_view import ProcessView
from gputop.ui.theme import Token
from gputop.ui.widgets import drawing
from gputop.ui.widgets.drawing import Run
from gputop.ui.widgets.tabs import Body

LABEL, SIZE, BAR = 12, 7, 20  # cells
_OF_PROCESS = ("rss_bytes", "shm_used_bytes")
_ELSE = ("shared_bytes", "swap_bytes", "pss_bytes")  # of the process, too, where there are no details


def body(view: ProcessView, width: int) -> Body:
    """A line for each kind of memory, with what it means."""
    memory, process = view.detail.memory, view.process
    owners, names = ((Process, Memory), _OF_PROCESS) if memory else ((Memory, Process), _OF_PROCESS + _ELSE)
    helps = {metric.name: metric.help for owner in owners for metric in metrics(owner)}
    rows: list[tuple[str, float | None]] = [(name, getattr(process, name)) for name in names]
    if memory:
        rows += [(metric.name, getattr(memory, metric.name)) for metric in metrics(Memory)]
    top = max((value for name, value in rows if value and name != "virtual_bytes"), default=0)
    bar = BAR if width >= 100 else 0
    lines = [_line(view, name, value, top, bar, helps[name]) for name, value in rows]
    if memory is None:
        lines.append([Run(f"the rest: {said(view, 'memory')}", "dim")])
    elif memory.nodes is not None:
        nodes = "   ".join(f"node {number} {units.size(size)}" for number, size in memory.nodes)
        lines.append([Run(f"{'NUMA':{LABEL}}  ", "dim"), Run(nodes or "none")])
    return Body(plain(view, width, lines))


def _line(view: ProcessView, name: str, value: float | None, top: float, bar: int, help: str) -> list[Run]:
    label = name.removesuffix("_bytes").replace("_", " ")
    token: Token = "text" if value else "dim"
    drawn = drawing.bar(None if name == "virtual_bytes" else value, top, bar, view.look, "memory")
    return [
        Run(f"{label:{LABEL}}", "dim"),
        Run(f"{units.size(value):>{SIZE}}  ", token),
        *drawn,
        Run("  " if bar else ""),
        Run(help, "dim"),
    ]
