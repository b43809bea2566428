"""The overview, drawn: the header, a line per host, jobs on several hosts, details of the selected host. Pure."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
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
from gputop.labels import amount
from gputop.monitor import Update
from gputop.ui.advice.finding_list import urgency
from gputop.ui.panes.header import Piece, joined
from gputop.ui.theme import Ground, Look, Token
from gputop.ui.widgets import drawing
from gputop.ui.widgets.drawing import Line, Run

_GAP = 2
_SHORTEST_NAME, _LONGEST_NAME = 6, 24  # cells
_BADGES: dict[str, tuple[str, Token]] = {
    "crit": ("crit", "crit"), "warn": ("warn", "warn"), "info": ("info", "text"),
    "ok": ("", "good"), "judging": ("", "dim"), "unknown": ("", "dim"), "": ("", "dim"),
}  # fmt: skip
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
    slow_hosts: Mapping[JobKey, SlowHost] = field(default_factory=dict)
    selected: Update | None  # the newest update of the selected host
    label: str  # where the hosts come from


def header(scene: HostsScene, wall_s: float, width: int, look: Look, readonly: bool = False) -> Strip:
    """Sums over all hosts in one line."""
    every = totals(scene.every)
    left: list[Piece] = [(99, [Run(scene.label, "bright", True)])]
    silent = every.hosts - every.live
    left.append(
        (95, [Run(f"{every.live} live", "text"), *([Run(f", {silent} without data", "warn", True)] if silent else [])])
    )
    if every.gpus:
        left.append((90, [Run("GPUs busy ", "dim"), Run(f"{every.gpus_busy}/{every.gpus}", "bright")]))
        lost = f"{every.gpus_lost:.1f}" if every.gpus_lost >= 0.05 else "0"
        left.append((85, [Run("GPUs lost ", "dim"), Run(lost, "warn" if lost != "0" else "dim")]))
    left.append((60, [Run("jobs ", "dim"), Run(str(every.jobs), "bright")]))
    if scene.jobs:
        left.append((55, [Run(f"{len(scene.jobs)} on several hosts", "text")]))
    right: list[Piece] = [(92, [Run(time.strftime("%H:%M:%S", time.localtime(wall_s)), "bright")])]
    if readonly:
        right.append((70, [Run("read-only", "bright")]))
    return joined(left, right, width, look)


def columns(width: int, named: int) -> list[HostColumn]:
    """The columns that fit; the first is as wide as the longest of the names, the last one takes what is left."""
    first = replace(COLUMNS[0], width=max(_SHORTEST_NAME, min(named, _LONGEST_NAME)))
    return fit((first, *COLUMNS[1:]), width - 1, lambda column: column.width + _GAP, always=ALWAYS)


def titles(scene: HostsScene, width: int, look: Look) -> Strip:
    """The line of titles; that of the sorted column is marked."""
    line, named = Line(look), _named(scene)
    for column, left, room in _places(width, named):
        mark = (
            (look.glyphs.up if column.ascending is not scene.reverse else look.glyphs.down)
            if column.id == scene.sort
            else ""
        )
        text = f"{column.title}{mark}"
        line.to(left).add(drawing.fit(text, room, right=column.right), "bright" if mark else "dim", bold=bool(mark))
    return line.strip(width)


def _named(scene: HostsScene) -> int:
    """Cells of the longest name."""
    return max((cell_len(row.name) for row in scene.every), default=0)


def table(scene: HostsScene, width: int, height: int, look: Look) -> list[Strip]:
    """The lines of the hosts in a window of this height."""
    shown = scene.rows[scene.top : scene.top + height]
    named = _named(scene)
    return [
        host_line(row, width, look, named, chosen=scene.top + place == scene.cursor) for place, row in enumerate(shown)
    ]


def host_line(row: HostRow, width: int, look: Look, named: int, *, chosen: bool = False) -> Strip:
    """One host. Values that are old are grey; why there are none stands where the finding would."""
    on: Ground = "selected" if chosen else "background"
    line = Line(look, on)
    if chosen and look.palette.selected is None:
        line.add(look.glyphs.cursor)
    silent = row.state in ("stale", "lost") or (row.state == "connecting" and row.gpus is None)
    for column, left, room in _places(width, named):
        line.to(left)
        if column.id == "finding":
            line.runs(_verdict(row, room, look))
            continue
        text = drawing.fit(column.text(row), room, right=column.right, more=look.glyphs.more)
        token: Token = "bright" if column.id == "host" else "text"
        if silent:
            token = "warn" if column.id == "age" and row.state != "connecting" else "dim"
        elif column.levels and (reached := severity.level(column.value(row) if column.value else None, column.levels)):
            token = reached
        elif text.strip() in ("0", "0s", units.UNKNOWN, "-") or column.id == "age":
            token = "dim"
        elif column.id == "lost":
            token = "warn"
        line.add(text, token, bold=column.id == "host" and not silent)
    return line.strip(width)


def _verdict(row: HostRow, room: int, look: Look) -> list[Run]:
    more = look.glyphs.more
    if row.state == "lost" or (row.state in ("stale", "connecting") and row.why):
        retry = f"; next attempt in {row.retry_in_s:.0f} s" if row.retry_in_s else ""
        return [Run(drawing.cut(f"{look.glyphs.warn} no data: {row.why}{retry}", room, more), "warn", True)]
    if row.state == "connecting":
        return [Run(drawing.cut("connecting", room, more), "dim")]
    sign, token = _BADGES[row.badge]
    glyph = getattr(look.glyphs, sign) if sign else look.glyphs.dot
    text = row.finding + (f" (+{row.findings - 1})" if row.findings > 1 else "")
    weight: Token = "bright" if sign in ("crit", "warn") else token
    return [Run(f"{glyph} ", token, True), Run(drawing.cut(text, max(0, room - len(glyph) - 1), more), weight)]


def _places(width: int, named: int) -> Iterator[tuple[HostColumn, int, int]]:
    """Each column with its left edge and its width."""
    left, shown = 1, columns(width, named)
    for column in shown:
        room = max(1, width - left - 1) if column is shown[-1] else column.width
        yield column, left, room
        left += room + _GAP


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
    ranks = amount(job.ranks, "rank")
    if missing:
        ranks += f" of {job.ranks + len(missing)}"
    line.add(f"  {ranks}, {amount(job.gpus, 'GPU')} on {', '.join(job.hosts)}", "text")
    if worst and not worst.healthy:
        sign, token = _BADGES[worst.severity]
        line.add("  ").add(f"{getattr(look.glyphs, sign or 'info')} ", token, bold=True)
        line.add(finding_text.headline(worst), "bright")
    elif slow := scene.slow_hosts.get(job.key):
        line.add("  ").add(f"{look.glyphs.warn} ", "warn", bold=True)
        line.add(f"straggler host {slow.host}: {slow.text}", "bright")
    return line.strip(width)


def details(row: HostRow | None, update: Update | None, width: int, height: int, look: Look, way: str) -> list[Strip]:
    """What is known of the selected host: its findings with their cost and first step. `way`: the key that opens it."""
    if row is None or height < 2:
        return []
    strips = [drawing.rule(row.name, width, look, right=way)]
    if update is None:
        text = row.why or "connecting: no values yet"
        strips.append(
            Line(look)
            .add(f" {drawing.cut(text, width - 2, look.glyphs.more)}", "warn" if row.why else "dim")
            .strip(width)
        )
        return strips
    shown = sorted((one for one in update.findings if one.confidence >= POSSIBLE), key=urgency)
    for finding in shown:
        if len(strips) >= height:
            break
        strips += _finding_lines(finding, update, width, look)[: height - len(strips)]
    if not shown:
        strips.append(Line(look).add(f" {finding_text.state_counts(update.jobs)}", "dim").strip(width))
    return strips[:height]


def _finding_lines(finding: Finding, update: Update, width: int, look: Look) -> list[Strip]:
    sign, token = ("", "good") if finding.healthy else _BADGES[finding.severity]
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
