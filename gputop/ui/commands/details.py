"""Keys that open a process; Enter also unfolds a job, and goes where the chosen finding or GPU points."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from gputop.ui.commands.command import BOTH, Command, hint, no_processes
from gputop.ui.commands.selection import toggle_gpu
from gputop.ui.table.row import process_key

if TYPE_CHECKING:
    from gputop.ui.job_screen import JobScreen
    from gputop.ui.main.screen import MainScreen


def open_line(main: MainScreen) -> None:
    """Open the selected process, unfold a line of several; of the advice its result, of a GPU its processes."""
    if main.advised:
        about = main.advice.scene(main.shown).concerned if main.shown else ()
        if not main.jobs.open_newest(about):
            _go_to_advised(main)
    elif main.on_gpus:
        toggle_gpu(main)
    else:
        main.open_tab("")


def open_tab(screen: JobScreen, tab: str) -> None:
    """Open a tab of the selected process, or of the one that is open."""
    screen.open_tab(tab)


def _go_to_advised(main: MainScreen) -> None:
    """The cursor of the table on the process that the chosen finding is about."""
    process = main.advice.process("to go to")
    if process is None:
        return
    if not main.table.listing.go(process_key(process)):
        # the keys stay with the advice: on the table they would be about whatever is under its cursor
        main.session.say(f"{process.pid} {_why_hidden(main)}")
        return
    main.unzoom()
    if not (main.panes and main.panes.processes):
        main.session.say("the process pane is hidden")
        return
    main.set_focus(main.table)
    main.table.key()
    main.refocused()
    main.table.redraw()


def _why_hidden(main: MainScreen) -> str:
    """Why a process has no line, and the key that gives it one."""
    view = main.table.listing.view
    if view.filter is None and view.user is None and view.gpu is None:
        return f"is not listed{hint(main.names, '; {} lists all processes', 'everything')}"
    gpu = main.shown.frame.by_uuid.get(view.gpu or "") if main.shown else None
    only = f"while only {view.user} is shown" if gpu is None else f"while only GPU {gpu.index} is shown"
    by = "by the filter" if view.filter is not None else only
    twice = hint(main.names, "; {} leaves the advice, twice shows all", "back")
    return f"is hidden {by}{twice}"


def _unavailable(main: MainScreen) -> str:
    """Of the advice it is about the finding, whether the processes are shown or not."""
    if main.advised:
        return "" if main.advice.finding_list.chosen else "no finding to go to"
    return main.no_processes_of_gpu() if main.on_gpus else main.no_processes()


def _title(main: MainScreen) -> str:
    if main.on_gpus:
        chosen = main.gpus.chosen
        return "All GPUs" if chosen and chosen.uuid == main.table.listing.view.gpu else "This GPU only"
    if main.advised and main.shown:
        return "Profile" if main.advice.scene(main.shown).profiled else "Process"
    return "Details"


COMMANDS = (
    Command("details", ("enter",), "Details", "open a process, expand a job, show a GPU's processes", "LOOK", open_line,
            _unavailable, _title, keep=85),
    Command("environment", ("e",), "Environment", "its environment", "LOOK", partial(open_tab, tab="environment"),
            no_processes, joins=True, on=BOTH),
    Command("files", ("l",), "Files", "its open files", "LOOK", partial(open_tab, tab="files"), no_processes,
            joins=True, on=BOTH),
)  # fmt: skip
