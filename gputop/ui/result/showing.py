"""A result on the screen: read aside, drawn when it is there and whenever something changes. Its keys come on top."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from textual.app import ComposeResult

from gputop.monitor import Update
from gputop.ui.keys.declared import Key
from gputop.ui.keys.keyed import Keyed
from gputop.ui.result.builders import Result, content
from gputop.ui.result.content import Content
from gputop.ui.result.live import live
from gputop.ui.result.offered import here
from gputop.ui.result.picture import Picture, picture, waiting
from gputop.ui.result.program import Program
from gputop.ui.result.reading import Made, aside
from gputop.ui.result.report import Report
from gputop.ui.result.tab import Tab
from gputop.ui.theme import Look
from gputop.ui.widgets.drawing import Line
from gputop.ui.widgets.key_bar import KeyBar
from gputop.ui.widgets.prompt import Prompt
from gputop.ui.widgets.strip_pane import Lines


class Shows(Keyed, inherit_bindings=False):
    """What is drawn."""

    def __init__(self, program: Program, result: Result, look: Look, keys: Sequence[Key]) -> None:
        super().__init__()
        self.program, self.result, self.look, self.keys = program, result, look, keys
        self.pane, self.bar, self.prompt = Lines(id="result"), KeyBar(look, ()), Prompt(look)
        self.content: Content | None = None
        self._why = ""
        self.by_rank: dict[int, Content] = {}
        self.opened = ""  # id of the tab
        self.compared: Report | None = None
        self.typing = False
        self.drawn: Picture | None = None
        self.update_shown = program.mailbox.newest

    def compose(self) -> ComposeResult:
        """One pane, a line to type in, and the keys."""
        yield self.pane
        yield self.prompt
        yield self.bar

    def on_mount(self) -> None:
        """Begin to read it."""
        self.prompt.display = False
        self.redraw()
        self.read(0)

    def on_resize(self) -> None:
        """Draw it at another size."""
        self.redraw()

    def show(self, update: Update) -> None:
        """What the rules say has changed, or its age."""
        self.update_shown = update
        self.redraw()

    def wear(self, look: Look) -> None:
        """Draw it with other colours or glyphs."""
        self.look = look
        self.bar.restyle(look)
        self.prompt.restyle(look)
        self.redraw()

    @property
    def tab(self) -> Tab | None:
        """The one that is open."""
        if self.compared is not None or self.content is None:
            return self.compared
        return next((tab for tab in self.content.tabs if tab.id == self.opened), self.content.tabs[0])

    def read(self, rank: int) -> None:
        """Have a rank of it made ready aside."""
        result = self.result

        def work() -> Content:
            return content(result, rank)

        def ready(made: Content) -> None:
            self.by_rank[rank] = self.content = made
            self.bar.hush()
            self.redraw()

        self.aside(work, ready)

    def aside(self, work: Callable[[], Made], ready: Callable[[Made], object]) -> None:
        """Do it in a thread; then this, or say why not."""
        aside(self, work, ready, self._refused, lambda error: self.program.failed(error, "reading the result"))

    def _refused(self, why: str) -> None:
        if self.content is None:
            self._why = why
        else:
            self.bar.say(why, 10, "warn")
        self.redraw()

    def redraw(self) -> None:
        """Draw it, once there is a place for it."""
        if not self.pane.is_attached:
            return
        try:
            self._draw()
        except Exception as error:  # the program lives
            line = Line(self.look).add(f" {self.program.failed(error, 'the result')}", "warn")
            self.pane.show([line.strip(self.app.size.width)])

    def _draw(self) -> None:
        width, height = self.app.size
        size = width, max(0, height - 1 - self.typing)
        tab = self.tab
        if self.content is None or tab is None:
            shown = waiting(self._why or "reading …", size, self.look, "warn" if self._why else "dim")
        else:
            frame = self.update_shown.frame if self.update_shown else None
            self.drawn = picture(self.content, tab, frame, live(self.content.about, self.update_shown), size, self.look)
            shown = list(self.drawn.strips)
        self.pane.show(shown)
        self.bar.offer(here(self.keys, self.content, self.tab))
