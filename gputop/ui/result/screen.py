"""The screen of a result: what its keys and the mouse do."""

from __future__ import annotations

from typing import ClassVar

from textual import events, on
from textual.binding import BindingType

from gputop.actions import Handles, Run, Scope
from gputop.actions.pyspy import STACK, Asked, StackResult
from gputop.report import Page
from gputop.ui.dialogs.help import Help
from gputop.ui.dialogs.palette import Deed, Palette, do, of_keys
from gputop.ui.dialogs.plain import Plain
from gputop.ui.keys import bindings
from gputop.ui.result.files import Files, scp
from gputop.ui.result.offered import here
from gputop.ui.result.report import Report
from gputop.ui.result.showing import Shows
from gputop.ui.table.widget import WHEEL


class ResultScreen(Shows, inherit_bindings=False):
    """A result, for as long as somebody looks at it."""

    BINDINGS: ClassVar[list[BindingType]] = bindings.on("result")
    CSS = "ResultScreen #keys, ResultScreen #prompt { height: 1; }"

    _left = False
    _again: Run | None = None

    def type(self, event: events.Key) -> bool:
        """Take a key as text while something is typed; whether it was."""
        return self.typing and self.prompt.take(event)

    def action_back(self) -> None:
        """Back to the tabs, or to where it was opened, once: a second Esc may be on its way."""
        if self.compared is not None:
            self.compared = None
            self.redraw()
        elif self.is_current and not self._left:
            self._left = True
            self.dismiss()

    def action_open(self, place: int) -> None:
        """Another tab."""
        if self.content and place < len(self.content.tabs):
            self.opened, self.compared = self.content.tabs[place].id, None
            self.redraw()

    def action_turn_tab(self, step: int) -> None:
        """The next tab."""
        if self.content and self.tab:
            tabs = list(self.content.tabs)
            at = tabs.index(self.tab) if self.tab in tabs else 0
            self.action_open((at + step) % len(tabs))

    def action_move(self, lines: int) -> None:
        """Up or down."""
        if self.tab:
            self.tab.move(lines)
            self.redraw()

    def action_page(self, pages: int) -> None:
        """A page up or down."""
        if self.tab:
            self.tab.page(pages)
            self.redraw()

    def action_act(self, what: str, amount: int = 0) -> None:
        """What a key means in the open tab."""
        tab = self.tab
        if tab is None or self.content is None:
            return
        if what == "take" and isinstance(tab, Files) and tab.chosen:
            self.app.push_screen(ResultScreen(self.program, tab.chosen, self.look, self.keys))
            return
        if said := tab.press(what, amount):
            self.bar.say(said)
        if tab.leads_to:
            self.opened, tab.leads_to = tab.leads_to, ""
        self.redraw()

    def action_turn(self) -> None:
        """The next rank; where there is one, the next thread."""
        made = self.content
        if made is None or len(made.ranks) < 2:
            self.action_act("turn")
            return
        rank = (made.rank + 1) % len(made.ranks)
        if rank in self.by_rank:
            self.content = self.by_rank[rank]
            self.redraw()
        else:
            self.bar.say(f"reading {made.ranks[rank]}")
            self.read(rank)

    def action_find(self) -> None:
        """Type what to find."""
        tab = self.tab
        if tab is None or self.typing or "result-find" not in tab.keys:
            return

        def changed(text: str) -> None:
            self.prompt.tell(tab.find(text))
            self.redraw()

        def ended(taken: bool) -> None:
            self.typing = self.prompt.display = False
            if not taken:
                tab.find("")
            self.redraw()

        self.typing = self.prompt.display = True
        self.prompt.ask("find", "", changed, ended)
        self.redraw()

    def action_again(self) -> None:
        """Take the stacks again."""
        update, result = self.update_shown, self.result
        if update is None or not isinstance(result, StackResult) or not result.processes or self._again:
            return
        frame, process = update.frame, result.processes[0].process
        if process.identity not in frame.by_identity:
            self.bar.say(f"{process.pid} has ended")
            return
        seen = [shown.process.identity for shown in result.processes]
        ranks = [frame.by_identity[each] for each in seen if each in frame.by_identity] if result.ranks else []
        scope = Scope.PROCESS if len(seen) == 1 else Scope.TAGGED if ranks else Scope.LOADERS
        hold = Handles(frame, frame.by_identity[process.identity], STACK.rights(self.program.main.rights), ranks)
        self._again = STACK.run(hold, Asked(scope), lambda run: self.app.call_later(self._taken, run))
        hold.close()
        self.bar.say("looking again")

    def _taken(self, run: Run) -> None:
        if run.result is None or not self.is_attached:
            return
        self._again = None
        if isinstance(run.result, StackResult) and run.result.processes:
            self.result = run.result
            self.read(0)
        else:
            self.bar.say(run.result.text, 10, "warn")

    def action_compare(self) -> None:
        """With the older one that is selected, or the newest."""
        made, tab = self.content, self.tab
        if made is None or made.compare is None or not made.about.older:
            self.bar.say("no earlier one of the same command to compare with")
            return
        before = (tab.chosen if isinstance(tab, Files) else None) or made.about.older[0]
        compare = made.compare

        def work() -> Page:
            return compare(before)

        def ready(page: Page) -> None:
            self.compared = Report(page, "Compared", "compared")
            self.bar.hush()
            self.redraw()

        self.bar.say(f"reading {before.title}")
        self.aside(work, ready)

    def _path(self) -> str:
        files = next((tab for tab in self.content.tabs if isinstance(tab, Files)), None) if self.content else None
        return files.file.path if files and files.file else ""

    def action_copy_path(self) -> None:
        """The path of a file to the clipboard."""
        if path := self._path():
            self.app.copy_to_clipboard(path)
            self.bar.say(f"copied {path}")

    def action_show_path(self) -> None:
        """How to bring the file here, on a plain screen, for the mouse."""
        if path := self._path():
            host = self.update_shown.frame.hostname if self.update_shown else "HOST"
            mouse = self.program.main.settings.mouse
            self.app.push_screen(
                Plain(self.look, [scp(path, host), path], lambda on: self.program.listen_to_mouse(on and mouse))
            )

    def action_palette(self) -> None:
        """Choose what to do."""

        def deeds() -> list[Deed]:
            return [*of_keys(here(self.keys, self.content, self.tab), self.act), *self.program.main.themes()]

        self.app.push_screen(Palette(self.look, deeds), do)

    def action_help(self) -> None:
        """Help, at the keys of this screen."""
        self.app.push_screen(Help(self.look, (), self.keys, page=2))

    @on(events.Click, "#result")
    def click(self, event: events.Click) -> None:
        """Open a tab, or what the tab does with it."""
        drawn, tab = self.drawn, self.tab
        if drawn is None or tab is None or self.content is None:
            return
        if event.y == drawn.tabs_y:
            for start, end, spot in drawn.spots:
                if start <= event.x < end:
                    self.action_open(list(self.content.tabs).index(spot))
        elif event.y >= drawn.body_y:
            tab.click(event.x, event.y - drawn.body_y)
            self.redraw()

    @on(events.MouseScrollDown, "#result")
    @on(events.MouseScrollUp, "#result")
    def wheel(self, event: events.MouseEvent) -> None:
        """Scroll."""
        self.action_move(WHEEL if isinstance(event, events.MouseScrollDown) else -WHEEL)
