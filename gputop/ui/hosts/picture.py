"""The overview, drawn: the header, a line per host, jobs on several hosts, details of the selected host. Pure."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Mapping, Sequence
from dataclasses import field, replace

from rich.cells import cell_len
from textual.strip import Strip

from gputop import finding_text, severity, units
from gputop.diagnose import Finding
from gputop.diagnose.finding import POSSIBLE
from gputop.fit import fit
from gputop.frozen_dataclass import frozen_dataclass
from gputop.hosts.columns import ALWAYS, COLUMNS, HostColumn
from gputop.hosts.overview import HostRow, totals
from gputop.hosts.slow_host import SlowHost
from gputop.hosts.spanning import JobKey, SpanningJob
from gputop.labels import amount, first
from gputop.monitor import Update
from gputop.ui.advice.finding_list import urgency
from gputop.ui.panes.header import Piece, joined
from gputop.ui.theme import Ground, Look, Token
from gputop.ui.widgets import drawing
from gputop.ui.widgets.drawing import Line, Run

_GAP = 2
_SHORTEST_NAME, _LONGEST_NAME = 6, 24  # cells
BADGES: dict[str, tuple[str, Token]] = {
    "crit": ("crit", "crit"), "warn": ("warn", "warn"), "info": ("info", "text"),
    "ok": ("", "good"), "judging": ("", "dim"), "unknown": ("", "dim"), "": ("", "dim"),
}  # fmt: skip
_NAMED = 3  # hosts without data that are named in a line
MOST_JOBS = 4  # lines of jobs on several hosts
DETAIL_LINES = 9  # of the selected host, where there is room


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class HostsScene:
    """What the overview shows."""

    rows: Sequence[HostRow]  # those shown, in order
    every: Sequence[HostRow]  # all of them
    cursor: int
    top: int
    sort: str
    reverse: bool
    filter: str
    jobs: Sequence[SpanningJob]
    job_findings: Sequence[Finding]  # about jobs on several hosts
    label: str  # what they are called together
    slow_hosts: Mapping[JobKey, SlowHost] = field(default_factory=dict)
    origin: str = ""  # where they come from, if that is not this machine's ssh
    notice: str = ""  # what is wrong with all of them
    waiting: str = ""  # what is waited for, while there are no hosts


def header(scene: HostsScene, wall_s: float, width: int, look: Look, readonly: bool = False) -> Strip:
    """Sums over all hosts in one line."""
    every = totals(scene.every)
    left: list[Piece] = [(99, [Run(scene.label, "bright", True)])]
    stale = sum(row.state == "stale" for row in scene.every)
    silent = every.hosts - every.live - stale
    counts = [Run(f"{every.live} live", "text")]
    for count, said in ((stale, "with old values"), (silent, "no data")):
        if count:
            counts.append(Run(f", {count} {said}", "warn", True))
    left.append((95, counts))
    if every.gpus:
        left.append((90, [Run("GPUs busy ", "dim"), Run(f"{every.gpus_busy}/{every.gpus}", "bright")]))
        lost = f"{every.gpus_lost:.1f}" if every.gpus_lost >= 0.05 else "0"
        left.append((85, [Run("time lost ", "dim"), Run(f"{lost} GPUs", "warn" if lost != "0" else "dim")]))
    left.append((60, [Run("jobs ", "dim"), Run(str(every.jobs), "bright")]))
    if scene.jobs:
        left.append((55, [Run(f"{len(scene.jobs)} on several hosts", "text")]))
    if scene.origin:
        left.append((50, [Run(scene.origin, "dim")]))
    right: list[Piece] = [(92, [Run(time.strftime("%H:%M:%S", time.localtime(wall_s)), "bright")])]
    if readonly:
        right.append((70, [Run("read-only", "bright")]))
    return joined(left, right, width, look)


def notices(scene: HostsScene, width: int, look: Look, way: str) -> list[Strip]:
    """Lines for what is wrong with all hosts, and for a filter that hides some. `way`: the key that ends the filter."""
    found: list[tuple[str, Token]] = []
    if scene.notice:
        found.append((f"{look.glyphs.warn} {scene.notice}", "warn"))
    if scene.filter:
        shown = f"filter {scene.filter}: {len(scene.rows)} of {amount(len(scene.every), 'host')}"
        found.append((f"{shown} {look.glyphs.dot} {way}" if way else shown, "busy"))
    room = max(0, width - 2)
    return [
        Line(look).add(" ").add(drawing.cut(text, room, look.glyphs.more), token, bold=True).strip(width)
        for text, token in found
    ]


class HostTable:
    """The columns that fit a width, with their places.

    The first is as wide as the longest name, the last one takes what is left.
    """

    def __init__(self, rows: Sequence[HostRow], width: int) -> None:
        named = max((cell_len(row.name) for row in rows), default=0)
        recorded = any(row.trend for row in rows)
        first = replace(COLUMNS[0], width=max(_SHORTEST_NAME, min(named, _LONGEST_NAME)))
        known = (first, *(column for column in COLUMNS[1:] if recorded or not column.recorded))
        self.columns = fit(known, width - 1, lambda column: column.width + _GAP, always=ALWAYS)
        self.width = width
        self.places: list[tuple[HostColumn, int, int]] = []  # each with its left edge and its width
        left = 1
        for column in self.columns:
            room = max(1, width - left - 1) if column is self.columns[-1] else column.width
            self.places.append((column, left, room))
            left += room + _GAP


def titles(table: HostTable, sort: str, reverse: bool, look: Look) -> Strip:
    """The line of titles; that of the sorted column is marked."""
    line = Line(look)
    for column, left, room in table.places:
        rises = (column.ascending is not reverse) is not column.falls
        mark = (look.glyphs.up if rises else look.glyphs.down) if column.id == sort else ""
        text = f"{column.title}{mark}"
        line.to(left).add(drawing.fit(text, room, right=column.right), "bright" if mark else "dim", bold=bool(mark))
    return line.strip(table.width)


def lines(scene: HostsScene, table: HostTable, height: int, look: Look) -> list[Strip]:
    """The lines of the hosts in a window of this height."""
    if not scene.every and scene.waiting:
        return [Line(look).add(f" {drawing.cut(scene.waiting, max(0, table.width - 2))}", "dim").strip(table.width)]
    shown = scene.rows[scene.top : scene.top + height]
    return [host_line(row, table, look, chosen=scene.top + place == scene.cursor) for place, row in enumerate(shown)]


def host_line(row: HostRow, table: HostTable, look: Look, *, chosen: bool = False) -> Strip:
    """One host. Values that are old are grey; why there are none stands where the finding would."""
    on: Ground = "selected" if chosen else "background"
    line = Line(look, on)
    if chosen and look.palette.selected is None:
        line.add(look.glyphs.cursor)
    for column, left, room in table.places:
        line.to(left)
        if column.id == "finding":
            line.runs(_verdict(row, room, look))
        elif column.sparkline:
            text = drawing.sparkline(column.sparkline(row), room, 100.0, look)
            line.add(text, "dim" if _silent(row) else "busy")
        else:
            text = drawing.fit(column.text(row), room, right=column.right, more=look.glyphs.more)
            line.add(text, _token(row, column, text.strip()), bold=column.id == "host" and not _silent(row))
    return line.strip(table.width)


def _silent(row: HostRow) -> bool:
    """Whether its values are old, or missing."""
    return row.state in ("stale", "lost") or (row.state == "connecting" and row.gpus is None)


def _token(row: HostRow, column: HostColumn, text: str) -> Token:
    """The colour of a value."""
    if _silent(row):
        return "warn" if column.id == "age" and row.state != "connecting" else "dim"
    if column.levels and (reached := severity.level(column.value(row) if column.value else None, column.levels)):
        return reached
    if text in ("0", "0s", units.UNKNOWN, "-") or column.id == "age":
        return "dim"
    return "warn" if column.id == "lost" else "bright" if column.id == "host" else "text"


def _verdict(row: HostRow, room: int, look: Look) -> list[Run]:
    more = look.glyphs.more
    if row.state == "lost" or (row.state in ("stale", "connecting") and row.why):
        return [Run(drawing.cut(f"{look.glyphs.warn} {_no_data(row)}", room, more), "warn", True)]
    if row.state == "connecting":
        return [Run(drawing.cut("connecting", room, more), "dim")]
    sign, token = BADGES[row.badge]
    glyph = getattr(look.glyphs, sign) if sign else look.glyphs.dot
    text = row.finding + (f" (+{row.findings - 1})" if row.findings > 1 else "")
    weight: Token = "bright" if sign in ("crit", "warn") else token
    if _silent(row):
        token = weight = "dim"
    return [Run(f"{glyph} ", token, True), Run(drawing.cut(text, max(0, room - len(glyph) - 1), more), weight)]


def job_lines(scene: HostsScene, width: int, look: Look) -> list[Strip]:
    """Jobs with ranks on several hosts; of a finding across hosts the headline."""
    if not scene.jobs:
        return []
    strips = [drawing.rule("jobs on several hosts", width, look)]
    strips += [_job_line(job, scene, width, look) for job in scene.jobs[:MOST_JOBS]]
    if len(scene.jobs) > MOST_JOBS:
        more = Line(look).add(f"   {len(scene.jobs) - MOST_JOBS} more", "dim")
        strips.append(more.strip(width))
    return strips


def _job_line(job: SpanningJob, scene: HostsScene, width: int, look: Look) -> Strip:
    key = ":".join(job.key[:2])
    about = [one for one in scene.job_findings if key in one.subject.job_keys and one.confidence >= POSSIBLE]
    worst = min(about, key=urgency, default=None)
    line = Line(look).add(" ").add(drawing.cut(job.name, 24), "bright", bold=True)
    if job.user:
        line.add(f" {job.user}", "owner")
    missing = job.missing_ranks
    ranks = f"{job.ranks} of {job.ranks + len(missing)} ranks seen" if missing else amount(job.ranks, "rank")
    line.add(f"  {ranks}, {amount(job.gpus, 'GPU')} on {', '.join(job.hosts)}", "text")
    if missing:
        silent = [row.name for row in scene.every if row.state != "live"]
        where = f"may be on {first(silent, _NAMED)} (no data)" if silent else "are on no host here"
        line.add(f"; the others {where}", "dim")
    if worst and not worst.healthy:
        sign, token = BADGES[worst.severity]
        line.add("  ").add(f"{getattr(look.glyphs, sign or 'info')} ", token, bold=True)
        line.add(finding_text.headline(worst), "bright")
    elif slow := scene.slow_hosts.get(job.key):
        line.add("  ").add(f"{look.glyphs.warn} ", "warn", bold=True)
        line.add(f"straggler host {slow.host}: {slow.text}", "bright")
    return line.strip(width)


def _no_data(row: HostRow) -> str:
    retry = f"; next attempt in {row.retry_in_s:.0f} s" if row.retry_in_s else ""
    return f"no data: {row.why}{retry}"


def details(row: HostRow | None, update: Update | None, width: int, height: int, look: Look, way: str) -> list[Strip]:
    """What is known of the selected host: its findings with their cost and first step. `way`: the key that opens it."""
    if row is None or height < 2:
        return []
    strips = [drawing.rule(row.name, width, look, right=way)]
    if update is None or row.state == "lost":
        strips += [
            Line(look).add(f" {line}", "warn" if row.why else "dim").strip(width)
            for line in textwrap.wrap(_no_data(row) if row.why else "connecting: no values yet", max(20, width - 2))
        ]
    if update is None:
        return strips[:height]
    shown = sorted((one for one in update.findings if one.confidence >= POSSIBLE), key=urgency)
    for finding in shown:
        if len(strips) >= height:
            break
        strips += _finding_lines(finding, update, width, look)[: height - len(strips)]
    if not shown:
        strips.append(Line(look).add(f" {row.finding}", "dim").strip(width))
    return strips[:height]


def _finding_lines(finding: Finding, update: Update, width: int, look: Look) -> list[Strip]:
    sign, token = ("", "good") if finding.healthy else BADGES[finding.severity]
    glyph = getattr(look.glyphs, sign) if sign else look.glyphs.dot
    line = Line(look).add(f" {glyph} ", token, bold=True)  # type: ignore[arg-type]  # a token of the table
    line.add(
        drawing.cut(finding_text.sentence(finding, update.frame), max(0, width - line.cells - 1), look.glyphs.more),
        "bright",
    )
    if (cost := finding_text.cost(finding)) and line.cells + len(cost) + 3 <= width:
        line.add(f"  {cost}", "dim")
    strips = [line.strip(width)]
    if finding.steps and not finding.healthy:
        step = drawing.cut(finding.steps[0].text, max(0, width - 12), look.glyphs.more)
        strips.append(Line(look).add("   Next: ", "dim").add(step, "text").strip(width))
    return strips
