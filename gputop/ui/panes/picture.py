"""The screen as a picture: its panes put together, as SVG or as text, without what looks like a secret."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.segment import Segment
from textual.geometry import Region
from textual.strip import Strip

from gputop.safe.text import redact
from gputop.ui.theme import Look
from gputop.ui.widgets import drawing

# a picture that is opened must not load its letters from anywhere
_FONTS = re.compile(r',\s*url\("https:[^")]*"\) format\("\w+"\)')


def composed(width: int, height: int, panes: Iterable[tuple[Region, Sequence[Strip]]], look: Look) -> list[Strip]:
    """Panes that do not overlap as lines of the whole screen, each masked, whatever its pane has masked already."""
    blank = drawing.blank(width, look)
    lines = [blank] * height
    for region, strips in panes:
        for y, strip in zip(range(region.y, min(region.bottom, height)), strips, strict=False):
            left, right = lines[y].crop(0, region.x), lines[y].crop(region.right, width)
            lines[y] = Strip.join([left, masked(strip).adjust_cell_length(region.width), right])
    return lines


def masked(strip: Strip) -> Strip:
    """A line with whatever looks like a secret in what it says masked; the rest keeps how it looks."""
    shown = strip.text
    safe = redact(shown)
    if safe == shown:
        return strip
    start = _alike(shown, safe)
    same = _alike(shown[:start:-1], safe[:start:-1])  # at the ends
    left, right = cell_len(shown[:start]), cell_len(shown[len(shown) - same :])
    hidden = strip.crop(left, strip.cell_length - right)
    style = next((segment.style for segment in hidden), None)
    mask = Segment(safe[start : len(safe) - same], style)
    return Strip.join([strip.crop(0, left), Strip([mask]), strip.crop(strip.cell_length - right)])


def _alike(one: str, other: str) -> int:
    """How many characters both begin with."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(one), len(other)))


def text(lines: Sequence[Strip]) -> str:
    """Without colours, and without blanks at the ends."""
    return "".join(f"{line.text.rstrip()}\n" for line in lines)


def svg(lines: Sequence[Strip], width: int) -> str:
    """With everything that is seen, for a browser."""
    console = Console(
        width=width, file=io.StringIO(), force_terminal=True, color_system="truecolor", record=True,
        legacy_windows=False, markup=False, highlight=False, emoji=False, _environ={},
    )  # fmt: skip
    for line in lines:
        for segment in line:
            console.print(segment.text, style=segment.style, end="", soft_wrap=True)
        console.line()
    drawn = _FONTS.sub("", console.export_svg(title="gputop"))
    # else a renderer drops the blanks at the beginning of a run
    return drawn.replace("<svg ", '<svg xml:space="preserve" ', 1)
