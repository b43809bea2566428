"""The screen as a picture: its panes put together, as SVG or as text."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Sequence

from rich.console import Console
from textual.geometry import Region
from textual.strip import Strip

from gputop.ui import draw
from gputop.ui.look import Look

# a picture that is opened must not ask anybody for its letters
_FONTS = re.compile(r',\s*url\("https:[^")]*"\) format\("\w+"\)')


def composed(width: int, height: int, panes: Iterable[tuple[Region, Sequence[Strip]]], look: Look) -> list[Strip]:
    """Panes that do not overlap as lines of the whole screen."""
    blank = draw.blank(width, look)
    lines = [blank] * height
    for region, strips in panes:
        for y, strip in zip(range(region.y, min(region.bottom, height)), strips, strict=False):
            left, right = lines[y].crop(0, region.x), lines[y].crop(region.right, width)
            lines[y] = Strip.join([left, strip.adjust_cell_length(region.width), right])
    return lines


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
