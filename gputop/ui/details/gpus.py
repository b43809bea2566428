"""The GPU tab: what it has of each of its GPUs, beside what the whole GPU does."""

from __future__ import annotations

from collections.abc import Sequence

from gputop import units
from gputop.model import Gpu, GpuShare
from gputop.process_totals import add
from gputop.ui.details.lines import plain
from gputop.ui.details.process_view import ProcessView
from gputop.ui.gpus.scene import short_name
from gputop.ui.theme import Token
from gputop.ui.widgets import drawing
from gputop.ui.widgets.drawing import Run
from gputop.ui.widgets.tabs import Body

LABEL, OWN, WHOLE, BAR = 16, 10, 18, 24  # cells
EACH_S, MOST_CELLS, LEAST_CELLS = 15, 60, 8  # of a line through the past: seconds a cell, and how long it may be
NARROW = 4, 2  # cells less for a label, and for its own, where there is little room

Row = tuple[str, str, str, float | None, float | None]  # label, own, of the whole GPU, and its value and top for a bar


def body(view: ProcessView, width: int) -> Body:
    """A block of lines for each GPU; what it was allowed to see."""
    lines = _held(view, width)
    for share in view.process.gpus:
        lines += _block(view, share, width)
    if not view.process.gpus:
        lines.append([Run("On no GPU now, according to the driver.", "dim")])
    if (visible := view.process.visible_gpus) is not None:
        lines.append([Run("CUDA_VISIBLE_DEVICES ", "dim"), Run(visible or "(empty: none)")])
    return Body(plain(view, width, lines))


def _held(view: ProcessView, width: int) -> list[Sequence[Run]]:
    """The device memory it held in the last minutes, on all of its GPUs, where it is known and there is room."""
    shares, identity = view.process.gpus, view.process.identity
    many = f", its {len(shares)} GPUs together" if len(shares) > 1 else ""
    room = width - LABEL - len("  now 66.6G  peak 66.6G") - len(many) - 4
    count = min(MOST_CELLS, room)
    known = [value for value in view.past.values(identity, "vram_bytes", count * EACH_S) if value is not None]
    if count < LEAST_CELLS or not known:
        return []
    totals = [gpu.vram_total_bytes for share in shares if (gpu := view.frame.by_uuid.get(share.uuid))]
    top = sum(total or 0 for total in totals) if shares and None not in totals else 0
    values = view.past.values(identity, "vram_bytes", count * EACH_S, EACH_S)
    drawn = drawing.sparkline(values, count, max(top, *known), view.look)
    said = f"now {units.size(add(share.vram_bytes for share in shares))}  peak {units.size(max(known))}{many}"
    minutes = f"vram, {count * EACH_S // 60} min"
    return [[Run(f"{minutes:{LABEL}}", "dim"), Run(drawn, "memory"), Run("  "), Run(said)]]


def _block(view: ProcessView, share: GpuShare, width: int) -> list[Sequence[Run]]:
    gpu = view.frame.by_uuid.get(share.uuid)
    numa = "" if gpu is None or gpu.numa_node is None else f"  numa {gpu.numa_node}"
    name = short_name(gpu.name) if gpu else ""
    title = [Run(f"GPU {view.index(share)}  ", "bright", True), Run(name), Run(f"  {share.kind}{numa}", "dim")]
    narrow = width < LABEL + OWN + WHOLE + 2
    label_cells, own_cells = (LABEL - NARROW[0], OWN - NARROW[1]) if narrow else (LABEL, OWN)
    heads = [Run(f"{'':{label_cells}}{'this pid':>{own_cells}}{'the whole GPU':>{WHOLE}}", "dim")]
    lines: list[Sequence[Run]] = [title, heads]
    bar = min(BAR, max(0, width - LABEL - OWN - WHOLE - 6))
    for label, own, whole, value, top in _rows(share, gpu):
        lines.append(
            [
                Run(f"{label:{label_cells}}", "dim"),
                Run(f"{own:>{own_cells}}", _weight(own, "bright")),
                Run(f"{whole:>{WHOLE}}", _weight(whole, "text")),
                Run("  "),
                *drawing.bar(value, top, bar, view.look, "memory" if label == "vram" else "busy"),
            ]
        )
    return [*lines, []]


def _weight(text: str, token: Token) -> Token:
    return "dim" if text in ("", units.UNKNOWN, "0%", "0") else token


def _rows(share: GpuShare, gpu: Gpu | None) -> list[Row]:
    def of(name: str) -> float | None:
        value: float | None = getattr(gpu, name, None)
        return value

    both = [
        ("busy", share.busy_percent, of("busy_percent")),
        ("memory busy", share.memory_busy_percent, of("memory_busy_percent")),
        ("encoder", share.encoder_percent, of("encoder_percent")),
        ("decoder", share.decoder_percent, of("decoder_percent")),
    ]
    at_all = [row for row in both if row[0] == "busy" or row[1] or row[2]]
    rows: list[Row] = [(name, _percent(own), _percent(whole), whole, 100) for name, own, whole in at_all]
    used, total = of("vram_used_bytes"), of("vram_total_bytes")
    held = f"{units.size(used)} of {units.size(total)}" if total is not None else units.size(used)
    rows.insert(1, ("vram", units.size(share.vram_bytes), held, used, total))
    limit = of("power_limit_watts")
    watts = _number(of("power_watts"), "W") if limit is None else f"{_number(of('power_watts'))} of {limit:.0f}W"
    alone: list[tuple[str, str, str, float | None, float | None]] = [
        ("power", "", watts, of("power_watts"), limit),
        ("temperature", "", _number(of("temperature_celsius"), "°C"), None, None),
        ("sm clock", "", _number(of("sm_clock_mhz"), "MHz"), of("sm_clock_mhz"), of("sm_clock_max_mhz")),
        ("pcie in, out", "", _pair(of("pcie_rx_bytes_per_s"), of("pcie_tx_bytes_per_s")), None, None),
    ]
    return [row for row in (*rows, *alone) if row[1:3] not in ((units.UNKNOWN,) * 2, ("", units.UNKNOWN))]


def _percent(value: float | None) -> str:
    return units.UNKNOWN if value is None else f"{value:.0f}%"


def _number(value: float | None, unit: str = "") -> str:
    return units.UNKNOWN if value is None else f"{value:.0f}{unit}"


def _pair(first: float | None, second: float | None) -> str:
    if first is None and second is None:
        return units.UNKNOWN
    return f"{units.rate(first)}/s {units.rate(second)}/s"
