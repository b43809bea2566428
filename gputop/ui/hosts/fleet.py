"""The overview of a fleet: lines from Prometheus, the last hour of the selected host, and the way to it by ssh."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from textual.strip import Strip

from gputop import units
from gputop.config import Settings
from gputop.fleet.host_history import HostHistory, HostHour
from gputop.fleet.poller import Fleet
from gputop.fleet.view import FleetFinding, FleetHost, host_of
from gputop.hosts.overview import HostRow
from gputop.hosts.source import RemoteHost
from gputop.hosts.spanning import SpanningJob
from gputop.hosts.ssh import check_destination
from gputop.hosts.watch import HostWatch
from gputop.labels import amount
from gputop.monitor import Monitor
from gputop.optional_sums import mean
from gputop.ui import theme
from gputop.ui.app import Arrived
from gputop.ui.hosts.app import HostsApp
from gputop.ui.hosts.picture import BADGES
from gputop.ui.latest_update import LatestUpdate
from gputop.ui.terminal.guarded import run_guarded
from gputop.ui.theme import Look
from gputop.ui.widgets import drawing
from gputop.ui.widgets.drawing import Line

_CELLS = (60, 30, 20, 12)  # of an hour as a sparkline, the widest that fits
_TITLE, _ASIDE = 16, 25  # cells before and behind it

Reach = Callable[[str], RemoteHost]  # the source of a host by the name that ssh gets


class FleetBoard:
    """Hosts of a Prometheus. One of them at a time is watched over ssh, while its screen is open."""

    def __init__(self, fleet: Fleet, history: HostHistory, reach: Reach, settings: Settings) -> None:
        self._fleet, self._history, self._reach, self._settings = fleet, history, reach, settings
        self._watch: HostWatch | None = None  # that is open, or was asked for
        self._said = 0  # remarks of the fleet
        self._refused: dict[str, str] = {}  # why ssh did not reach a host the last time
        self.again, self.wanted, self.origin = "Refresh", "", fleet.label

    @property
    def label(self) -> str:
        """How many hosts there are."""
        view = self._fleet.view
        return amount(len(view.hosts), "host") if view else "fleet"

    def rows(self) -> Sequence[HostRow]:
        """The newest line of each host."""
        return self._fleet.rows()

    def notice(self) -> str:
        """Why there are no new values, if so."""
        return self._fleet.notice()

    def waiting(self) -> str:
        """Which Prometheus is asked."""
        return f"asking Prometheus at {self._fleet.client.address.place}" if self._fleet.view is None else ""

    def remark(self) -> str:
        """What the fleet has to say once."""
        said, self._said = self._fleet.remarks[self._said :], len(self._fleet.remarks)
        return "; ".join(said)

    def wall_s(self) -> float | None:
        """The time by the clock of Prometheus, to which ages refer."""
        return self._fleet.wall_s()

    def jobs(self) -> Sequence[SpanningJob]:
        """None: metrics do not say which ranks belong together."""
        return ()

    def details(self, row: HostRow | None, width: int, height: int, look: Look, way: str) -> list[Strip]:
        """The findings of the selected host, and its last hour."""
        view = self._fleet.view
        host = view.by_name.get(row.name) if view and row else None
        if host is None or height < 2:
            return []
        hour = self._history.hour(host)
        return details(host, hour, self._refused.get(host.row.name, ""), width, height, look, way)

    def open(self, name: str) -> str:
        """Connect to a host by ssh; returns what to say of that."""
        self._end()
        view = self._fleet.view
        host = view.by_name.get(name) if view else None
        if host is None:
            return f"{name}: no longer listed"
        try:
            check_destination(host.ssh_name)
        except ValueError as error:
            self._refused[name] = str(error)
            return str(error)
        self._refused.pop(name, None)
        self._watch, self.wanted = HostWatch(self._reach(host.ssh_name), self._settings.thresholds), name
        self._watch.start()
        return f"{name}: connecting by ssh"

    def opened(self) -> HostWatch | str:
        """The host that was asked for, once it has values; or why ssh does not reach it."""
        watch, name = self._watch, self.wanted
        if watch is None or not name:
            return ""
        if watch.newest is not None:
            self.wanted = ""
            return watch
        row = watch.row()
        if row.state != "lost" and watch.error is None:
            return ""
        self._refused[name] = f"ssh: {row.why}"
        self._end()
        return f"{name}: {self._refused[name]}"

    def show(self, watch: HostWatch | None) -> None:
        """The connection of a host ends with its screen."""
        if watch is None:
            self._end()

    def reconnect(self) -> str:
        """Ask Prometheus now."""
        self._fleet.hurry.set()
        return "asking Prometheus"

    def close(self) -> None:
        """End everything; returns at once."""
        self._end()
        self._history.close()
        self._fleet.close()

    def _end(self) -> None:
        watch, self._watch, self.wanted = self._watch, None, ""
        if watch:
            watch.close()


def details(
    host: FleetHost, hour: HostHour | None, refused: str, width: int, height: int, look: Look, way: str
) -> list[Strip]:
    """What is known of a host: why it has no values, its findings, and charts of its last hour."""
    strips = [drawing.rule(_title(host), width, look, right=way)]
    if refused:
        strips.append(_line(look, f" {look.glyphs.warn} ", "warn", refused, width))
    if host.row.why:
        strips.append(_line(look, f" {look.glyphs.warn} ", "warn", _silence(host.row), width))
    charts = _charts(host.row, hour, width, look)
    room = max(1, height - len(strips) - len(charts))
    strips += [_finding(one, width, look) for one in host.findings[:room]]
    if not host.findings and not host.row.why and len(strips) + len(charts) < height:
        strips.append(_line(look, " ", "text", host.row.finding or "no finding", width))
    if (more := len(host.findings) - room) > 0 and room > 1:
        strips[-1] = Line(look).add(f"   {more + 1} more", "dim").strip(width)
    elif host.findings and len(strips) + len(charts) < height:
        rule = host.findings[0].rule
        text = f"{way or 'open it'} by ssh · gputop rules {rule}"
        strips.append(_line(look, "   Evidence and steps: ", "dim", text, width))
    return [*strips, *charts][:height]


def _title(host: FleetHost) -> str:
    """Its name, and what it is called elsewhere where that is another name."""
    name = host.row.name
    others = {
        host.hostname: not f"{host.hostname}.".startswith(f"{name}."),
        host.instance: host_of(host.instance) != name,
    }
    shown = [other for other, differs in others.items() if other and differs]
    return f"{name} ({', '.join(shown)})" if shown else name


def _line(look: Look, sign: str, token: theme.Token, text: str, width: int) -> Strip:
    """A sign and a text, cut."""
    line = Line(look).add(sign, token, bold=token == "warn")
    shown = drawing.cut(text.replace(" · ", f" {look.glyphs.dot} "), max(0, width - line.cells - 1), look.glyphs.more)
    return line.add(shown, "text").strip(width)


def _silence(row: HostRow) -> str:
    ago = f"; last values {units.ago_text(row.age_s)} ago" if row.age_s is not None else ""
    return f"no data: {row.why}{ago}"


def _finding(finding: FleetFinding, width: int, look: Look) -> Strip:
    """One finding: subject and headline, and at the right what it costs and how long it has held."""
    sign, token = BADGES[finding.severity]
    line = Line(look).add(f" {getattr(look.glyphs, sign)} ", token, bold=True)
    cost = f"{100 * finding.lost_share:.0f} % of GPU time lost" if finding.lost_share else ""
    since = f"for {units.ago_text(finding.since_s)}" if finding.since_s and finding.since_s >= 1 else ""
    aside = f" {look.glyphs.dot} ".join(part for part in (cost, since) if part)
    line.add(drawing.cut(finding.sentence, max(0, width - line.cells - 1), look.glyphs.more), "bright")
    if aside and line.cells + len(aside) + 3 <= width:
        line.add(f"  {aside}", "dim")
    return line.strip(width)


def _charts(row: HostRow, hour: HostHour | None, width: int, look: Look) -> list[Strip]:
    """GPU busy and GPU time lost over the last hour, a line each."""
    if hour is None:
        text = "reading the last hour" if row.state != "lost" else ""
        return [Line(look).add(f" {text}", "dim").strip(width)] * 2 if text else []
    if hour.why:
        return [_line(look, " ", "dim", f"last hour unknown: {hour.why}", width)]
    if not any(value is not None for value in hour.busy):
        return []
    charts = [_chart("busy, all GPUs", hour.busy, "busy", width, look)]
    if any(hour.lost):
        charts.append(_chart("lost, all GPUs", hour.lost, "warn", width, look))
    return charts


def _chart(title: str, values: Sequence[float | None], token: theme.Token, width: int, look: Look) -> Strip:
    """A sparkline from 0 to 100 %, with its mean and where it ends."""
    cells = next((cells for cells in _CELLS if _TITLE + cells + _ASIDE <= width), _CELLS[-1])
    each = max(1, len(values) // cells)  # values of one mark
    marks = [mean(values[place : place + each]) for place in range(0, len(values), each)]
    line = Line(look).add(f" {title}", "text").to(_TITLE).add(drawing.sparkline(marks, cells, 100.0, look), token)
    known = [value for value in values if value is not None]
    if (average := mean(values)) is not None:
        line.add(f" {known[-1]:3.0f} %", "bright").add(f"  mean of 1 h {average:.0f} %", "dim")
    return line.strip(width)


def show(fleet: Fleet, monitor: Monitor, latest: LatestUpdate, reach: Reach, settings: Settings) -> NoReturn:
    """Show a running fleet on this terminal until the user quits; ends the process."""
    look = theme.choose(settings.theme, settings.ascii, getattr(sys.stdout, "encoding", None), os.environ)

    def make(guard: object) -> HostsApp:
        history = HostHistory(fleet)
        app = HostsApp(FleetBoard(fleet, history, reach, settings), monitor, latest, settings, look, guard)  # type: ignore[arg-type]
        history.ring = lambda: app.post_message(Arrived())
        return app

    run_guarded(make, settings.mouse, settings.readonly)
