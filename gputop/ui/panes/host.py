"""The host: a column on a wide screen, a few lines across a narrow one. CPUs, memory, storage, networks over time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from textual.strip import Strip

from gputop import severity, units
from gputop.fit import fit
from gputop.frozen_dataclass import frozen_dataclass
from gputop.model import Frame, Host, Mount, Network, Pressure
from gputop.severity import Levels
from gputop.ui.gpus.scene import GIB
from gputop.ui.gpus.state import GpuHistory
from gputop.ui.theme import Look, Token
from gputop.ui.widgets import drawing
from gputop.ui.widgets.drawing import Chart, Line, Run, beside, most, room, span

USAGE_LEAST, USAGE_TELLING, USAGE_GOOD, USAGE_MOST = 3, 5, 7, 9  # lines: the rule, titles, and a chart in the others
_EACH = 27  # cells of a chart, at least
_TITLE = 12  # cells of the rule beside what stands at its right
_STORAGE = "storage"  # disks and network file systems
_DISK_LEAST, _NETWORK_LEAST = 1e8, 1e7  # the lowest top of an axis, in bytes per second


def usage(frame: Frame, past: GpuHistory, width: int, height: int, look: Look) -> list[Strip]:
    """A rule with what the machine waits for, and as many charts as stand side by side."""
    if width < 4 or height <= 0:
        return []
    count = max(1, min(4, width // _EACH))
    cells = room(width, count)
    charts = [_said_whole(chart, cells) for chart in _chosen_lines([*_charts(frame, past, cells, look)], frame, count)]
    waits = _waits_line(frame, look)
    shown = [Run(f"{span(charts[0].values)}  ", "dim")] if charts else []
    shown = shown if drawing.cells([*shown, *waits]) + _TITLE <= width else []
    top = drawing.rule("host", width, look, right=[*shown, *waits])
    return [top, *beside(charts, width, height - 2, look)][:height]


def _chosen_lines(charts: list[Chart], frame: Frame, count: int) -> list[Chart]:
    """As many of them as fit: what the machine is short of before what it has enough of."""
    host = frame.host
    io_waits = severity.level(_some(host.io_pressure), severity.PRESSURE)
    io_waits = io_waits or severity.level(host.iowait_percent, severity.IO_WAIT)
    short = [bool(io_waits) if chart.title == _STORAGE else chart.tone != "bright" for chart in charts]
    first = sorted(range(len(charts)), key=lambda place: not short[place])[:count]
    return [charts[place] for place in sorted(first)]


def _said_whole(chart: Chart, cells: int) -> Chart:
    """What is said of it in whole, or not at all: half an axis is none."""
    fits = len(f"{chart.title}  {chart.value}  {chart.said}") <= cells
    return chart if fits else replace(chart, said="")


def _charts(frame: Frame, past: GpuHistory, seconds: int, look: Look) -> Iterator[Chart]:
    """The most telling first."""
    host = frame.host

    def values(metric: str) -> list[float | None]:
        return list(past.values("host", metric, max(1, seconds)))

    cores = f"{host.cpus_total} cores" if host.cpus_total else ""
    value, tone = _toned(f"{units.percent(host.cpu_percent)}%", host.cpu_percent, severity.CPU, look)
    yield Chart("cpu", cores, values("cpu_percent"), 100, _shade(tone, "busy area"), value, tone)
    used, total = host.memory_used_bytes, host.memory_total_bytes
    share = severity.share_percent(used, total)
    said = units.UNKNOWN if used is None or not total else f"{used / GIB:.1f}/{total / GIB:.0f}G"
    value, tone = _toned(said, share, severity.MEMORY, look)
    shade = _shade(tone, "memory area")
    yield Chart("mem", f"{units.percent(share)}%", values("memory_used_bytes"), total or 0.0, shade, value, tone)
    for title, signs, metrics, least in (
        (_STORAGE, ("r", "w"), ("read_bytes_per_s", "write_bytes_per_s"), _DISK_LEAST),
        ("net", ("in ", "out "), ("receive_bytes_per_s", "send_bytes_per_s"), _NETWORK_LEAST),
    ):
        rates = [_higher(pair) for pair in zip(*map(values, metrics), strict=True)]
        axis = drawing.ceiling(most(rates), least)
        value = " ".join(f"{sign}{units.rate(getattr(host, name))}" for sign, name in zip(signs, metrics, strict=True))
        value, tone = _toned(value, _port_percent(host) if title == "net" else None, severity.PORT, look)
        yield Chart(title, f"axis {units.rate(axis)}/s", rates, axis, _shade(tone, "busy area"), value, tone)


def _port_percent(host: Host) -> float | None:
    """How much of its speed the busiest port is used, in the busier direction."""
    shares = (
        severity.share_percent(_higher((port.receive_bytes_per_s, port.send_bytes_per_s)), port.speed_bytes_per_s)
        for port in host.networks
        if port.speed_bytes_per_s
    )
    return _higher(tuple(shares))


def _higher(pair: tuple[float | None, ...]) -> float | None:
    """The busier of two directions."""
    return max((value for value in pair if value is not None), default=None)


def _shade(tone: Token, usual: Token) -> Token:
    """The area below a value that is short: what is wrong is not drawn as what is well."""
    return "warn area" if tone == "warn" else "crit area" if tone == "crit" else usual


def _toned(text: str, value: float | None, levels: Levels, look: Look) -> tuple[str, Token]:
    (run,) = drawing.alarmed(text, value, levels, look, "bright")
    return run.text, run.token


def _waits_line(frame: Frame, look: Look) -> list[Run]:
    """`PSI cpu 0 io 12 · load 3.1`: what is waited for, and how much is in line."""
    host = frame.host
    runs: list[Run] = []
    for name, pressure in (("cpu", host.cpu_pressure), ("io", host.io_pressure), ("mem", host.memory_pressure)):
        some = _some(pressure)
        runs += [Run(f"{name} ", "dim"), *drawing.alarmed(units.percent(some), some, severity.PRESSURE, look, "text")]
        runs.append(Run(" "))
    stalled = [Run("PSI ", "dim"), *runs] if any(map(_some, (host.cpu_pressure, host.io_pressure))) else []
    waits = drawing.alarmed(
        f"{units.percent(host.iowait_percent)}%", host.iowait_percent, severity.IO_WAIT, look, "text"
    )
    stalled += [Run(" iowait ", "dim"), *waits] if host.iowait_percent is not None else []
    if host.load:
        stalled += [Run("  load avg ", "dim"), Run(f"{host.load[0]:.1f}"), Run(f"/{host.cpus_total or '?'}", "dim")]
    return stalled


def _some(pressure: Pressure | None) -> float | None:
    return pressure.some_percent if pressure else None


_LABEL, _NAME, _EXTRA = 6, 16, 6
_LEAST_LINE, _MOST_LINE = 8, 40  # cells of a sparkline
_CHART_LEAST, _CHART_MOST = 3, 8  # lines of the CPU chart
_MOST_ROWS = 6  # of disks, of mounts, of networks
_READ_WRITE = ("read_bytes_per_s", "write_bytes_per_s")
_IN_OUT = ("receive_bytes_per_s", "send_bytes_per_s")
Row = list[Run]


@frozen_dataclass(frozen=True, slots=True)
class HostScene:
    """What the rows are drawn from; `width` is without the border."""

    host: Host
    past: GpuHistory
    look: Look
    width: int

    def traffic(self, key: str, metrics: tuple[str, str], used: int, least: float) -> Row:
        """A sparkline of the busier of two rates, on an axis that moves seldom, in what is left of a line."""
        width = min(_MOST_LINE, self.width - used - 2)
        if width < _LEAST_LINE:
            return []
        both = [self.past.values(key, metric, width) for metric in metrics]
        values = [max((v for v in pair if v is not None), default=None) for pair in zip(*both, strict=True)]
        most = max((v for v in values if v is not None), default=0.0)
        line = drawing.sparkline(values, width, drawing.ceiling(most, least), self.look)
        return [Run("  "), Run(line, "busy area" if most >= 1024 else "track")]


@frozen_dataclass(frozen=True, slots=True)
class Section:
    """Rows that come and go together."""

    keep: int  # the lowest goes first
    draw: Callable[[HostScene], list[Row]]
    air: bool = False  # a blank line before it, where there is room


def host(frame: Frame, past: GpuHistory, width: int, height: int, look: Look) -> list[Strip]:
    """The column's lines, its left border included; sections that do not fit go, the least important first."""
    if width < 4 or height <= 0:
        return []
    border = look.glyphs.column
    rows = _chosen(HostScene(frame.host, past, look, width - 3), height - 1)
    title = Strip([look.ink(border, "faint"), *drawing.rule("host", width - 1, look)], width)
    return [title, *(Line(look).add(f"{border} ", "faint").runs(row).strip(width) for row in rows)]


