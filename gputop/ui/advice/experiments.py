"""The page of experiments: resources that each uses, what slows it, and recommended values for all of them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from gputop import finding_text, severity, units
from gputop.fit import fit
from gputop.frozen_dataclass import frozen_dataclass
from gputop.labels import amount
from gputop.model import Role
from gputop.safe.text import clean
from gputop.severity import Levels
from gputop.ui.advice.scene import AdviceScene, flow
from gputop.ui.theme import Look
from gputop.ui.widgets import drawing
from gputop.ui.widgets.drawing import Line, Run

if TYPE_CHECKING:
    from gputop.diagnose.experiments import Experiment, Resource, Slower, Together

_GAP = 2
_NAME = 20  # cells, at most
_RESOURCES: dict[Resource, str] = {"cpu": "all CPUs", "disk": "all storage I/O", "gpu": "the GPU time"}
_OTHERS = 0.05  # least share of the storage I/O that other programs are named for


@frozen_dataclass(frozen=True, slots=True)
class Measure:
    """One figure of an experiment."""

    title: str
    text: Callable[[Experiment], str]
    keep: int  # the lowest goes first where it is narrow
    value: Callable[[Experiment], float | None] | None = None  # coloured from these levels on
    levels: Levels = Levels(math.inf)


def _percent(value: float | None) -> str:
    return units.UNKNOWN if value is None else f"{value:.0f}%"


def _share(value: float | None) -> str:
    return _percent(None if value is None else 100 * value)


def _number(value: float | None) -> str:
    return units.UNKNOWN if value is None else f"{value:.0f}"


MEASURES = (
    Measure("GPU%", lambda one: _percent(one.gpu_busy_percent), 10),
    Measure("THREADS", lambda one: _number(one.threads_asked), 9),
    Measure("RUNNABLE", lambda one: _number(one.threads_wanting), 4),
    Measure("ALLOWED CPUS", lambda one: _number(one.cpus_allowed), 8),
    Measure("USED CPUS", lambda one: units.UNKNOWN if one.cores is None else f"{one.cores:.1f}", 5),
    Measure(
        "CPU WAIT%", lambda one: _percent(one.cpu_wait_percent), 7, lambda one: one.cpu_wait_percent, severity.WAIT
    ),
    Measure("WORKERS", lambda one: str(one.loaders), 3),
    Measure("READ/s", lambda one: units.rate(one.read_bytes_per_s), 2),
    Measure("OF ALL I/O", lambda one: _share(one.io_share), 6),
    Measure("IO%", lambda one: _percent(one.io_wait_percent), 1, lambda one: one.io_wait_percent, severity.IO_WAIT),
)


def experiments(scene: AdviceScene, width: int) -> Sequence[Line]:
    """The machine, then each experiment: its figures, which others slow it, recommended settings."""
    found = scene.together() if scene.together else None
    if found is None or not found.experiments:
        return [scene.line(), scene.line().add("   No training job is running.", "dim")]
    names = _names(found.experiments, scene)
    alike = Counter(one.name for one in found.experiments)
    apart = {one.key: names[one.key] for one in found.experiments if alike[one.name] > 1}
    first = max(len("EXPERIMENT"), *(len(name) for name in names.values())) + 3
    columns = _fitting(found.experiments, width - first)
    titles = scene.line().add("   EXPERIMENT", "dim")
    lines = [scene.line(), *_summary(found, scene, width), scene.line(), _row(titles, columns, first, None, scene.look)]
    for one in found.experiments:
        line = scene.line().add(f"   {names[one.key]}", "bright", bold=True)
        lines += [_row(line, columns, first, one, scene.look), *_slowed(one, apart, scene, width)]
        lines += [*_fits(one, scene, width), scene.line()]
    return lines


def _names(found: Sequence[Experiment], scene: AdviceScene) -> dict[str, str]:
    """The name of each by its key, with a PID where names are equal."""
    names = {one.key: _name(one, scene) for one in found}
    many = Counter(names.values())
    return {
        one.key: f"{names[one.key]} pid {one.trainers[0].pid}" if many[names[one.key]] > 1 else names[one.key]
        for one in found
    }


def _name(one: Experiment, scene: AdviceScene) -> str:
    gpus = finding_text.gpus(one.gpus, scene.update.frame)
    return f"{drawing.cut(clean(one.name), _NAME, scene.look.glyphs.more)} {gpus}".rstrip()


def _width(measure: Measure, found: Sequence[Experiment]) -> int:
    return max(len(measure.title), *(len(measure.text(one)) for one in found)) + _GAP


def _fitting(found: Sequence[Experiment], room: int) -> list[tuple[int, Measure]]:
    sized = ((_width(measure, found), measure) for measure in MEASURES)
    return fit(sized, room - 1, lambda each: each[0], keep=lambda each: each[1].keep)


def _row(line: Line, columns: Sequence[tuple[int, Measure]], first: int, one: Experiment | None, look: Look) -> Line:
    at = first
    for width, column in columns:
        text = column.text(one) if one else column.title
        value = column.value(one) if one and column.value else None
        runs = drawing.alarmed(text, value, column.levels, look, "text" if one and text != units.UNKNOWN else "dim")
        at += width
        line.to(at - drawing.cells(runs)).runs(runs)
    return line


def _summary(found: Together, scene: AdviceScene, width: int) -> list[Line]:
    here = "" if found.cpus is None else f" on {amount(found.cpus, 'CPU')}"
    parts = [f"{amount(len(found.experiments), 'experiment')}{here}"]
    parts += [f"{found.cpu_percent:.0f} % of all CPUs used"] if found.cpu_percent is not None else []
    parts += [f"{amount(found.threads_asked, 'compute thread')}"] if found.threads_asked is not None else []
    wanting, asked = found.threads_wanting, found.threads_asked
    of_them = " of them" if asked is not None and wanting is not None and wanting <= asked else ""
    parts += [f"{wanting:.0f}{of_them} runnable"] if wanting is not None else []
    moved = found.moved_bytes_per_s
    parts += [f"{units.rate(moved)}/s storage I/O{_others(found)}"] if moved is not None else []
    lines = flow(scene, width, [Run("   "), Run(f" {scene.look.glyphs.dot} ".join(parts), "text")], 3)
    if found.crowded:
        said = "CPU contention between experiments" if len(found.experiments) > 1 else "CPU oversubscribed"
    elif found.full:
        said = "DataLoader workers saturate the CPUs: run fewer experiments at a time"
    else:
        return lines
    return [*lines, *flow(scene, width, [Run(f"   {said}", "warn", True)], 3)]


def _others(found: Together) -> str:
    """What part of the storage I/O no experiment accounts for."""
    shares = [one.io_share for one in found.experiments]
    rest = 1.0 - sum(share or 0.0 for share in shares)
    return f", {100 * rest:.0f} % of it by other programs" if None not in shares and rest >= _OTHERS else ""


def _slowed(one: Experiment, names: Mapping[str, str], scene: AdviceScene, width: int) -> list[Line]:
    if not one.slowed_by:
        return []
    ordered = sorted(one.slowed_by, key=lambda each: [*_RESOURCES].index(each.resource))
    said = [
        _slower(each, names, each.resource != before) for each, before in zip(ordered, _before(ordered), strict=True)
    ]
    return flow(scene, width, [Run("     slowed by    ", "dim"), Run(", ".join(said), "warn")], 18)


def _before(ordered: Sequence[Slower]) -> list[Resource | None]:
    return [None, *(each.resource for each in ordered[:-1])]


def _slower(one: Slower, names: Mapping[str, str], first: bool) -> str:
    """`sweep-2 (uses 24 % of all CPUs)`; of the next that use the same, `sweep-1 (24 %)`."""
    name = names.get(one.experiment or "", clean(one.name))
    share = f"{100 * one.share:.0f} %"
    return f"{name} (uses {share} of {_RESOURCES[one.resource]})" if first else f"{name} ({share})"


def _fits(one: Experiment, scene: AdviceScene, width: int) -> list[Line]:
    """The command to restart it with, where that differs from the current one."""
    fit = one.fit
    if fit is None:
        return []
    values = [f"{clean(fit.prefix)} {_command(one, scene)}"] if fit.prefix else []
    values += [f"num_workers={fit.loaders}"] if fit.loaders is not None else []
    runs = [Run("     restart with ", "dim")]
    for value in values:
        runs += [*([Run("  and  ", "dim")] if len(runs) > 1 else []), Run(value, "command")]
    return flow(scene, width, runs, 18) if values else []


def _command(one: Experiment, scene: AdviceScene) -> str:
    """What starts the whole of it, where one process does."""
    from gputop.diagnose.start_command import is_whole_command, start_command  # late: only this page needs it

    frame = scene.update.frame
    job = next((job for job in frame.jobs if job.key == one.key), None)
    first = frame.by_identity.get(job.members[0]) if job and job.members else None
    if first is None or not ((first.role is Role.LAUNCHER and first.command) or is_whole_command(first, job)):
        return "COMMAND"
    return clean(start_command(first))
