"""Where each pane stands on a screen of a size: one pure function."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

from gputop.frozen_dataclass import frozen_dataclass
from gputop.safe.terminal import ROOM_FOR_PROCESSES
from gputop.ui.gpus.pane import Density, card_rows, least_lines, lines, pick
from gputop.ui.panes.host import USAGE_GOOD, USAGE_LEAST, USAGE_MOST, USAGE_TELLING

Pane = Literal["gpus", "host", "processes", "advice"]

WIDTH_FOR_PROCESSES, HEIGHT_FOR_PROCESSES = ROOM_FOR_PROCESSES
WIDTH_FOR_HOST = 160
HEIGHT_FOR_REPLAY = 6
GPU_SHARE = 0.45  # of the height, at most
_NOT_GPUS = 14  # lines that stay: 8 for processes, and header, note, advice, replay, prompt, keys
HEIGHT_FOR_PREVIEW, PREVIEW_LINES = 50, 12
HEIGHT_FOR_ADVICE = 30  # from here on it is a pane
_ADVICE_SHORT, _ADVICE_LEAST, _ADVICE_PART = 4, 6, 4  # lines; lines; one line in this number of lines of the screen
_ADVICE_LOW = 7  # of a low screen with few processes: a finding with its sentences in whole
_LEAST_PROCESSES, _FEWEST_PROCESSES = 10, 8  # lines that stay for them beside a pane of advice; where they are few
_ALWAYS_CARDS = 4  # GPUs; more of them have cards only where all processes have their lines as well
_SCROLL = 7  # rows of processes in sight, from which on they scroll where something else is what matters
_AROUND_ROWS = 3  # the rule and the titles above them, and a line of air
_HEIGHT_FOR_COLUMN = 24  # lines in which host and advice stand one above the other
_HEIGHT_FOR_ADVICE_COLUMN = 34  # and in which several findings have their steps
_HOST_SHARE = 0.4  # of them, while there is something to advise


class Rect(NamedTuple):
    """Cells from the top left corner."""

    x: int
    y: int
    width: int
    height: int


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Panes:
    """A place for each pane; None where it is not shown."""

    density: Density
    header: Rect | None = None
    gpus: Rect | None = None
    note: Rect | None = None  # one line: what is missing
    host: Rect | None = None
    processes: Rect | None = None
    advice: Rect | None = None
    notice: Rect | None = None  # one line: too small for processes
    preview: Rect | None = None  # the selected process
    prompt: Rect | None = None  # one line: where something is typed
    jobs: Rect | None = None  # running profiles
    replay: Rect | None = None  # one line: where a recording stands
    keys: Rect | None = None

    @property
    def host_across(self) -> bool:
        """Whether the host has a few lines above the processes, no column beside them."""
        return bool(self.host and self.processes and self.host.y < self.processes.y)


def arrange(
    width: int,
    height: int,
    gpus: int,
    *,
    density: Density | None = None,
    empty: int = 0,
    note: bool = False,
    replay: bool = False,
    jobs: int = 0,
    prompt: bool = False,
    calm: bool = True,
    rows: int | None = None,
    host_leads: bool = False,
    hidden: Collection[Pane] = (),
    zoom: Pane | None = None,
) -> Panes:
    """Places for `gpus` rows (MIG instances count), or for an empty state of `empty` lines where there is none.

    `density` is what the user asked for, else the richest that fits; `zoom` gives one pane all of the middle.
    `jobs` are lines above the keys. `calm`: there is nothing to advise. `rows`: lines that the processes fill; what
    they leave blank shows the host across, where it has no column. `host_leads`: the first finding is about the host,
    which then comes before larger cards and processes that can scroll.
    """
    width, height = max(0, width), max(0, height)
    top, bottom, around = _edges(width, height, replay, jobs)
    if small(width, height):
        return _small(width, top, bottom, gpus, around, advised=not calm and "advice" not in hidden, zoom=zoom)
    bottom -= prompt
    around["prompt"] = _rect(0, bottom, width, int(prompt))
    if zoom is not None:
        middle = {zoom: _rect(0, top, width, bottom - top)}
        return Panes(density=density or pick(width, bottom - top, gpus), **around, **middle)
    return _middle(
        Rect(0, top, width, bottom - top - note), height, gpus, around, density, empty, hidden,
        calm=calm, rows=rows, host_leads=host_leads, note=note,
    )  # fmt: skip


def _middle(
    room: Rect,
    height: int,
    gpus: int,
    around: Mapping[str, Rect | None],
    density: Density | None,
    empty: int,
    hidden: Collection[Pane],
    *,
    calm: bool,
    rows: int | None,
    host_leads: bool,
    note: bool,
) -> Panes:
    """All between the header and what stands above the keys; a note has a line besides, below the GPUs."""
    below, width = {"processes", "host", "advice"} - set(hidden), room.width
    most = min(int(height * GPU_SHARE), height - _NOT_GPUS) if below else room.height
    across = width < WIDTH_FOR_HOST and rows is not None and {"host", "processes"} <= below
    leads = across and host_leads
    spare, usage = room.height, 0
    if {"advice", "processes"} <= below:
        spare -= _others(width, height, min(rows or 0, _SCROLL) if leads else rows, calm)
    if across and density is None:
        usage = _usage(width, gpus, spare)
    density, most = _density(density, width, most, gpus, spare - usage, cards=bool(usage) or not leads)
    tall = 0 if "gpus" in hidden else min(most, lines(density, width, most, gpus) if gpus else empty)
    y = room.y + tall
    above = Panes(density=density, gpus=_rect(0, room.y, width, tall), note=_rect(0, y, width, int(note)), **around)
    rest = Rect(0, y + note, width, room.height - tall)
    return _below(above, rest, height, below, calm=calm, rows=rows, leads=leads)


def _usage(width: int, gpus: int, spare: int) -> int:
    """Lines of the host across the screen that leave all GPUs their cards; 0 where none do."""
    least = least_lines(width, gpus)
    return next((usage for usage in (USAGE_GOOD, USAGE_TELLING) if spare - usage >= least), 0)


def _density(
    density: Density | None, width: int, room: int, gpus: int, spare: int, *, cards: bool
) -> tuple[Density, int]:
    """The density of the GPUs and their lines where all others leave `spare` lines: cards are no taller than that."""
    least = least_lines(width, gpus)
    density = density or pick(width, room, gpus, cards=cards and (gpus <= _ALWAYS_CARDS or spare >= least))
    if not gpus or density != "card":
        return density, room
    room, many = min(room, max(least, spare)), card_rows(width, gpus)
    return density, room - room % many if room > many else room  # what is left over shows nothing in them


def _others(width: int, height: int, rows: int | None, calm: bool) -> int:
    """Lines of processes, of the one that is selected, and of advice: cards are no taller than these leave room for."""
    processes = _lines_for(rows)
    if height < HEIGHT_FOR_ADVICE:
        return min(_LEAST_PROCESSES, processes) + (1 if calm else _ADVICE_SHORT if rows is None else _ADVICE_LOW)
    processes += PREVIEW_LINES if height >= HEIGHT_FOR_PREVIEW else 0
    if width >= WIDTH_FOR_HOST:
        return max(processes, _HEIGHT_FOR_COLUMN if calm else _HEIGHT_FOR_ADVICE_COLUMN)
    return processes + (_ADVICE_SHORT if calm else max(_ADVICE_LEAST, height // _ADVICE_PART - 1))


def _lines_for(rows: int | None) -> int:
    """Lines of the processes in which this number of rows is in sight."""
    return _LEAST_PROCESSES if rows is None else max(_FEWEST_PROCESSES, rows + _AROUND_ROWS)


def small(width: int, height: int) -> bool:
    """Whether there is no room for processes: then there is nothing to hide, and nothing but advice to show alone."""
    return width < WIDTH_FOR_PROCESSES or height < HEIGHT_FOR_PROCESSES


def _below(
    above: Panes, room: Rect, height: int, shown: Collection[str], *, calm: bool, rows: int | None, leads: bool
) -> Panes:
    """What stands below the GPUs of a screen this high: advice under all of it where it has no separate column."""
    preview = PREVIEW_LINES if height >= HEIGHT_FOR_PREVIEW and "processes" in shown else 0
    beside = "host" in shown and room.width >= WIDTH_FOR_HOST and room.height >= _HEIGHT_FOR_COLUMN
    if "advice" in shown and not beside:
        least = min(_LEAST_PROCESSES, _lines_for(rows))
        low = range(_ADVICE_LOW, _ADVICE_SHORT, -1) if rows is not None else ()
        tall = 0
        for usage in (USAGE_TELLING, USAGE_LEAST, 0) if leads else (0,):  # a line of advice alone is too little
            free = room.height - preview - usage
            tall = tall if tall > 1 else _advice_lines(height, free, calm, least, low, alone=set(shown) == {"advice"})
        room = room._replace(height=room.height - tall)
        above = replace(above, advice=_rect(0, room.y + room.height, room.width, tall))
        shown = set(shown) - {"advice"}
    across = 0
    if rows is not None and {"host", "processes"} <= set(shown) and room.width < WIDTH_FOR_HOST:
        across = room.height - preview - _lines_for(rows)
        if leads:
            across = max(across, min(USAGE_TELLING, room.height - preview - min(_LEAST_PROCESSES, _lines_for(rows))))
    if across >= USAGE_LEAST:
        across = min(across, USAGE_MOST)
        above = replace(above, host=_rect(0, room.y, room.width, across))
        room = room._replace(y=room.y + across, height=room.height - across)
        shown = set(shown) - {"host"}
    return _beside(above, room, shown, preview, calm=calm)


def _advice_lines(height: int, room: int, calm: bool, least: int, low: Iterable[int], *, alone: bool) -> int:
    """Lines of the advice below everything else, where `least` stay for processes: a pane, a few, or one."""
    if alone:
        return max(0, room)
    wanted = [max(_ADVICE_LEAST, height // _ADVICE_PART - 1)] if height >= HEIGHT_FOR_ADVICE else list(low)
    if calm:
        wanted = []
    few = [_ADVICE_SHORT] if height >= HEIGHT_FOR_ADVICE or not calm else []
    return next((tall for tall in (*wanted, *few) if room - tall >= least), 1)


def _beside(above: Panes, room: Rect, shown: Collection[str], preview: int, *, calm: bool) -> Panes:
    """Processes, the selected one below them; host and advice at their right, in their place while they are hidden."""
    aside = [name for name in ("host", "advice") if name in shown]
    right = max(50, min(90, room.width // 3)) if room.width >= WIDTH_FOR_HOST and aside else 0
    left, y, tall = room.width - right if "processes" in shown else 0, room.y, room.height - preview
    placed = _stacked(aside, left, y, room.width - left, room.height, calm)
    return replace(
        above,
        processes=_rect(0, y, left, tall),
        preview=_rect(0, y + tall, left, preview),
        host=placed.get("host", above.host),
        advice=placed.get("advice", above.advice),
    )


def _stacked(names: Sequence[str], x: int, y: int, width: int, height: int, calm: bool) -> dict[str, Rect | None]:
    """Host and advice one above the other, or the one of them that is shown."""
    if len(names) < 2:
        return {name: _rect(x, y, width, height) for name in names}
    host = height - _ADVICE_LEAST if calm else int(height * _HOST_SHARE)
    return {"host": _rect(x, y, width, host), "advice": _rect(x, y + host, width, height - host)}


def _edges(width: int, height: int, replay: bool, jobs: int) -> tuple[int, int, dict[str, Rect | None]]:
    """The first line of the middle, the first one below it, and the lines around it."""
    top = 1 if height else 0
    bottom = height - (1 if height >= 3 else 0)
    around = {"header": _rect(0, 0, width, top), "keys": _rect(0, bottom, width, height - bottom)}
    jobs = min(jobs, max(0, bottom - top - 1))
    bottom -= jobs
    around["jobs"] = _rect(0, bottom, width, jobs)
    if replay and height >= HEIGHT_FOR_REPLAY:
        bottom -= 1
        around["replay"] = _rect(0, bottom, width, 1)
    return top, bottom, around


def _small(
    width: int, top: int, bottom: int, gpus: int, around: Mapping[str, Rect | None], *, advised: bool, zoom: Pane | None
) -> Panes:
    """No room for processes: the GPUs, one line of advice where there is any to give, and what is missing."""
    if zoom == "advice":
        return Panes(density="tiny", advice=_rect(0, top, width, bottom - top), **around)
    notice = 1 if bottom - top >= 2 else 0
    advice = 1 if advised and bottom - top - notice >= 2 else 0
    room = bottom - top - notice - advice
    density: Density = "cell" if width >= 36 and lines("cell", width, room, gpus) <= room else "tiny"
    return Panes(
        density=density,
        gpus=_rect(0, top, width, room),
        advice=_rect(0, top + room, width, advice),
        notice=_rect(0, bottom - notice, width, notice),
        **around,
    )


def _rect(x: int, y: int, width: int, height: int) -> Rect | None:
    return Rect(x, y, width, height) if width > 0 and height > 0 else None
