"""Keys of the screen of a result: its views, and what each key means in the view that is open."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from gputop.ui.commands.command import Command, Place, available

if TYPE_CHECKING:
    from gputop.report import Page
    from gputop.ui.result.files import Files
    from gputop.ui.result.screen import ResultScreen

_HERE: tuple[Place, ...] = ("result",)
_VIEWS = 10  # that have a key


def close(screen: ResultScreen) -> None:
    """Back to the views, or to where the result was opened."""
    screen.leave()


def open_view(screen: ResultScreen, place: int) -> None:
    """Open a view by its place."""
    screen.open_view(place)


def next_view(screen: ResultScreen, step: int) -> None:
    """Open the view beside."""
    if screen.content and screen.tab:
        tabs = list(screen.content.tabs)
        at = tabs.index(screen.tab) if screen.tab in tabs else 0
        screen.open_view((at + step) % len(tabs))


def act(screen: ResultScreen, what: str, amount: int = 0) -> None:
    """Do what a key means in the open view."""
    tab = screen.tab
    if tab is None or screen.content is None:
        return
    if said := tab.press(what, amount):
        screen.bar.say(said)
    if tab.leads_to:
        screen.opened, tab.leads_to = tab.leads_to, ""
    screen.redraw()


def take(screen: ResultScreen) -> None:
    """Zoom into a frame, open a line; of the files open an earlier result."""
    files = _files(screen)
    if files is not None and screen.tab is files and files.chosen:
        screen.open_result(files.chosen)
    else:
        act(screen, "take")


def turn(screen: ResultScreen) -> None:
    """Show the next rank; where there is one, the next thread."""
    made = screen.content
    if made is None or len(made.ranks) < 2:
        act(screen, "turn")
        return
    rank = (made.rank + 1) % len(made.ranks)
    if rank in screen.by_rank:
        screen.content = screen.by_rank[rank]
        screen.redraw()
    else:
        screen.bar.say(f"reading {made.ranks[rank]}")
        screen.read(rank)


def find(screen: ResultScreen) -> None:
    """Type what to find."""
    tab = screen.tab
    if tab is None or screen.asking:
        return

    def changed(text: str) -> None:
        screen.prompt.tell(tab.find(text))
        screen.redraw()

    def ended(taken: bool) -> None:
        screen.asking = screen.prompt.display = False
        if not taken:
            tab.find("")
        screen.redraw()

    screen.asking = screen.prompt.display = True
    screen.prompt.ask("find", "", changed, ended)
    screen.redraw()


def again(screen: ResultScreen) -> None:
    """Take the stacks again."""
    screen.take_again()


def compare(screen: ResultScreen) -> None:
    """Compare with the earlier result that is selected, or the newest."""
    from gputop.ui.result.report import ReportTab  # late: it draws

    made = screen.content
    if made is None or made.compare is None:
        return
    files = _files(screen)
    chosen = files.chosen if files is not None and screen.tab is files else None
    before, comparison = chosen or made.about.older[0], made.compare

    def work() -> Page:
        return comparison(before)

    def ready(page: Page) -> None:
        screen.compared = ReportTab(page, "Compared", "compared")
        screen.bar.hush()
        screen.redraw()

    screen.bar.say(f"reading {before.title}")
    screen.in_background(work, ready)


def _files(screen: ResultScreen) -> Files | None:
    """The view of the files."""
    from gputop.ui.result.files import Files  # late: it draws

    tabs = screen.content.tabs if screen.content else ()
    return next((tab for tab in tabs if isinstance(tab, Files)), None)


def _path(screen: ResultScreen) -> str:
    files = _files(screen)
    return files.file.path if files and files.file else ""


def copy_path(screen: ResultScreen) -> None:
    """Copy the path of the file."""
    if path := _path(screen):
        screen.app.copy_to_clipboard(path)
        screen.bar.say(f"copied {path}")


def show_fetch_command(screen: ResultScreen) -> None:
    """Show the command that fetches the file, on a plain screen, for the mouse."""
    from gputop.ui.dialogs.pager import Plain  # late
    from gputop.ui.result.files import scp

    if path := _path(screen):
        host = screen.shown.frame.hostname if screen.shown else "HOST"
        screen.app.push_screen(Plain(screen, [scp(path, host), path]))


def _no_view(place: int) -> Callable[[ResultScreen], str]:
    def why(screen: ResultScreen) -> str:
        return "" if screen.content and place < len(screen.content.tabs) else "no such view"

    return why


def _unused(id: str) -> Callable[[ResultScreen], str]:
    """Why a key does nothing in the view that is open."""

    def why(screen: ResultScreen) -> str:
        return "" if screen.tab and id in screen.tab.keys else "not available in this view"

    return why


def _nothing_to_turn(screen: ResultScreen) -> str:
    ranks = len(screen.content.ranks) if screen.content else 0
    return "" if ranks > 1 else _unused("turn")(screen)


def _no_earlier(screen: ResultScreen) -> str:
    made = screen.content
    there = made is not None and made.about.older and made.compare is not None
    return "" if there else "no earlier result of the same command to compare with"


def _not_again(screen: ResultScreen) -> str:
    return "" if screen.content and screen.content.again else "only live stacks can be taken again"


def _no_file(screen: ResultScreen) -> str:
    return "" if screen.content and screen.content.about.files else "it is not saved in a file"


def _title_of_take(screen: ResultScreen) -> str:
    return (screen.tab.takes if screen.tab else "") or "Open"


def _title_of_turn(screen: ResultScreen) -> str:
    return "Next rank" if screen.content and len(screen.content.ranks) > 1 else "Next thread"


def _title_of_next(screen: ResultScreen) -> str:
    return "Next match" if screen.tab and "find" in screen.tab.keys else "Next gap"


def _command(
    id: str,
    keys: tuple[str, ...],
    title: str,
    help: str,
    run: Callable[[ResultScreen], object],
    unavailable: Callable[[ResultScreen], str] | None = None,
    title_now: Callable[[ResultScreen], str] | None = None,
    *,
    keep: int = 0,
    joins: bool = False,
) -> Command:
    """A key of this screen; without a reason given it depends on the view that is open."""
    why = unavailable or _unused(id)
    return Command(f"result-{id}", keys, title, help, "RESULT", run, why, title_now, keep=keep, joins=joins, on=_HERE)


def _view(number: int) -> Command:
    """A key that opens a view by its place."""
    run, why = partial(open_view, place=number - 1), _no_view(number - 1)
    return _command(f"view-{number}", (str(number % 10),), "A view", "a view", run, why, joins=number > 1)


COMMANDS = (
    _command("close", ("escape",), "Back", "back to where you were", close, available, keep=99),
    *map(_view, range(1, _VIEWS + 1)),
    _command("tab", ("tab",), "Next view", "the next view", partial(next_view, step=1), available, keep=60),
    _command("tab-back", ("shift+tab",), "Previous", "the previous view", partial(next_view, step=-1), available,
             joins=True),
    _command("take", ("enter",), "Open", "zoom into a frame; open a row", take, None, _title_of_take, keep=90),
    _command("out", ("backspace",), "Zoom out", "zoom out of the frame", partial(act, what="out"), keep=80,
             joins=True),
    _command("left", ("left",), "Move", "earlier; the frame to the left", partial(act, what="sideways", amount=-1)),
    _command("right", ("right",), "Move", "later; the frame to the right", partial(act, what="sideways", amount=1),
             joins=True),
    _command("in", ("plus",), "Zoom", "a shorter time range", partial(act, what="zoom", amount=1), keep=75),
    _command("less", ("minus",), "Zoom out", "a longer time range", partial(act, what="zoom", amount=-1), joins=True),
    _command("gap", ("n",), "Next gap", "the next gap; the next match", partial(act, what="next"), None,
             _title_of_next, keep=78),
    _command("find", ("slash", "f3"), "Find", "find functions", find, keep=85),
    _command("turn", ("r",), "Next thread", "the next rank, or the next thread", turn, _nothing_to_turn,
             _title_of_turn, keep=88),
    _command("again", ("R",), "Again", "take the stacks again", again, _not_again, keep=91),
    _command("self", ("s",), "By self", "sort by self time", partial(act, what="self"), keep=70),
    _command("total", ("t",), "By total", "sort by total time", partial(act, what="total"), keep=70, joins=True),
    _command("diff", ("d",), "Compare", "compare with an earlier result", compare, _no_earlier, keep=72),
    _command("path", ("y",), "Copy path", "copy the path of the file (OSC 52)", copy_path, _no_file, keep=66),
    _command("scp", ("Y",), "scp", "show the command that fetches it, to select with the mouse", show_fetch_command,
             _no_file, keep=65, joins=True),
)  # fmt: skip
