"""Keys that sort."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from gputop.columns import BY_ID, beside, of
from gputop.ui.commands.command import Command, hint, no_processes

if TYPE_CHECKING:
    from gputop.ui.main.screen import MainScreen


def sort_by(main: MainScreen, column: str) -> None:
    """Sort by a column."""
    main.table.key()
    main.table.sort(column)
    _say_order(main)


def sort_beside(main: MainScreen, step: int) -> None:
    """Sort by the column beside."""
    view = main.table.listing.view
    sort_by(main, beside(view.sort, step, view.preset, view.columns))


def reverse(main: MainScreen) -> None:
    """Sort the other way round."""
    main.table.key()
    main.table.reverse()
    _say_order(main)


def _say_order(main: MainScreen) -> None:
    """In the tree the ranks of a job stay where they are: with one job nothing moves."""
    view, shown = main.table.listing.view, main.shown
    if view.tree and shown and any(len(job.ranks) > 1 for job in shown.frame.jobs):
        flat = hint(main.names, " ({}: flat)", "tree")
        main.session.say(f"jobs sorted by {BY_ID[view.sort].title}; ranks stay in rank order{flat}")


def sort_by_letter(main: MainScreen) -> None:
    """Sort by a letter, as in nvitop."""
    from gputop.ui.dialogs.choices import OrderDialog  # late

    main.app.push_screen(OrderDialog(main.look, main.table.listing.view.sort), partial(_chosen, main))


def choose_column(main: MainScreen) -> None:
    """Sort by a column from a list."""
    from gputop.ui.dialogs.choices import SortDialog  # late

    view = main.table.listing.view
    main.app.push_screen(SortDialog(main.look, view.sort, of(view.preset, view.columns)), partial(_chosen, main))


def _chosen(main: MainScreen, column: str | None) -> None:
    if column:
        sort_by(main, column)


def toggle_tree(main: MainScreen) -> None:
    """Show a tree or a flat list."""
    main.table.key()
    main.bar.hush()  # what was said of the order may be of the other one
    main.table.nest()


def _by(id: str, keys: str, title: str, help: str, column: str, *, joins: bool = False) -> Command:
    """A key that sorts by one column."""
    run = partial(sort_by, column=column)
    return Command(f"sort-{id}", (keys,), title, help, "SORT", run, no_processes, joins=joins)


COMMANDS = (
    _by("cpu", "P", "CPU", "by CPU", "cpu"),
    _by("memory", "M", "Memory", "by resident memory", "rss", joins=True),
    _by("time", "T", "Time", "by time since start", "time", joins=True),
    _by("pid", "N", "PID", "by PID", "pid", joins=True),
    _by("gpu", "G", "GPU busy", "by GPU busy", "gpu-busy"),
    _by("vram", "V", "VRAM", "by device memory", "vram", joins=True),
    _by("read", "r", "Read", "by bytes read", "read"),
    _by("write", "w", "Write", "by bytes written", "write", joins=True),
    Command("order", ("o",), "Order", "by a letter, as in nvitop", "SORT", sort_by_letter, no_processes),
    Command("sort-previous", ("comma",), "Column left", "by the column to the left", "SORT",
            partial(sort_beside, step=-1), no_processes),
    Command("sort-next", ("full_stop",), "Right", "by the column to the right", "SORT", partial(sort_beside, step=1),
            no_processes, joins=True),
    Command("sort", ("f6",), "Sort", "choose the column", "SORT", choose_column, no_processes, keep=90,
            also="order by column"),
    Command("reverse", ("I",), "Reverse", "reverse the order", "SORT", reverse, no_processes, keep=20),
    Command("tree", ("f5",), "Tree", "tree of jobs, or flat list", "SORT", toggle_tree, no_processes, keep=60),
)  # fmt: skip