def _chosen(scene: HostScene, height: int) -> list[Row]:
    sections = ((section, rows) for section in SECTIONS if (rows := section.draw(scene)))
    drawn = fit(sections, height, lambda each: len(each[1]), keep=lambda each: each[0].keep)
    spare = height - sum(len(rows) for _, rows in drawn)
    airy = sum(section.air for section, _ in drawn) <= spare
    spare -= sum(section.air for section, _ in drawn) if airy else 0
    result: list[Row] = []
    for number, (section, rows) in enumerate(drawn):
        result += [[]] if section.air and airy else []
        result += rows
        if number == 0 and spare >= _CHART_LEAST:
            result += _cpu_chart(scene, min(_CHART_MOST, spare))
            spare -= min(_CHART_MOST, spare)
    return [*result, *([] for _ in range(height - len(result)))]


def _label(text: str) -> Run:
    return Run(drawing.fit(text, _LABEL), "dim")


def _value(text: str, width: int = 0) -> Run:
    return Run(text.rjust(width), "dim" if text.strip() in ("0", "0%", "0/s", units.UNKNOWN) else "text")


def _percent(value: float | None) -> str:
    return units.UNKNOWN if value is None else f"{value:.0f}%"


def _said(label: str, text: str) -> Row:
    return [Run(f"  {label} ", "dim"), _value(text)]


