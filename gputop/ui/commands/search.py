"""Find, filter, one user only: what is typed to find processes, and what then is shown."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from gputop.labels import searched
from gputop.ui.commands.command import Command, hint, no_processes
from gputop.ui.table.filter import HINT, FilterError, parse, until

if TYPE_CHECKING:
    from gputop.ui.main.screen import MainScreen
    from gputop.ui.table.row import Key, TableRow

NOWHERE = "nowhere"
_IN_TEXT = re.compile(r"F\d+")  # keys that are no text while one types


def filter_rows(main: MainScreen) -> None:
    """Show only what matches, while it is typed."""
    if main.search.asking is None:
        asked = main.table.listing.view.filter

        def changed(text: str) -> None:
            _filter(main, text)

        def ended(taken: bool) -> None:
            if not (taken and main.search.wrong):
                if not taken:
                    main.table.see(filter=None)
                main.end_typing()

        _ask(main, "filter", asked.text if asked else "", changed, ended)


def _ask(
    main: MainScreen,
    what: Literal["find", "filter"],
    text: str,
    changed: Callable[[str], None],
    ended: Callable[[bool], None],
) -> None:
    if main.panes and main.panes.processes:
        main.begin_typing(what, text, changed, ended)
        changed(text)


def _filter(main: MainScreen, text: str) -> None:
    try:
        asked = parse(text)
    except FilterError as wrong:
        from gputop.ui.widgets.prompt import pointing  # late: it draws

        main.search.wrong = True
        main.show_only(filter=until(text, wrong))
        main.prompt.tell("", (wrong.start, wrong.end))
        cells = main.prompt.column(wrong.start), main.prompt.column(wrong.end)
        main.bar.lend(pointing(cells, str(wrong), main.app.size.width, main.look))
        return
    main.search.wrong = False
    main.show_only(filter=asked)
    main.prompt.tell(main.table.found(main.shown.frame) if main.shown else "")
    main.hint(HINT)


def find(main: MainScreen) -> None:
    """Go to the first process in which the words that are typed are found."""
    if main.search.asking == "find":
        find_next(main)
    elif main.search.asking is None:
        row = main.table.listing.cursor
        start = row.key if row else None

        def changed(text: str) -> None:
            main.search.words = text
            main.hint(f"words in a row;{_key_of_next(main)} Enter stays, Esc goes back")
            said = _go(main, start, 0) if text.strip() else ""
            if said in ("", NOWHERE):
                _go_back(main, start)  # not on a line that other letters found: the next key may be a signal
            main.prompt.tell(said)

        def ended(taken: bool) -> None:
            if not taken:
                _go_back(main, start)
            main.end_typing()

        _ask(main, "find", "", changed, ended)


def _key_of_next(main: MainScreen) -> str:
    ways = (name for command in main.commands if command.id in ("find", "find-next") for name in command.names)
    return next((f" {name} next match," for name in ways if _IN_TEXT.fullmatch(name)), "")


def _go_back(main: MainScreen, start: Key | None) -> None:
    if start:
        main.table.listing.go(start)
        main.table.redraw()


def find_next(main: MainScreen) -> None:
    """Go to the next one that is found."""
    words = main.search.words.strip()
    if not words:
        main.session.say(f"no search yet{hint(main.names, '; {} starts one', 'find')}")
        return
    row = main.table.listing.cursor
    said = _go(main, row.key if row else None, 1)
    if main.search.asking:
        main.prompt.tell(said)
    else:
        main.session.say(f"{words}: {said}")


def _go(main: MainScreen, start: Key | None, step: int) -> str:
    """Put the cursor on the first hit from a line on, or behind it, around the end; which one it is."""
    table = main.table
    table.key()
    rows = table.listing.unfolded()
    hits = [place for place, row in enumerate(rows) if _matches(row, main.search.words)]
    if not hits:
        return NOWHERE
    at = next((place for place, row in enumerate(rows) if row.key == start), -1)
    number = next((number for number, place in enumerate(hits) if place >= at + step), 0)
    table.listing.go(rows[hits[number]].key)
    table.redraw()
    return f"{number + 1} of {len(hits)}"


def _matches(row: TableRow, words: str) -> bool:
    own = searched(row.process) if row.process else ""
    text = f"{row.label} {row.user or (row.process and row.process.user) or ''} {row.text} {own}".casefold()
    return all(word in text for word in words.casefold().split())


def choose_user(main: MainScreen) -> None:
    """Show one user only."""
    from gputop.ui.dialogs.choices import UserDialog  # late

    if main.shown is None:
        return
    gpus: dict[str, set[str]] = {}
    counts: dict[str, int] = {}
    for process in main.shown.frame.processes:
        if process.user is not None:
            counts[process.user] = counts.get(process.user, 0) + 1
            gpus.setdefault(process.user, set()).update(share.uuid for share in process.gpus)
    users = sorted(((user, len(gpus[user]), count) for user, count in counts.items()), key=_most_first)

    def show_user(user: str | None) -> None:
        if user is not None:
            main.show_only(user=user or None)

    main.app.push_screen(UserDialog(main.look, users, main.table.listing.view.user), show_user)


def _most_first(user: tuple[str, int, int]) -> tuple[int, int, str]:
    name, gpus, processes = user
    return -gpus, -processes, name


COMMANDS = (
    Command("find", ("slash", "f3"), "Find", "find words in any row, collapsed ones too", "PICK", find,
            no_processes, keep=95),
    Command("find-next", ("n",), "Next", "the next match", "PICK", find_next, no_processes, joins=True),
    Command("filter", ("f4", "backslash"), "Filter", "filter by words or fields, e.g. read>50M", "PICK", filter_rows,
            no_processes, keep=80, also="search grep only hide"),
    Command("user", ("u",), "User", "show one user only", "PICK", choose_user, no_processes, keep=30),
)  # fmt: skip
