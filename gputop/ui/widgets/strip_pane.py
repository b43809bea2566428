"""A pane on the line API: it is given strips and repaints only the lines that changed."""

from __future__ import annotations

from collections.abc import Sequence

from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget


class Lines(Widget):
    """Draws strips, top to bottom; the rest of the pane is blank."""

    DEFAULT_CSS = "Lines { width: 1fr; height: 1fr; }"

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, markup=False)
        self._strips: tuple[Strip, ...] = ()

    @property
    def strips(self) -> tuple[Strip, ...]:
        """What is drawn now."""
        return self._strips

    def masked(self) -> Sequence[Strip]:
        """What of it goes into a file: a pane that shows command lines masks them as such; see `picture` for others."""
        return self._strips

    def show(self, strips: Sequence[Strip]) -> None:
        """Draw these strips; only lines that differ from the last ones are sent to the terminal."""
        old, new = self._strips, tuple(strips)
        self._strips = new
        width = self.size.width
        changed = [
            Region(0, y, width, 1)
            for y in range(min(max(len(old), len(new)), self.size.height))
            if y >= len(old) or y >= len(new) or (old[y] is not new[y] and old[y] != new[y])
        ]
        if changed:
            self.refresh(*changed)

    def render_lines(self, crop: Region) -> list[Strip]:
        """The lines of a region as they are: what Textual could put around them, a pane does not have."""
        left, right = crop.column_span
        width = self.size.width  # computed again at each access
        lines = [self._fitted(y, width) for y in range(*crop.line_span)]
        return lines if (left, right) == (0, width) else [line.crop(left, right) for line in lines]

    def render_line(self, y: int) -> Strip:
        """One line, cut or padded to the pane's width."""
        return self._fitted(y, self.size.width)

    def _fitted(self, y: int, width: int) -> Strip:
        if y >= len(self._strips):
            return Strip.blank(width, self.rich_style)
        strip = self._strips[y]
        return strip if strip.cell_length == width else strip.adjust_cell_length(width, self.rich_style)
