"""What can stand in a GPU's row: each field with its width, how dearly it is kept, and how it is drawn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field

from gputop import units
from gputop.fit import fit
from gputop.frozen_dataclass import frozen_dataclass
from gputop.model import Gpu
from gputop.ui.gpus.scene import GIB, GpuScene, load, memory, short_name, whole_gib
from gputop.ui.gpus.state import State
from gputop.ui.theme import Token
from gputop.ui.widgets import drawing
from gputop.ui.widgets.drawing import Run

COMFORT = 50  # a field kept less dearly than this comes only where the others have their good width


@frozen_dataclass(frozen=True, slots=True)
class Cell:
    """One field of one GPU, about to be drawn."""

    gpu: Gpu
    state: State
    width: int
    scene: GpuScene


Draw = Callable[[Cell], list[Run]]


@frozen_dataclass(frozen=True, kw_only=True)
class GpuField:
    """One thing in a row. It takes `good` cells where there is room, `least` where there is not, up to `most`."""

    title: str
    draw: Draw
    keep: int  # the lowest goes first
    least: int | Callable[[GpuScene], int]
    good: int = 0
    most: int = 0
    gap: int = 2
    right: bool = True
    needs: str | None = None  # a metric that some GPU must offer
    when: Callable[[GpuScene], bool] = field(default=lambda _: True)

    def width(self, scene: GpuScene) -> int:
        """The fewest cells it can be drawn in."""
        return self.least if isinstance(self.least, int) else self.least(scene)


Place = tuple[GpuField, int, int]  # field, column, cells


def place(fields: Sequence[GpuField], scene: GpuScene, width: int) -> list[Place]:
    """Which fields fit, where, and how wide: the least kept go first, the dearest kept grow first."""
    offered = (f for f in fields if f.when(scene) and (f.needs is None or scene.offered(f.needs)))
    roomy = fit(offered, width, lambda f: f.gap + max(f.width(scene), f.good), always=COMFORT)
    chosen = fit(roomy, width, lambda f: f.gap + f.width(scene))
    widths = {id(f): f.width(scene) for f in chosen}
    spare = width - sum(f.gap + widths[id(f)] for f in chosen)
    for goal in ("good", "most"):
        for f in sorted(chosen, key=lambda f: -f.keep):
            more = max(0, min(spare, getattr(f, goal) - widths[id(f)]))
            widths[id(f)] += more
            spare -= more
    places, column = [], 0
    for f in chosen:
        column += f.gap
        places.append((f, column, widths[id(f)]))
        column += widths[id(f)]
    return places


def _tone(value: float | None, state: State, token: Token = "text") -> Token:
    return "dim" if state.stale or not value else token


def _index(cell: Cell) -> list[Run]:
    idle = cell.gpu.busy_percent is not None and cell.gpu.busy_percent < 1
    marked = cell.gpu.uuid in cell.scene.marked
    token: Token = "busy" if marked else "dim" if cell.state.stale or idle else "text"
    if cell.gpu.parent_uuid:
        return [
            Run(f" {cell.scene.look.glyphs.last[0]}", "faint"),
            Run(drawing.fit(cell.gpu.index, cell.width - 2), token, marked, marked),
        ]
    plain = cell.width if all(each.parent_uuid is None for each in cell.scene.gpus) else 2
    return [Run(drawing.fit(cell.gpu.index, plain, right=True).ljust(cell.width), token, marked, marked)]


def _name(cell: Cell) -> list[Run]:
    return [Run(drawing.fit(short_name(cell.gpu.name), cell.width), "dim")]


def _busy_bar(cell: Cell) -> list[Run]:
    return drawing.bar(cell.gpu.busy_percent, 100, cell.width, cell.scene.look, cell.state.shade)


def _busy(cell: Cell) -> list[Run]:
    value = cell.gpu.busy_percent
    token = _tone(value if value is None or value >= 0.5 else 0, cell.state, "bright")
    return [Run(units.percent(value) + "%" * (value is not None), token)]


def _busy_line(cell: Cell) -> list[Run]:
    values = cell.scene.past.values(cell.gpu.uuid, "busy_percent", cell.width)
    quiet = all(value is None or value < 1 for value in values)
    token: Token = "track" if quiet else cell.state.shade
    return [Run(drawing.sparkline(values, cell.width, 100, cell.scene.look), token)]


def _vram_bar(cell: Cell) -> list[Run]:
    used, total = memory(cell.gpu, cell.scene.host)
    if cell.gpu.unified_memory and cell.gpu.vram_total_bytes is None:
        return [Run(drawing.fit("unified" if cell.width >= 7 else "host", cell.width), "dim")]
    return drawing.bar(used, total, cell.width, cell.scene.look, "dim" if cell.state.stale else "memory area")


def _vram(cell: Cell) -> list[Run]:
    used, total = memory(cell.gpu, cell.scene.host)
    if used is None or total is None:
        return [Run(units.UNKNOWN, "dim")]
    return [
        Run(f"{used / GIB:.1f}", _tone(used, cell.state)),
        Run(f"/{drawing.fit(whole_gib(total), cell.scene.vram_digits, right=True).lstrip()}G", "dim"),
    ]


def _vram_short(cell: Cell) -> list[Run]:
    used = memory(cell.gpu, cell.scene.host)[0]
    return [Run(units.UNKNOWN if used is None else f"{whole_gib(used)}G", _tone(used, cell.state))]


def _celsius(unit: str) -> Draw:
    def text(cell: Cell) -> list[Run]:
        value = cell.gpu.temperature_celsius
        if value is None:
            return [Run(units.UNKNOWN, "dim")]
        return [Run(f"{value:.0f}°{unit}", cell.state.token if cell.state.hot else _tone(value, cell.state))]

    return text


def _power_bar(cell: Cell) -> list[Run]:
    return drawing.bar(cell.gpu.power_watts, cell.gpu.power_limit_watts, cell.width, cell.scene.look, "dim")


def _power(cell: Cell) -> list[Run]:
    value, limit = cell.gpu.power_watts, cell.gpu.power_limit_watts
    if value is None:
        return [Run(units.UNKNOWN, "dim")]
    top = f"/{limit:.0f}" if limit is not None else ""
    return [Run(f"{value:.0f}", _tone(value, cell.state)), Run(f"{top}W", "dim")]


def _power_short(cell: Cell) -> list[Run]:
    value = cell.gpu.power_watts
    return [Run(units.UNKNOWN if value is None else f"{value:.0f}W", _tone(value, cell.state))]


def _clock(cell: Cell) -> list[Run]:
    value = cell.gpu.sm_clock_mhz
    token = cell.state.token if cell.state.hot and value else _tone(value, cell.state)
    return [Run(units.percent(value), token)]


def _load(cell: Cell) -> list[Run]:
    value = load(cell.gpu)
    return [Run(units.percent(value) + "%" * (value is not None), _tone(value and round(value), cell.state))]


def _percent(name: str) -> Draw:
    def text(cell: Cell) -> list[Run]:
        value: float | None = getattr(cell.gpu, name)
        return [Run(units.percent(value) + "%" * (value is not None), _tone(value and round(value), cell.state))]

    return text


def _rate(name: str) -> Draw:
    def text(cell: Cell) -> list[Run]:
        value: float | None = getattr(cell.gpu, name)
        return [Run(units.rate(value), _tone(value if value and value >= 1024 else 0, cell.state))]

    return text


def _sign_width(scene: GpuScene) -> int:
    return len(scene.look.glyphs.crit) + 1


def _state(cell: Cell) -> list[Run]:
    glyphs = cell.scene.look.glyphs
    sign = {"crit": glyphs.crit, "warn": glyphs.warn, "": ""}[cell.state.sign]
    return [
        Run(sign.ljust(_sign_width(cell.scene)), cell.state.token, bool(sign)),
        Run(cell.state.word or units.UNKNOWN, cell.state.token, bool(sign)),
    ]


def _state_short(cell: Cell) -> list[Run]:
    short = cell.state.short
    word = short if len(short) <= cell.width else short.split()[0]
    return [Run(word or units.UNKNOWN, cell.state.token, bool(cell.state.sign))]


def _mixed(scene: GpuScene) -> bool:
    return len({short_name(gpu.name) for gpu in scene.gpus}) > 1


INDEX = GpuField(title="#", draw=_index, keep=100, least=lambda scene: scene.index_width, gap=1)
BUSY = GpuField(title="", draw=_busy, keep=99, least=4, gap=1)
LOAD = GpuField(title="effective load", draw=_load, keep=12, least=14)

ROW = (
    INDEX,
    GpuField(title="", draw=_name, keep=45, least=10, right=False, when=_mixed),
    GpuField(title="busy", draw=_busy_bar, keep=70, least=6, good=14, most=24, right=False),
    BUSY,
    GpuField(title="last", draw=_busy_line, keep=40, least=12, good=18, most=60, right=False),
    GpuField(title="VRAM", draw=_vram_bar, keep=60, least=5, good=10, most=16, right=False),
    GpuField(title="", draw=_vram, keep=95, least=lambda scene: 2 * scene.vram_digits + 4),
    GpuField(title="temp", draw=_celsius("C"), keep=90, least=5, gap=1),
    GpuField(title="", draw=_power_bar, keep=10, least=6, good=8, most=10, gap=3, right=False),
    GpuField(title="power", draw=_power, keep=85, least=lambda scene: 2 * scene.watt_digits + 2),
    GpuField(title="SM MHz", draw=_clock, keep=80, least=6),
    LOAD,
    GpuField(title="tensor", draw=_percent("tensor_percent"), keep=24, least=6, needs="tensor_percent"),
    GpuField(title="SM act", draw=_percent("sm_active_percent"), keep=23, least=6, needs="sm_active_percent"),
    GpuField(title="PCIe rx/s", draw=_rate("pcie_rx_bytes_per_s"), keep=35, least=9, needs="pcie_rx_bytes_per_s"),
    GpuField(title="tx/s", draw=_rate("pcie_tx_bytes_per_s"), keep=20, least=5, needs="pcie_tx_bytes_per_s"),
    GpuField(
        title="NVLink rx/s", draw=_rate("nvlink_rx_bytes_per_s"), keep=15, least=11, needs="nvlink_rx_bytes_per_s"
    ),
    GpuField(title="  state", draw=_state, keep=98, least=lambda scene: _sign_width(scene) + 11, right=False),
)
CELL = (
    INDEX,
    GpuField(title="busy", draw=_busy_bar, keep=70, least=5, good=9, most=16, gap=1, right=False),
    BUSY,
    GpuField(title="last", draw=_busy_line, keep=10, least=8, good=10, most=30, right=False),
    GpuField(title="VRAM", draw=_vram_short, keep=95, least=5, gap=1),
    GpuField(title="temp", draw=_celsius(""), keep=50, least=4, gap=1),
    GpuField(title="pwr", draw=_power_short, keep=60, least=4, gap=1),
    GpuField(title="", draw=_state_short, keep=98, least=4, most=7, gap=1, right=False),
)
TINY = (
    INDEX,
    GpuField(title="busy", draw=_busy_bar, keep=70, least=3, good=6, most=10, gap=1, right=False),
    BUSY,
    GpuField(title="VRAM", draw=_vram_short, keep=80, least=4, gap=1),
    GpuField(title="", draw=_state_short, keep=98, least=4, most=7, gap=1, right=False),
)
