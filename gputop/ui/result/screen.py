"""The screen of a result: read in the background, drawn when it is there and whenever something changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from textual import events, on
from textual.app import ComposeResult

from gputop.actions import ActionRun, Handles, Scope
from gputop.actions.pyspy import STACK, Asked, StackResult
from gputop.ui.commands.command import Command
from gputop.ui.result.about import live
from gputop.ui.result.builders import Made, Result, content, read_in_background
from gputop.ui.result.content import Content
from gputop.ui.result.picture import picture, waiting
from gputop.ui.result.report import ReportTab
from gputop.ui.screen import CommandScreen
from gputop.ui.session import Session
from gputop.ui.theme import Look
from gputop.ui.widgets.cursor_list import WHEEL
from gputop.ui.widgets.drawing import Line
from gputop.ui.widgets.prompt import Prompt
from gputop.ui.widgets.strip_pane import Lines
from gputop.ui.widgets.tabs import Tab, TabPicture


class ResultScreen(CommandScreen, inherit_bindings=False):
    """A result, for as long as the screen is open."""

    PLACE = "result"
    CSS = "ResultScreen #keys, ResultScreen #prompt { height: 1; }"

    def __init__(self, session: Session, result: Result) -> None:
        super().__init__(session)
        self.result = result
        self.pane, self.prompt = Lines(id="result"), Prompt(session.look)
        self.content: Content | None = None
        self.by_rank: dict[int, Content] = {}
        self.opened = ""  # id of the view
        self.compared: ReportTab | None = None
        self.asking = False  # what to find is being typed
        self.shown = session.latest.newest
        self._why = ""
        self._picture: TabPicture | None = None
        self._left = False
        self._again: ActionRun | None = None

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

    def set_theme(self, look: Look) -> None:
        """Draw it with other colours or glyphs."""
        self.prompt.restyle(look)
        super().set_theme(look)

    @property
    def typing(self) -> bool:
        """Whether something is being typed."""
        return self.asking

    def type(self, event: events.Key) -> bool:
        """Take a key as text while something is typed; whether it was."""
        return self.asking and self.prompt.take(event)

    @property
    def tab(self) -> Tab | None:
        """The view that is open."""
        if self.compared is not None or self.content is None:
            return self.compared
        return next((tab for tab in self.content.tabs if tab.id == self.opened), self.content.tabs[0])

    def read(self, rank: int) -> None:
        """Have a rank of it made ready in the background."""
        result = self.result

        def work() -> Content:
            return content(result, rank)

        def ready(made: Content) -> None:
            self.by_rank[rank] = self.content = made
            self.bar.hush()
            self.redraw()

        self.in_background(work, ready)

    def in_background(self, work: Callable[[], Made], ready: Callable[[Made], object]) -> None:
        """Do it in a thread; then this, or say why not."""

        def failed(error: Exception) -> str:
            return self.session.failed(error, "reading the result")

        read_in_background(self, work, ready, self._cannot_read, failed)

    def _cannot_read(self, why: str) -> None:
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
            line = Line(self.look).add(f" {self.session.failed(error, 'the result')}", "warn")
            self.pane.show([line.strip(self.app.size.width)])

    def _draw(self) -> None:
        width, height = self.app.size
        size = width, max(0, height - 1 - self.asking)
        tab, look = self.tab, self.look
        if self.content is None or tab is None:
            strips = waiting(self._why or "reading …", size, look, "warn" if self._why else "dim")
        else:
            frame = self.shown.frame if self.shown else None
            self._picture = picture(self.content, tab, frame, live(self.content.about, self.shown), size, look)
            strips = list(self._picture.strips)
        self.pane.show(strips)
        self.bar.offer(self.offered())

    def offered(self) -> Sequence[Command]:
        """What can be done now, what only this screen does first."""
        return sorted(super().offered(), key=lambda command: command.group != "RESULT")

    def leave(self) -> None:
        """Back to the views, or to where it was opened, once: a second Esc may be on its way."""
        if self.compared is not None:
            self.compared = None
            self.redraw()
        elif self.is_current and not self._left:
            self._left = True
            self.dismiss()

    def open_result(self, result: Result) -> None:
        """Open another result over this one."""
        self.app.push_screen(ResultScreen(self.session, result))

    def open_view(self, place: int) -> None:
        """Open another view by its place."""
        if self.content and place < len(self.content.tabs):
            self.opened, self.compared = self.content.tabs[place].id, None
            self.redraw()

    def move(self, lines: int) -> None:
        """Move in the view by lines."""
        if self.tab:
            self.tab.move(lines)
            self.redraw()

    def page(self, pages: int) -> None:
        """Move in the view by pages."""
        if self.tab:
            self.tab.page(pages)
            self.redraw()

    def take_again(self) -> None:
        """Take the stacks again."""
        update, result = self.shown, self.result
        if update is None or not isinstance(result, StackResult) or not result.processes or self._again:
            return
        frame, process = update.frame, result.processes[0].process
        if process.identity not in frame.by_identity:
            self.bar.say(f"{process.pid} has exited")
            return
        seen = [shown.process.identity for shown in result.processes]
        ranks = [frame.by_identity[each] for each in seen if each in frame.by_identity] if result.ranks else []
        scope = Scope.PROCESS if len(seen) == 1 else Scope.TAGGED if ranks else Scope.LOADERS
        handles = Handles(frame, frame.by_identity[process.identity], STACK.rights(self.session.rights), ranks)
        self._again = STACK.run(handles, Asked(scope), lambda run: self.app.call_later(self._taken, run))
        handles.close()
        self.bar.say("sampling again")

    def _taken(self, run: ActionRun) -> None:
        if run.result is None or not self.is_attached:
            return
        self._again = None
        if isinstance(run.result, StackResult) and run.result.processes:
            self.result = run.result
            self.read(0)
        else:
            self.bar.say(run.result.text, 10, "warn")

    @on(events.Click, "#result")
    def click(self, event: events.Click) -> None:
        """Open a view, or do what the view does with a click."""
        drawn, tab = self._picture, self.tab
        if drawn is None or tab is None or self.content is None:
            return
        if opened := drawn.opens(event.x, event.y):
            self.open_view(list(self.content.tabs).index(opened))
        elif event.y > drawn.tabs_y:
            tab.click(event.x, event.y - drawn.tabs_y - 1)
            self.redraw()

    @on(events.MouseScrollDown, "#result")
    @on(events.MouseScrollUp, "#result")
    def wheel(self, event: events.MouseEvent) -> None:
        """Scroll."""
        self.move(WHEEL if isinstance(event, events.MouseScrollDown) else -WHEEL)
