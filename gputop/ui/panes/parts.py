"""What the panes around the table show of one frame, by the name of the pane."""

from __future__ import annotations

from collections.abc import Sequence

from textual.strip import Strip

from gputop.frozen_dataclass import frozen_dataclass
from gputop.model import Frame
from gputop.ui.advice.pages import AdvicePage, expanded
from gputop.ui.advice.pane import advice
from gputop.ui.advice.scene import AdviceScene
from gputop.ui.advice.states import States
from gputop.ui.gpus.pane import Density, gpus
from gputop.ui.gpus.state import GpuHistory
from gputop.ui.panes import empty
from gputop.ui.panes.header import Status, header
from gputop.ui.panes.host import host, usage
from gputop.ui.panes.layout import HEIGHT_FOR_PROCESSES, WIDTH_FOR_PROCESSES, Rect
from gputop.ui.panes.preview import preview
from gputop.ui.table.row import TableRow
from gputop.ui.theme import Look
from gputop.ui.widgets import drawing
from gputop.ui.widgets.drawing import Line


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """One frame and the view of it."""

    frame: Frame
    past: GpuHistory
    status: Status
    density: Density
    first_gpu: int
    host_across: bool
    selected: TableRow | None
    look: Look
    scene: AdviceScene  # of the advice
    states: States
    page: AdvicePage | None = None  # of the advice, while it is alone
    page_first: int = 0  # its topmost line
    gpu: str | None = None  # by uuid the GPU that the keys are about
    only_gpu: str | None = None  # and the one whose processes alone are shown

    def strips(self, name: str, rect: Rect) -> Sequence[Strip]:
        """The lines of a pane."""
        draw = {
            "header": self._header,
            "gpus": self._gpus,
            "note": self._note,
            "host": self._host,
            "preview": self._preview,
            "advice": self._advice,
        }
        return draw.get(name, self._notice)(rect)

    def _header(self, rect: Rect) -> Sequence[Strip]:
        return [header(self.frame, rect.width, self.look, self.status)]

    def _gpus(self, rect: Rect) -> Sequence[Strip]:
        frame, look = self.frame, self.look
        if not frame.gpus:
            return empty.without_gpus(frame, rect.width, look)
        return gpus(
            frame, self.past, rect.width, rect.height, look, density=self.density, first=self.first_gpu,
            verdicts=self.states.gpus, chosen=self.gpu, marked=self.scene.marked_gpus | {self.only_gpu or ""},
        )  # fmt: skip

    def _note(self, rect: Rect) -> Sequence[Strip]:
        strip = empty.note_line(self.frame, rect.width, self.look, self.scene.keys)
        return [strip] if strip else []

    def _host(self, rect: Rect) -> Sequence[Strip]:
        return (usage if self.host_across else host)(self.frame, self.past, rect.width, rect.height, self.look)

    def _preview(self, rect: Rect) -> Sequence[Strip]:
        return preview(self.selected, self.frame, self.past, rect.width, rect.height, self.look)

    def _advice(self, rect: Rect) -> Sequence[Strip]:
        if self.page:
            return expanded(self.scene, self.page, self.page_first, rect.width, rect.height).strips
        if not rect.x:
            return advice(self.scene, rect.width, rect.height)
        border = self.look.ink(self.look.glyphs.column, "faint")
        strips = [*advice(self.scene, rect.width - 1, rect.height)]
        strips += [drawing.blank(rect.width - 1, self.look)] * (rect.height - len(strips))
        return [Strip([border, *strip], rect.width) for strip in strips]

    def _notice(self, rect: Rect) -> Sequence[Strip]:
        text = f"  needs {WIDTH_FOR_PROCESSES}{self.look.glyphs.times}{HEIGHT_FOR_PROCESSES} to show processes"
        return [Line(self.look).add(text, "dim").strip(rect.width)]
