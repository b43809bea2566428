"""The page of experiments: resources that each uses, what slows it, and recommended values for all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from gputop import finding_text, units
from gputop.fit import fit
from gputop.frozen_dataclass import frozen_dataclass
from gputop.labels import amount
from gputop.safe.text import clean
from gputop.ui.advice.scene import AdviceScene, flow
from gputop.ui.widgets import drawing
from gputop.ui.widgets.drawing import Line, Run

if TYPE_CHECKING:
    from gputop.diagnose.experiments import Experiment, Resource, Slower, Together

_GAP = 2
_NAME = 20  # cells, at most
_RESOURCES: dict[Resource, str] = {"cpu": "CPU time", "disk": "storage I/O", "gpu": "GPU time"}


@frozen_dataclass(frozen=True, slots=True)
class Measure:
    """One figure of an experiment."""

    title: str
    text: Callable[[Experiment], str]
    keep: int  # the lowest goes first where it is narrow


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
    Measure("CPUs", lambda one: _number(one.cpus_allowed), 8),
    Measure("USED", lambda one: units.UNKNOWN if one.cores is None else f"{one.cores:.1f}", 5),
    Measure("CPU WAIT%", lambda one: _percent(one.cpu_wait_percent), 7),
    Measure("WORKERS", lambda one: str(one.loaders), 3),
    Measure("READ/s", lambda one: units.rate(one.read_bytes_per_s), 2),
    Measure("I/O SHARE", lambda one: _share(one.io_share), 6),
    Measure("IO%", lambda one: _percent(one.io_wait_percent), 1),
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
    lines = [scene.line(), *_summary(found, scene, width), scene.line(), _row(titles, columns, first, None)]
    for one in found.experiments:
        line = scene.line().add(f"   {names[one.key]}", "bright", bold=True)
        lines += [_row(line, columns, first, one), *_slowed(one, apart, scene, width)]
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


def _row(line: Line, columns: Sequence[tuple[int, Measure]], first: int, one: Experiment | None) -> Line:
    at = first
    for width, column in columns:
        text = column.text(one) if one else column.title
        at += width
        line.to(at - len(text)).add(text, "text" if one and text != units.UNKNOWN else "dim")
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
    parts += [f"{units.rate(moved)}/s storage I/O"] if moved is not None else []
    runs = [Run("   "), Run(f" {scene.look.glyphs.dot} ".join(parts), "text")]
    if found.crowded:
        between = "CPU contention between experiments" if len(found.experiments) > 1 else "CPU oversubscribed"
        runs.append(Run(f"   {between}", "warn", True))
    elif found.full:
        runs.append(Run("   DataLoader workers saturate the CPUs: run fewer experiments at a time", "warn", True))
    return flow(scene, width, runs, 3)


def _slowed(one: Experiment, names: Mapping[str, str], scene: AdviceScene, width: int) -> list[Line]:
    if not one.slowed_by:
        return []
    said = ", ".join(_slower(each, names) for each in one.slowed_by)
    return flow(scene, width, [Run("     slowed by  ", "dim"), Run(said, "warn")], 16)


def _slower(one: Slower, names: Mapping[str, str]) -> str:
    name = names.get(one.experiment or "", clean(one.name))
    return f"{name} ({100 * one.share:.0f} % of {_RESOURCES[one.resource]})"


def _fits(one: Experiment, scene: AdviceScene, width: int) -> list[Line]:
    """Recommended settings, where they differ from its current ones."""
    fit = one.fit
    if fit is None:
        return []
    values = [clean(fit.prefix)] if fit.prefix else []
    values += [f"num_workers={fit.loaders}"] if fit.loaders is not None else []
    runs = [Run("     recommended  ", "dim"), Run("   ".join(values), "command")]
    return flow(scene, width, runs, 18) if values else []
