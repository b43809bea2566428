"""GPUs with room to spare, one or several side by side: facts, charts, smaller facts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from textual.strip import Strip

from gputop import units
from gputop.model import Gpu
from gputop.optional_sums import mean
from gputop.ui.gpus.scene import GIB, GpuScene, load, memory, short_name
from gputop.ui.gpus.state import State
from gputop.ui.theme import Token
from gputop.ui.widgets import drawing
from gputop.ui.widgets.drawing import Chart, Line, Run, beside, most, room, span

CARD_LEAST = 7  # lines: facts, labels, four of chart, smaller facts
CARD_MOST = 15
_BESIDE_NAME = 24  # cells of the index, the temperature and the clock


def card(gpu: Gpu, scene: GpuScene, width: int, height: int) -> list[Strip]:
    """A card in at most `height` lines."""
    state, look = scene.states[gpu.uuid], scene.look
    strips = [facts(gpu, scene, state, width)]
    tall = min(CARD_MOST, height) - 3
    if tall > 0:
        count = _side_by_side(width)
        charts = _charts(gpu, scene, state.shade, room(width, count))[:count]
        strips += beside(charts, width, tall, look, stale=state.stale)
    strips.append(smaller(gpu, scene, width))
    return strips[:height]


def _side_by_side(width: int) -> int:
    return max(2, min(4, width // 40))


def facts(gpu: Gpu, scene: GpuScene, state: State, width: int, *, values: bool = True) -> Strip:
    """Which GPU, its values now, its state; without `values` only those that have no history of their own below."""
    glyphs = scene.look.glyphs
    token: Token = "dim" if state.stale else "text"
    hot: Token = state.token if state.hot else token
    marked = gpu.uuid in scene.marked
    chosen = gpu.uuid == scene.chosen
    index = Run(f" {gpu.index} ", "busy" if marked else "text", marked, marked)
    if chosen:
        index = Run(f"{glyphs.cursor}{gpu.index} ", "busy", True, marked)
    used, total = memory(gpu, scene.host)
    word = f"{getattr(glyphs, state.sign)} {state.word}" if state.sign else state.word
    called = gpu.name if values and width >= 110 else short_name(gpu.name)
    # temperature and clock stay beside the longest name, and beside one that was made to push them away
    name = Run(drawing.cut(called, max(8, width - len(word) - _BESIDE_NAME), glyphs.more), "bright", True)
    temperature, clock = Run(number(gpu.temperature_celsius, "°C"), hot), Run(number(gpu.sm_clock_mhz), hot)
    pieces: list[list[Run]] = [[index, name]]
    if values:
        pieces += [
            [Run("busy ", "dim"), Run(number(gpu.busy_percent, "%"), "dim" if state.stale else "bright")],
            [Run("unified " if gpu.unified_memory else "VRAM ", "dim"), *of_total(used, total, token)],
        ]
    pieces.append([temperature])
    if values:
        pieces.append([Run(number(gpu.power_watts), token), Run(f"/{number(gpu.power_limit_watts)}W", "dim")])
    pieces.append([clock, Run("MHz", "dim")])
    line = Line(scene.look, scene.ground if chosen else "background")
    for piece in pieces:
        if line.cells + drawing.cells(piece) + len(word) + 3 <= width:
            line.runs(piece).add("  ")
    return line.to(width - len(word) - 1).add(word, state.token, bold=bool(state.sign)).strip(width)


def of_total(used: float | None, total: float | None, token: Token) -> list[Run]:
    """Memory in GiB: `61.0/80G`."""
    if used is None or total is None:
        return [Run(units.UNKNOWN, "dim")]
    return [Run(f"{used / GIB:.1f}", token), Run(f"/{total / GIB:.0f}G", "dim")]


def number(value: float | None, unit: str = "") -> str:
    """A whole number with its unit."""
    return units.UNKNOWN if value is None else f"{value:.0f}{unit}"


def _charts(gpu: Gpu, scene: GpuScene, shade: Token, seconds: int) -> list[Chart]:
    def past(metric: str) -> list[float | None]:
        return list(scene.past.values(gpu.uuid, metric, max(1, seconds)))

    busy = past("busy_percent")
    said = f"now {number(gpu.busy_percent)}  avg {number(mean(busy))}  {span(busy)}"
    charts = [Chart("busy %", said, busy, 100, shade)]
    if gpu.vram_total_bytes:
        used = past("vram_used_bytes")
        said = f"{units.size(gpu.vram_used_bytes)}  peak {units.size(most(used))}"
        charts.append(Chart("VRAM %", said, used, gpu.vram_total_bytes, "memory area"))
    if gpu.power_limit_watts:
        watts = past("power_watts")
        said = f"{number(gpu.power_watts)} of {gpu.power_limit_watts:.0f} W  avg {number(mean(watts))}"
        charts.append(Chart("power", said, watts, gpu.power_limit_watts, "busy area"))
    rates = past("pcie_rx_bytes_per_s")
    if (peak := most(rates)) is not None:
        top = drawing.ceiling(peak, 1e8)
        said = f"{units.rate(gpu.pcie_rx_bytes_per_s)}/s  peak {units.rate(peak)}/s  axis {units.rate(top)}/s"
        charts.append(Chart("PCIe rx", said, rates, top, "busy area"))
    return charts


def smaller(gpu: Gpu, scene: GpuScene, width: int) -> Strip:
    """The smaller facts, as many as fit."""
    line = Line(scene.look).add(" ")
    for runs in _small_facts(gpu):
        if line.cells + drawing.cells(runs) < width:
            line.runs(runs).add("   ")
    return line.strip(width)


def _small_facts(gpu: Gpu) -> list[list[Run]]:
    reasons = gpu.throttle_reasons
    held = units.UNKNOWN if reasons is None else ", ".join(sorted(reasons - {"idle"})) or "none"
    rx, tx = gpu.pcie_rx_bytes_per_s, gpu.pcie_tx_bytes_per_s
    facts = [
        [*_fact("PCIe rx/s", units.rate(rx)), *_fact(" tx/s", units.rate(tx))],
        _fact("NVLink rx/s", units.rate(gpu.nvlink_rx_bytes_per_s) if gpu.nvlinks_active else "-"),
        _fact("ECC", units.count(gpu.ecc_uncorrected), "crit" if gpu.ecc_uncorrected else "text"),
        _fact("throttle", held),
    ]
    if gpu.performance_state is not None:
        facts.append([Run(f"P{gpu.performance_state}")])
    where_known = [
        ("tensor", gpu.tensor_percent, "%"),
        ("SM act", gpu.sm_active_percent, "%"),
        ("mem BW", gpu.dram_percent, "%"),
        ("effective load", load(gpu), "%"),
        ("fan", gpu.fan_percent, "%"),
        ("mem temp", gpu.memory_temperature_celsius, "°C"),
    ]
    return facts + [_fact(label, number(value, unit)) for label, value, unit in where_known if value is not None]


def _fact(label: str, text: str, token: Token = "text") -> list[Run]:
    return [Run(f"{label} ", "dim"), Run(text, "dim" if text in ("0", "-", "none", units.UNKNOWN) else token)]


TILE_LEAST = 6  # lines: name and state, utilisation in two, memory, power, smaller facts
TILE_MOST = 10
TILE_WIDTH = 56
_LABEL = 20  # cells before a history
_TALL_BUSY = 4  # lines of utilisation before memory and power get a second one


def tile(gpu: Gpu, scene: GpuScene, width: int, height: int) -> list[Strip]:
    """A tile in at most `height` lines."""
    state = scene.states[gpu.uuid]
    strips = [facts(gpu, scene, state, width, values=False)]
    strips += _histories(gpu, scene, state, width, min(TILE_MOST, height) - 2)
    strips.append(smaller(gpu, scene, width))
    return strips[:height]


def _histories(gpu: Gpu, scene: GpuScene, state: State, width: int, height: int) -> Iterator[Strip]:
    """All three under one time axis, newest at the right: what happens at once stands in one column."""
    cells = max(1, width - _LABEL - 1)
    second = height >= _TALL_BUSY + 4
    tall = max(1, height - (4 if second else 2))
    busy = scene.past.values(gpu.uuid, "busy_percent", cells)
    token: Token = "dim" if state.stale else "bright"
    said = [
        [Run("busy ", "dim"), Run(number(gpu.busy_percent, "%"), token, True)],
        [Run("avg  ", "dim"), Run(number(mean(busy), "%"), "dim")],
        [Run(span(busy), "dim")],
    ]
    yield from _rows(scene, said, busy, 100, tall, width, state.shade)
    used, total = memory(gpu, scene.host)
    own = gpu.vram_total_bytes is not None
    held = scene.past.values(*((gpu.uuid, "vram_used_bytes") if own else ("host", "memory_used_bytes")), cells)
    label = "unified " if gpu.unified_memory else "VRAM "
    rows = 2 if second else 1
    lines = [[Run(label, "dim"), *of_total(used, total, token)]]
    yield from _rows(scene, lines, held, total, rows, width, "dim" if state.stale else "memory area")
    watts = scene.past.values(gpu.uuid, "power_watts", cells)
    limit = gpu.power_limit_watts
    lines = [[Run("power ", "dim"), Run(number(gpu.power_watts), token), Run(f"/{number(limit)}W", "dim")]]
    yield from _rows(scene, lines, watts, limit, rows, width, "dim" if state.stale else "busy area")


def _rows(
    scene: GpuScene,
    said: Sequence[Sequence[Run]],
    values: Sequence[float | None],
    top: float | None,
    tall: int,
    width: int,
    token: Token,
) -> Iterator[Strip]:
    """A history in a number of lines; its labels stand at its left."""
    drawn = drawing.chart_lines(values, max(1, width - _LABEL - 1), tall, top or 0.0, scene.look)
    for y, row in enumerate(drawn):
        line = Line(scene.look).add(" ")
        if y < len(said):
            line.runs(said[y])
        yield line.to(_LABEL).add(row, token).strip(width)
