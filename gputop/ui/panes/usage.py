"""The host in a few lines across the screen, where it has no column: CPUs, memory, disks, networks over time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from textual.strip import Strip

from gputop import severity, units
from gputop.model import Frame, Host, Pressure
from gputop.severity import Levels
from gputop.ui import draw
from gputop.ui.charts import Chart, beside, most, room, span
from gputop.ui.draw import Run
from gputop.ui.gpus.scene import GIB
from gputop.ui.gpus.state import Past
from gputop.ui.look import Look, Token

USAGE_LEAST, USAGE_TELLING, USAGE_GOOD, USAGE_MOST = 3, 5, 7, 9  # lines: the rule, titles, and a chart in the others
_EACH = 27  # cells of a chart, at least
_TITLE = 12  # cells of the rule beside what stands at its right
_DISK_LEAST, _NETWORK_LEAST = 1e8, 1e7  # the lowest top of an axis, in bytes per second


def usage(frame: Frame, past: Past, width: int, height: int, look: Look) -> list[Strip]:
    """A rule with what the machine waits for, and as many charts as stand side by side."""
    if width < 4 or height <= 0:
        return []
    count = max(1, min(4, width // _EACH))
    cells = room(width, count)
    charts = [_said_whole(chart, cells) for chart in _chosen([*_charts(frame, past, cells, look)], frame, count)]
    waits = _waits(frame, look)
    shown = [Run(f"{span(charts[0].values)}  ", "dim")] if charts else []
    shown = shown if draw.cells([*shown, *waits]) + _TITLE <= width else []
    top = draw.rule("host", width, look, right=[*shown, *waits])
    return [top, *beside(charts, width, height - 2, look)][:height]


def _chosen(charts: list[Chart], frame: Frame, count: int) -> list[Chart]:
    """So many of them: what the machine is short of before what it has enough of."""
    host = frame.host
    io_waits = severity.level(_some(host.io_pressure), severity.PRESSURE)
    io_waits = io_waits or severity.level(host.iowait_percent, severity.IO_WAIT)
    short = [bool(io_waits) if chart.title == "disk" else chart.tone != "bright" for chart in charts]
    first = sorted(range(len(charts)), key=lambda place: not short[place])[:count]
    return [charts[place] for place in sorted(first)]


def _said_whole(chart: Chart, cells: int) -> Chart:
    """What is said of it in whole, or not at all: half an axis is none."""
    fits = len(f"{chart.title}  {chart.value}  {chart.said}") <= cells
    return chart if fits else replace(chart, said="")


def _charts(frame: Frame, past: Past, seconds: int, look: Look) -> Iterator[Chart]:
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
        ("disk", ("r", "w"), ("read_bytes_per_s", "write_bytes_per_s"), _DISK_LEAST),
        ("net", ("in ", "out "), ("receive_bytes_per_s", "send_bytes_per_s"), _NETWORK_LEAST),
    ):
        rates = [_higher(pair) for pair in zip(*map(values, metrics), strict=True)]
        axis = draw.ceiling(most(rates), least)
        value = " ".join(f"{sign}{units.rate(getattr(host, name))}" for sign, name in zip(signs, metrics, strict=True))
        value, tone = _toned(value, _port_percent(host) if title == "net" else None, severity.PORT, look)
        yield Chart(title, f"of {units.rate(axis)}/s", rates, axis, _shade(tone, "busy area"), value, tone)


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
    (run,) = draw.alarmed(text, value, levels, look, "bright")
    return run.text, run.token


def _waits(frame: Frame, look: Look) -> list[Run]:
    """`psi cpu 0 io 12 · load 3.1`: what is waited for, and how much is in line."""
    host = frame.host
    runs: list[Run] = []
    for name, pressure in (("cpu", host.cpu_pressure), ("io", host.io_pressure), ("mem", host.memory_pressure)):
        some = _some(pressure)
        runs += [Run(f"{name} ", "dim"), *draw.alarmed(units.percent(some), some, severity.PRESSURE, look, "text")]
        runs.append(Run(" "))
    stalled = [Run("psi ", "dim"), *runs] if any(map(_some, (host.cpu_pressure, host.io_pressure))) else []
    waits = draw.alarmed(f"{units.percent(host.iowait_percent)}%", host.iowait_percent, severity.IO_WAIT, look, "text")
    stalled += [Run(" iowait ", "dim"), *waits] if host.iowait_percent is not None else []
    if host.load:
        stalled += [Run("  load ", "dim"), Run(f"{host.load[0]:.1f}"), Run(f"/{host.cpus_total or '?'}", "dim")]
    return stalled


def _some(pressure: Pressure | None) -> float | None:
    return pressure.some_percent if pressure else None
