"""The limits tab: what it may use and has used, where it runs, with which rights."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gputop import units
from gputop.model import Limit, Overview
from gputop.ui.details.lines import plain, said
from gputop.ui.details.process_view import ProcessView
from gputop.ui.widgets.drawing import Run
from gputop.ui.widgets.grid import Grid, GridColumn
from gputop.ui.widgets.tabs import Body, Entry

NEAR = 0.8  # of a limit, from which it is marked
LABEL = 20  # cells


def _amount(limit: Limit, value: float | None) -> str:
    if value is None:
        return ""
    if math.isinf(value):
        return "none"
    if limit.unit == "bytes":
        return units.size(value)
    return units.clock(value) if limit.unit == "seconds" else f"{value:.0f}"


def _share(limit: Limit) -> str:
    if limit.used is None or math.isinf(limit.soft) or limit.soft <= 0:
        return ""
    return f"{100 * limit.used / limit.soft:.0f}%"


COLUMNS: tuple[GridColumn[Limit], ...] = (
    GridColumn("LIMIT", LABEL - 2, lambda limit: limit.name, right=False),
    GridColumn("USED", 9, lambda limit: _amount(limit, limit.used), keep=3),
    GridColumn("", 5, _share, keep=4),
    GridColumn("SOFT", 9, lambda limit: _amount(limit, limit.soft)),
    GridColumn("HARD", 9, lambda limit: _amount(limit, limit.hard), keep=2),
    GridColumn("UNIT", 9, lambda limit: "" if limit.unit in ("bytes", "seconds") else limit.unit, right=False, keep=1),
)  # fmt: skip


def body(view: ProcessView, width: int) -> Body:
    """A line for each limit; the program, its folder, its place and rights."""
    limits, grid = view.detail.limits, Grid(COLUMNS, width, view.look)
    if limits is None:
        entries = plain(view, width, [[Run(f"limits: {said(view, 'limits')}", "dim")]], first=-1)
    else:
        entries = [_entry(grid, limit) for limit in limits]
    return Body([*entries, *plain(view, width, [[], *_place(view)])], [grid.titles()] if limits else ())


def _entry(grid: Grid[Limit], limit: Limit) -> Entry:
    near = limit.used is not None and limit.used >= NEAR * limit.soft > 0
    unlimited = math.isinf(limit.soft)
    return Entry(
        limit.name, lambda on, shift: grid.line(limit, on, shift, "bright" if near else "dim" if unlimited else "text")
    )


def _place(view: ProcessView) -> list[Sequence[Run]]:
    process, overview = view.process, view.detail.overview
    facts = [
        ("cgroup", process.cgroup),
        ("may use", None if process.allowed_cpus is None else f"{process.allowed_cpus:g} CPUs"),
        ("memory from nodes", process.memory_nodes),
    ]
    if overview is None:
        return [*map(_line, facts), [Run(f"rights: {said(view, 'overview')}", "dim")]]
    return [_line(fact) for fact in (*_program(overview), *facts, *_rights(overview))]


def _program(overview: Overview) -> list[tuple[str, str | None]]:
    return [("program", overview.exe), ("working folder", overview.folder)]


def _rights(overview: Overview) -> list[tuple[str, str | None]]:
    oom = None if overview.oom_score is None else f"{overview.oom_score} of 1000"
    if oom and overview.oom_adjust:
        oom += f", adjusted by {overview.oom_adjust}"
    spaces = overview.own_namespaces
    return [
        ("scheduling policy", overview.policy),
        ("I/O priority", overview.io_priority),
        ("OOM score", oom),
        ("debugger", f"pid {overview.tracer_pid}" if overview.tracer_pid else "none"),
        ("namespaces", None if spaces is None else f"own {', '.join(spaces)}" if spaces else "same as gputop"),
        ("capabilities", overview.capabilities),
        ("system call filter", overview.seccomp),
    ]


def _line(fact: tuple[str, str | None]) -> list[Run]:
    label, text = fact
    quiet = text in (None, "none", "off")
    return [Run(f"{label:{LABEL}}  ", "dim"), Run(units.UNKNOWN if text is None else text, "dim" if quiet else "text")]
