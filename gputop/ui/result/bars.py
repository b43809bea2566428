"""Parts of a whole as lines with bars: the phases of a step, what the time of a GPU goes to."""

from __future__ import annotations

from collections.abc import Sequence

from textual.strip import Strip

from gputop.frozen_dataclass import frozen_dataclass
from gputop.ui.theme import Look, Token
from gputop.ui.widgets import drawing
from gputop.ui.widgets.drawing import Line

NAME = 28  # cells


@frozen_dataclass(frozen=True, slots=True)
class BarPart:
    """One part: its share, 0 to 1; None where it is a headline among them."""

    name: str
    share: float | None
    said: str = ""
    token: Token = "busy"


def strips(parts: Sequence[BarPart], width: int, look: Look) -> list[Strip]:
    """A line each, all bars on the same scale, from nothing to all."""
    name = min(NAME, max(10, width // 3))
    said = max((len(part.said) for part in parts), default=0)
    room = max(4, width - name - said - 12)
    lines = []
    for part in parts:
        if part.share is None:
            lines.append(Line(look).add(f" {part.name}", "dim").strip(width))
            continue
        line = Line(look).add("  ").add(drawing.fit(part.name, name, more=look.glyphs.more), "text")
        line.add(f"{100 * part.share:5.1f}% ", "bright" if part.share >= 0.005 else "dim")
        line.runs(drawing.bar(part.share, 1.0, room, look, part.token))
        lines.append(line.add("  ").add(part.said, "dim").strip(width))
    return lines