def _waits(label: str, percent: float | None, levels: Levels, look: Look) -> Row:
    said = _value(_percent(percent))
    return [Run(f"  {label} ", "dim"), *drawing.alarmed(said.text, percent, levels, look, said.token)]


def _bar_width(scene: HostScene) -> int:
    return max(6, min(30, scene.width - _LABEL - 34))


def _cpu(scene: HostScene) -> list[Row]:
    host = scene.host
    full = severity.level(host.cpu_percent, severity.CPU)
    bar = drawing.bar(host.cpu_percent, 100, _bar_width(scene), scene.look, full or "busy")
    cores = f"{host.cpus_total or units.UNKNOWN} cores"
    if host.cpus_allowed is not None and host.cpus_allowed < (host.cpus_total or math.inf) - 0.5:
        cores = f"{host.cpus_allowed:g} of {cores}"
    cpu = drawing.alarmed(f"{_percent(host.cpu_percent):>5}", host.cpu_percent, severity.CPU, scene.look, "bright")
    row = [_label("cpu"), *bar, *cpu, Run(f"  {cores}", "dim")]
    row += _waits("iowait", host.iowait_percent, severity.IO_WAIT, scene.look)
    steals = (host.steal_percent or 0) >= 1
    return [[*row, *(_waits("steal", host.steal_percent, severity.STEAL, scene.look) if steals else [])]]


def _cpu_chart(scene: HostScene, height: int) -> list[Row]:
    values = scene.past.values("host", "cpu_percent", max(1, scene.width))
    return [[Run(row, "busy area")] for row in drawing.chart_lines(values, scene.width, height, 100, scene.look)]


