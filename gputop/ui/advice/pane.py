"""The advice in whatever room it has: one line, a few, or a column."""

from __future__ import annotations

from collections.abc import Sequence

from textual.strip import Strip

from gputop.ui.advice import compact, full
from gputop.ui.advice.scene import AdviceScene

_HEIGHT_FOR_ALL = 14  # lines in which a finding can be told in full


def advice(scene: AdviceScene, width: int, height: int) -> Sequence[Strip]:
    """The pane's lines, at most `height`."""
    if height <= 1:
        return compact.one_line(scene, width)[:height]
    if height < _HEIGHT_FOR_ALL:
        return compact.pane(scene, width, height)
    return full.column(scene, width, height)
