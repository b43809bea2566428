"""Where each pane stands on a screen of a size: one pure function."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from gputop.ui.gpus.pane import Density, lines, pick

Pane = Literal["gpus", "host", "processes"]

WIDTH_FOR_PROCESSES, HEIGHT_FOR_PROCESSES = 80, 24
WIDTH_FOR_HOST = 160
_HEIGHT_FOR_REPLAY = 6
GPU_SHARE = 0.45  # of the height, at most
HEIGHT_FOR_PREVIEW, PREVIEW_LINES = 50, 12


class Rect(NamedTuple):
    """Cells from the top left corner."""

    x: int
    y: int
    width: int
    height: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Panes:
    """A place for each pane; None where it is not shown."""

    density: Density
    header: Rect | None = None
    gpus: Rect | None = None
    note: Rect | None = None  # one line: what is missing
    host: Rect | None = None
    processes: Rect | None = None
    notice: Rect | None = None  # one line: too small for processes
    preview: Rect | None = None  # the selected process
    prompt: Rect | None = None  # one line: where something is typed
    replay: Rect | None = None  # one line: where a recording stands
    keys: Rect | None = None


def arrange(
    width: int,
    height: int,
    gpus: int,
    *,
    density: Density | None = None,
    empty: int = 0,
    note: bool = False,
    replay: bool = False,
    prompt: bool = False,
    hidden: Collection[Pane] = (),
    zoom: Pane | None = None,
) -> Panes:
    """Places for `gpus` rows (MIG instances count), or for an empty state of `empty` lines where there is none.

    `density` is what the user asked for, else the richest that fits; `zoom` gives one pane all of the middle.
    """
    width, height = max(0, width), max(0, height)
    top, bottom, around = _edges(width, height, replay)
    if width < WIDTH_FOR_PROCESSES or height < HEIGHT_FOR_PROCESSES:
        return _small(width, top, bottom, gpus, around)
    bottom -= prompt
    around["prompt"] = _rect(0, bottom, width, int(prompt))
    if zoom is not None:
        middle = {zoom: _rect(0, top, width, bottom - top)}
        return Panes(density=density or pick(width, bottom - top, gpus), **around, **middle)
    below = {"processes", "host"} - set(hidden)
    room = int(height * GPU_SHARE) if below else bottom - top - note
    density = density or pick(width, room, gpus)
    tall = 0 if "gpus" in hidden else min(room, lines(density, width, room, gpus) if gpus else empty)
    above = Panes(
        density=density,
        gpus=_rect(0, top, width, tall),
        note=_rect(0, top + tall, width, int(note)),
        **around,
    )
    return _beside(above, width, top + tall + note, bottom, below, height >= HEIGHT_FOR_PREVIEW)


def _beside(above: Panes, width: int, y: int, bottom: int, shown: Collection[str], preview: bool) -> Panes:
    """Processes, the selected one below them, and the host at their right, or in their place while they are hidden."""
    if "processes" not in shown:
        return replace(above, host=_rect(0, y, width, bottom - y) if "host" in shown else None)
    host_width = max(50, min(90, width // 3)) if width >= WIDTH_FOR_HOST and "host" in shown else 0
    left, tall = width - host_width, PREVIEW_LINES if preview else 0
    return replace(
        above,
        processes=_rect(0, y, left, bottom - y - tall),
        preview=_rect(0, bottom - tall, left, tall),
        host=_rect(left, y, host_width, bottom - y),
    )


def _edges(width: int, height: int, replay: bool) -> tuple[int, int, dict[str, Rect | None]]:
    """The first line of the middle, the first one below it, and the lines around it."""
    top = 1 if height else 0
    bottom = height - (1 if height >= 3 else 0)
    around = {"header": _rect(0, 0, width, top), "keys": _rect(0, bottom, width, height - bottom)}
    if replay and height >= _HEIGHT_FOR_REPLAY:
        bottom -= 1
        around["replay"] = _rect(0, bottom, width, 1)
    return top, bottom, around


def _small(width: int, top: int, bottom: int, gpus: int, around: Mapping[str, Rect | None]) -> Panes:
    notice = 1 if bottom - top >= 2 else 0
    room = bottom - top - notice
    density: Density = "cell" if width >= 36 and lines("cell", width, room, gpus) <= room else "tiny"
    return Panes(
        density=density,
        gpus=_rect(0, top, width, room),
        notice=_rect(0, bottom - notice, width, notice),
        **around,
    )


def _rect(x: int, y: int, width: int, height: int) -> Rect | None:
    return Rect(x, y, width, height) if width > 0 and height > 0 else None