def _cores(scene: HostScene) -> list[Row]:
    cores, width = scene.host.cpu_cores_percent, scene.width - _LABEL
    if len(cores) < 2 or width < _LEAST_LINE or len(cores) > 4 * width:
        return []
    line = "".join(drawing.level(value, 100, scene.look.glyphs.levels) for value in cores)
    each = -(-len(line) // -(-len(line) // width))
    rows = [line[start : start + each] for start in range(0, len(line), each)]
    return [[_label("" if number else "cores"), Run(row, "busy area")] for number, row in enumerate(rows)]


def _memory(scene: HostScene) -> list[Row]:
    host = scene.host
    used, total = host.memory_used_bytes, host.memory_total_bytes
    share = severity.share_percent(used, total)
    bar = drawing.bar(used, total, _bar_width(scene), scene.look, severity.level(share, severity.MEMORY) or "memory")
    said = drawing.alarmed(f"{_percent(share):>5}", share, severity.MEMORY, scene.look, "bright")
    row = [_label("mem"), *bar, *said, Run("  "), _value(units.size(used))]
    return [[*row, Run(f"/{units.size(total)}", "dim"), *_said("cache", units.size(host.memory_cached_bytes))]]


def _cgroup(scene: HostScene) -> list[Row]:
    group = scene.host.cgroup
    if group is None or not (group.memory_limit_bytes or group.cpu_quota):
        return []
    row = [_label("limit")]
    if group.memory_limit_bytes:
        row += [Run("mem ", "dim"), _value(units.size(group.memory_used_bytes))]
        row += [Run(f"/{units.size(group.memory_limit_bytes)}  ", "dim")]
    if group.cpu_quota:
        row += [Run("cpu ", "dim"), _value(f"{group.cpu_quota:g}"), Run(" cores", "dim")]
        row += _waits("throttled", group.throttled_percent, severity.THROTTLED, scene.look)
    return [row]


def _swap(scene: HostScene) -> list[Row]:
    host = scene.host
    row = [_label("swap")]
    if host.swap_total_bytes:
        row += [_value(units.size(host.swap_used_bytes)), Run(f"/{units.size(host.swap_total_bytes)}", "dim")]
        row += _said("in", f"{units.count(host.swap_in_per_s)}/s") + _said(
            "out", f"{units.count(host.swap_out_per_s)}/s"
        )
    else:
        row.append(Run("none" if host.swap_total_bytes == 0 else units.UNKNOWN, "dim"))
    if host.shm_total_bytes:
        row += [*_said("/dev/shm", units.size(host.shm_used_bytes)), Run(f"/{units.size(host.shm_total_bytes)}", "dim")]
    return [row]


def _flow(label: str, name: str, extra: str, first: tuple[str, float | None], second: tuple[str, float | None]) -> Row:
    row = [_label(label), Run(drawing.fit(name, _NAME)), Run(extra.rjust(_EXTRA), "dim")]
    for sign, rate in (first, second):
        row += [Run(sign.rjust(5), "dim"), _value(units.rate(rate), 6)]
    return row


def _storage(scene: HostScene) -> list[Row]:
    rows = []
    for mount in [mount for mount in scene.host.mounts if mount.network][:_MOST_ROWS]:
        row = _flow(
            "NFS", mount.path, _wait(mount), ("r", mount.read_bytes_per_s), ("w", mount.write_bytes_per_s)
        )  # fmt: skip
        rows.append([*row, *scene.traffic(f"mount {mount.path}", _READ_WRITE, drawing.cells(row), 1e8)])
    busiest = sorted(scene.host.disks, key=lambda d: (d.read_bytes_per_s or 0) + (d.write_bytes_per_s or 0))
    for disk in [disk for disk in scene.host.disks if disk in busiest[-_MOST_ROWS:]]:
        busy = "" if disk.busy_percent is None else _percent(disk.busy_percent)
        row = _flow("disk", disk.name, busy, ("r", disk.read_bytes_per_s), ("w", disk.write_bytes_per_s))
        rows.append([*row, *scene.traffic(f"disk {disk.name}", _READ_WRITE, drawing.cells(row), 1e8)])
    return rows


def _wait(mount: Mount) -> str:
    return "" if mount.read_rtt_s is None else f"{mount.read_rtt_s * 1000:.0f}ms"


def _space(scene: HostScene) -> list[Row]:
    rows: list[Row] = []
    for mount in scene.host.mounts[:_MOST_ROWS]:
        row = [
            _label("" if rows else "free"),
            Run(drawing.fit(mount.path, _NAME)),
            Run(mount.file_system.rjust(_EXTRA), "dim"),
        ]
        row += [
            Run("   "),
            _value(units.size(mount.free_bytes), 6),
            Run(f" of {units.size(mount.total_bytes):>5}  ", "dim"),
        ]
        if mount.total_bytes and mount.free_bytes is not None:
            width = max(0, min(10, scene.width - drawing.cells(row)))
            row += drawing.bar(mount.total_bytes - mount.free_bytes, mount.total_bytes, width, scene.look, "memory")
        rows.append(row)
    return rows


def _networks(scene: HostScene) -> list[Row]:
    rows: list[Row] = []
    for label, kind in (("net", "ethernet"), ("IB", "infiniband")):
        ports = [port for port in scene.host.networks if port.kind == kind]
        quiet = [port for port in ports if _quiet(port.receive_bytes_per_s) and _quiet(port.send_bytes_per_s)]
        shown = [port for port in ports if port not in quiet or len(quiet) == 1][:_MOST_ROWS]
        rows += [_port(scene, label, port) for port in shown]
        if len(quiet) > 1:
            rows.append([_label(label), Run(f"{len(quiet)} {'more ' if shown else ''}idle", "dim")])
    return rows


def _quiet(bytes_per_s: float | None) -> bool:
    return bytes_per_s is not None and bytes_per_s < 1024


def _port(scene: HostScene, label: str, port: Network) -> Row:
    speed = f"{port.speed_bytes_per_s * 8 / 1e9:.0f}Gb" if port.speed_bytes_per_s else ""
    row = _flow(label, port.name, speed, ("in", port.receive_bytes_per_s), ("out", port.send_bytes_per_s))
    return [*row, *scene.traffic(f"net {port.name}", _IN_OUT, drawing.cells(row), 1e7)]


def _pressure(scene: HostScene) -> list[Row]:
    host = scene.host
    row = [_label("PSI")]
    named = (("cpu", host.cpu_pressure), ("io", host.io_pressure), ("mem", host.memory_pressure))
    for name, pressure in named:
        value = _value(_stalled(pressure))
        some = pressure.some_percent if pressure else None
        stalled = drawing.alarmed(value.text, some, severity.PRESSURE, scene.look, value.token)
        row += [Run(f"{name} ", "dim"), *stalled, Run("   ", "dim")]
    return [[*row, Run("% of the time stalled", "dim")]]


def _stalled(pressure: Pressure | None) -> str:
    return units.percent(pressure.some_percent if pressure else None)


def _system(scene: HostScene) -> list[Row]:
    host = scene.host
    row = [_label("load"), _value(" ".join(f"{value:.1f}" for value in host.load) if host.load else units.UNKNOWN)]
    row += _said("processes", units.count(host.process_count)) if host.process_count is not None else []
    return [[*row, *(_said("up", units.ago(host.uptime_s)) if host.uptime_s is not None else [])]]


SECTIONS: Sequence[Section] = (
    Section(100, _cpu),
    Section(40, _cores),
    Section(20, _system),
    Section(95, _memory, air=True),
    Section(65, _cgroup),
    Section(60, _swap),
    Section(80, _storage, air=True),
    Section(70, _networks),
    Section(30, _space, air=True),
    Section(90, _pressure, air=True),
)
