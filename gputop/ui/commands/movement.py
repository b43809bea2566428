"""Keys that move: the cursor, the GPUs, folds, from pane to pane."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from gputop.ui.commands.command import EVERY, Command
from gputop.ui.commands.selection import explain_gpus

if TYPE_CHECKING:
    from gputop.ui.main.screen import MainScreen
    from gputop.ui.screen import CommandScreen

_ALL = 1_000_000  # lines


def move(screen: CommandScreen, lines: int) -> None:
    """Lines up or down."""
    screen.move(lines * screen.session.app.presses())


def page(screen: CommandScreen, pages: int) -> None:
    """Pages up or down."""
    screen.page(pages * screen.session.app.presses())


def fold(main: MainScreen, step: int) -> None:
    """Fold (-1) or unfold (1); of GPUs the one beside, of the advice the page beside."""
    if main.advised:
        main.advice.turn(step)
    elif main.on_gpus:
        main.gpus.choose(0, step)
    else:
        main.table.key()
        main.table.fold(step)


def fold_levels(main: MainScreen, step: int) -> None:
    """Fold or unfold one level everywhere; 0: everything."""
    main.table.key()
    main.table.listing.level(step)
    main.table.redraw()


def next_pane(main: MainScreen, step: int) -> None:
    """Give the keys to another pane, a number of panes further."""
    step *= main.session.app.presses()
    chain = len(main.focus_chain)  # once around is where it was
    for _ in range(abs(step) % chain if abs(step) > chain > 0 else abs(step)):
        if step > 0:
            main.focus_next()
        else:
            main.focus_previous()
    main.refocused()
    if main.focused is main.gpus:
        main.gpus.choose()
        explain_gpus(main)


def follow(main: MainScreen) -> None:
    """Let the cursor follow its process, or stay on its line."""
    listing = main.table.listing
    listing.follow = not listing.follow
    main.session.say("the cursor follows its process" if listing.follow else "the cursor stays in its row")
    main.table.redraw()


COMMANDS = (
    Command("up", ("up",), "Move", "one line up", "MOVE", partial(move, lines=-1), on=EVERY),
    Command("down", ("down",), "Move", "one line down", "MOVE", partial(move, lines=1), joins=True, on=EVERY),
    Command("page-up", ("pageup",), "Move", "one page up", "MOVE", partial(page, pages=-1), joins=True, on=EVERY),
    Command("page-down", ("pagedown",), "Move", "one page down", "MOVE", partial(page, pages=1), joins=True, on=EVERY),
    Command("home", ("home",), "Move", "to the first line", "MOVE", partial(move, lines=-_ALL), joins=True, on=EVERY),
    Command("end", ("end",), "Move", "to the last line", "MOVE", partial(move, lines=_ALL), joins=True, on=EVERY),
    Command("fold", ("left",), "Collapse", "collapse, or go to the parent; in a list, scroll the commands", "MOVE",
            partial(fold, step=-1)),
    Command("unfold", ("right",), "Expand", "expand; in a list, scroll the commands", "MOVE", partial(fold, step=1),
            joins=True),
    Command("unfold-level", ("plus",), "Expand", "expand one level everywhere", "MOVE", partial(fold_levels, step=1)),
    Command("fold-level", ("minus",), "Collapse", "collapse one level everywhere", "MOVE",
            partial(fold_levels, step=-1), joins=True),
    Command("levels", ("asterisk",), "All levels", "expand everything, and back", "MOVE",
            partial(fold_levels, step=0), joins=True),
    Command("next-pane", ("tab",), "Next pane", "to the next pane", "MOVE", partial(next_pane, step=1)),
    Command("previous-pane", ("shift+tab",), "Previous", "to the previous pane", "MOVE", partial(next_pane, step=-1),
            joins=True),
    Command("follow", ("F",), "Follow", "cursor follows its process, or stays", "MOVE", follow),
)  # fmt: skip
