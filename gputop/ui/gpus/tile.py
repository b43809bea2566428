"""One GPU of several side by side: utilisation, memory and power, each with its value and its history."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from textual.strip import Strip

from gputop.model import Gpu
from gputop.optional_sums import mean
from gputop.ui import draw
from gputop.ui.charts import span
from gputop.ui.draw import Line, Run
from gputop.ui.gpus.card import facts, number, of_total, smaller
from gputop.ui.gpus.scene import Scene, memory
from gputop.ui.gpus.state import State
from gputop.ui.look import Token

TILE_LEAST = 6  # lines: name and state, utilisation in two, memory, power, smaller facts
TILE_MOST = 10
TILE_WIDTH = 56
_LABEL = 20  # cells before a history
_TALL_BUSY = 4  # lines of utilisation before memory and power get a second one


def tile(gpu: Gpu, scene: Scene, width: int, height: int) -> list[Strip]:
    """A tile in at most `height` lines."""
    state = scene.states[gpu.uuid]
    strips = [facts(gpu, scene, state, width, values=False)]
    strips += _histories(gpu, scene, state, width, min(TILE_MOST, height) - 2)
    strips.append(smaller(gpu, scene, width))
    return strips[:height]


def _histories(gpu: Gpu, scene: Scene, state: State, width: int, height: int) -> Iterator[Strip]:
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
    yield from _rows(scene, said, busy, 100, tall, width, state.shade("busy area"))
    used, total = memory(gpu, scene.host)
    own = gpu.vram_total_bytes is not None
    held = scene.past.values(*((gpu.uuid, "vram_used_bytes") if own else ("host", "memory_used_bytes")), cells)
    label = "unified " if gpu.unified_memory else "vram "
    rows = 2 if second else 1
    lines = [[Run(label, "dim"), *of_total(used, total, token)]]
    yield from _rows(scene, lines, held, total, rows, width, "dim" if state.stale else "memory area")
    watts = scene.past.values(gpu.uuid, "power_watts", cells)
    limit = gpu.power_limit_watts
    lines = [[Run("power ", "dim"), Run(number(gpu.power_watts), token), Run(f"/{number(limit)}W", "dim")]]
    yield from _rows(scene, lines, watts, limit, rows, width, "dim" if state.stale else "busy area")


def _rows(
    scene: Scene,
    said: Sequence[Sequence[Run]],
    values: Sequence[float | None],
    top: float | None,
    tall: int,
    width: int,
    token: Token,
) -> Iterator[Strip]:
    """A history in so many lines; what is said of it stands at its left."""
    drawn = draw.chart(values, max(1, width - _LABEL - 1), tall, top or 0.0, scene.look)
    for y, row in enumerate(drawn):
        line = Line(scene.look).add(" ")
        if y < len(said):
            line.runs(said[y])
        yield line.to(_LABEL).add(row, token).strip(width)
