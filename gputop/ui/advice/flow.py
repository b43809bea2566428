"""Runs as lines, broken between words: nothing of a sentence is lost where there are lines for it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from rich.cells import cell_len

from gputop.ui.advice.scene import Scene
from gputop.ui.draw import Line, Run

WIDEST = 140  # prose is not read wider
_WORD = re.compile(r"\s+|\S+")


def flow(scene: Scene, width: int, runs: Iterable[Run], indent: int) -> list[Line]:
    """Runs as lines of at most `width` cells, broken between words; those after the first are indented."""
    width = max(indent + 8, min(width, WIDEST)) - 1
    lines = [scene.line()]
    for run in runs:
        for word in _WORD.findall(run.text):
            lines += _placed(word, run, lines, scene, width, indent)
    return lines


def _placed(word: str, run: Run, lines: Sequence[Line], scene: Scene, width: int, indent: int) -> list[Line]:
    """Put a word on the last line; the lines that it begins because it has no room there."""
    last, more = lines[-1], list[Line]()
    if last.cells + cell_len(word) <= width:
        last.add(word, run.token, bold=run.bold, reverse=run.reverse)
        return more
    if word.isspace():
        return more
    if last.cells > indent:
        last = scene.line().add(" " * indent)
        more.append(last)
    while word:
        room = max(1, width - last.cells)
        piece = word if cell_len(word) <= room else _piece(word, room)
        last.add(piece, run.token, bold=run.bold, reverse=run.reverse)
        word = word[len(piece) :]
        if word:
            last = scene.line().add(" " * indent)
            more.append(last)
    return more


def _piece(word: str, room: int) -> str:
    """As much of a word as has room, at least a character."""
    end, cells = 0, 0
    for char in word:
        cells += cell_len(char)
        if cells > room and end:
            break
        end += 1
    return word[:end]
