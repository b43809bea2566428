"""The columns of the hosts overview, each declared once: screen, text, JSON, sorting and the manual."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gputop import severity, units
from gputop.frozen_dataclass import frozen_dataclass
from gputop.hosts.overview import HostRow
from gputop.optional_sums import mean
from gputop.severity import Levels

ALWAYS = 100


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class HostColumn:
    """One column. `sort` is what rows are ordered by, the largest first unless `ascending`."""

    id: str
    title: str
    width: int
    help: str
    text: Callable[[HostRow], str]
    sort: Callable[[HostRow], Any]
    keep: int  # the lowest yields first on a narrow screen
    right: bool = True
    ascending: bool = False
    falls: bool = False  # ascending order begins with the worst, and is marked as falling
    value: Callable[[HostRow], float | None] | None = None  # coloured by `levels`
    levels: Levels | None = None
    sparkline: Callable[[HostRow], Sequence[float | None]] | None = None  # values from 0 to 100, drawn as a column
    recorded: bool = False  # known only from recorded metrics: elsewhere there is no such column


def _number(name: str) -> Callable[[HostRow], float]:
    """A field for sorting: unknown values last."""

    def value(row: HostRow) -> float:
        found = getattr(row, name)
        return -1.0 if found is None else float(found)

    return value


def _mean(values: Sequence[float | None]) -> float:
    """A mean for sorting: without values last."""
    found = mean(values)
    return -1.0 if found is None else found


def _drawn(_: HostRow) -> str:
    """The text of a column that is drawn."""
    return ""


def _percent(name: str) -> Callable[[HostRow], str]:
    return lambda row: units.percent(getattr(row, name))


def _share(part: int | None, whole: int | None) -> str:
    if whole is None:
        return units.UNKNOWN
    return f"{units.UNKNOWN if part is None else part}/{whole}" if whole else "0"


def _lost(row: HostRow) -> str:
    if row.gpus_lost is None:
        return units.UNKNOWN
    return f"{row.gpus_lost:.1f}" if row.gpus_lost >= 0.05 else "0"


def _age(row: HostRow) -> str:
    if row.age_s is None:
        return units.UNKNOWN
    return f"{row.age_s:.0f}s" if row.age_s < 100 else units.ago(row.age_s).replace(" ", "")


def _power(row: HostRow) -> str:
    watts = row.power_watts
    return units.UNKNOWN if watts is None else f"{watts / 1000:.1f}k" if watts >= 1000 else f"{watts:.0f}"


COLUMNS: tuple[HostColumn, ...] = (
    HostColumn(
        id="host", title="HOST", width=16, right=False, keep=ALWAYS, ascending=True,
        help="the host, by the name given to gputop", text=lambda row: row.name, sort=lambda row: row.name,
    ),
    HostColumn(
        id="gpus", title="BUSY", width=5, keep=90,
        help="GPUs that are busy, of all its GPUs", text=lambda row: _share(row.gpus_busy, row.gpus),
        sort=_number("gpus_busy"),
    ),
    HostColumn(
        id="busy", title="GPU%", width=4, keep=85,
        help="GPU busy, mean of its GPUs", text=_percent("busy_percent"), sort=_number("busy_percent"),
    ),
    HostColumn(
        id="hour", title="LAST HOUR", width=12, keep=58, recorded=True, sparkline=lambda row: row.trend,
        help="GPU busy over the last hour, one mark for 5 min", text=_drawn, sort=lambda row: _mean(row.trend),
    ),
    HostColumn(
        id="vram", title="VRAM%", width=5, keep=60,
        help="device memory in use, of all its GPUs", text=_percent("vram_percent"), sort=_number("vram_percent"),
    ),
    HostColumn(
        id="power", title="POWER", width=5, keep=40,
        help="board power of all its GPUs, in watts", text=_power, sort=_number("power_watts"),
    ),
    HostColumn(
        id="cpu", title="CPU%", width=4, keep=55, value=lambda row: row.cpu_percent, levels=severity.CPU,
        help="CPU time in use, of all CPUs", text=_percent("cpu_percent"), sort=_number("cpu_percent"),
    ),
    HostColumn(
        id="memory", title="RAM%", width=4, keep=50, value=lambda row: row.memory_percent, levels=severity.MEMORY,
        help="host memory in use", text=_percent("memory_percent"), sort=_number("memory_percent"),
    ),
    HostColumn(
        id="jobs", title="JOBS", width=4, keep=70,
        help="jobs, and other programs that use its GPUs", sort=_number("jobs"),
        text=lambda row: units.UNKNOWN if row.jobs is None else str(row.jobs),
    ),
    HostColumn(
        id="lost", title="LOST", width=4, keep=80,
        help="GPU time lost, in GPUs: 4.0 is half the time of eight GPUs", text=_lost, sort=_number("gpus_lost"),
    ),
    HostColumn(
        id="age", title="AGE", width=6, keep=65,
        help="age of the values", text=_age, sort=_number("age_s"),
    ),
    HostColumn(
        id="finding", title="WORST FINDING", width=24, right=False, keep=ALWAYS, ascending=True, falls=True,
        help="the most urgent finding with its subject; without one the state of the jobs, or why no values arrive",
        text=lambda row: row.finding if row.state in ("live", "stale") or not row.why else row.why,
        sort=lambda row: row.urgency,
    ),
)  # fmt: skip
BY_ID = {column.id: column for column in COLUMNS}
TEXT_COLUMNS = tuple(column for column in COLUMNS if not column.sparkline)


def ordered(rows: list[HostRow], by: str, *, reverse: bool = False) -> list[HostRow]:
    """Rows by a column; equal ones by urgency."""
    column = BY_ID[by]
    rows = sorted(rows, key=lambda row: row.urgency)
    return sorted(rows, key=column.sort, reverse=column.ascending is reverse)


def matches(row: HostRow, words: str) -> bool:
    """Whether all words occur in what is known of a host: name, state, users, finding."""
    text = " ".join((row.name, row.state, row.badge, *row.users, row.finding, row.why)).casefold()
    return all(word in text for word in words.casefold().split())
