"""The threads tab: which threads work, which wait, and for what."""

from __future__ import annotations

from collections import Counter

from gputop import units
from gputop.labels import amount
from gputop.model import Thread
from gputop.ui.details.lines import without
from gputop.ui.details.process_view import ProcessView
from gputop.ui.theme import Token
from gputop.ui.widgets.grid import Grid, GridColumn
from gputop.ui.widgets.tabs import Body, Entry


def blocked(thread: Thread) -> str:
    """What it waits for; nothing when it runs."""
    if thread.blocked_on:
        return thread.blocked_on
    return "-" if thread.state == "R" else units.UNKNOWN


COLUMNS: tuple[GridColumn[Thread], ...] = (
    GridColumn("TID", 7, lambda thread: str(thread.tid)),
    GridColumn("NAME", 15, lambda thread: thread.name, right=False),
    GridColumn("CPU%", 4, lambda thread: units.percent(thread.cpu_percent)),
    GridColumn("ST", 2, lambda thread: thread.state or units.UNKNOWN, right=False, keep=6),
    GridColumn("BLOCKED ON", 21, blocked, right=False),
    GridColumn("CPU", 3, lambda thread: units.percent(thread.last_cpu), keep=2, token="dim"),
    GridColumn("CPU WAIT%", 9, lambda thread: units.percent(thread.run_wait_percent), keep=5),
    GridColumn("VOL/s", 6, lambda thread: units.count(thread.voluntary_switches_per_s), keep=3),
    GridColumn("INVOL/s", 7, lambda thread: units.count(thread.involuntary_switches_per_s), keep=3),
    GridColumn("TIME", 9, lambda thread: units.clock(thread.cpu_time_s), keep=4),
)


def body(view: ProcessView, width: int) -> Body:
    """A line for each thread, the busiest first."""
    detail = view.detail
    if detail.threads is None:
        return _of_frame(view, width)
    grid = Grid(COLUMNS, width, view.look)
    same = Counter(thread.name for thread in detail.threads)

    def entry(thread: Thread) -> Entry:
        idle = thread.cpu_percent is not None and thread.cpu_percent < 1 and thread.state != "D"
        token: Token = "dim" if idle else "text"
        return Entry(
            thread.tid,
            lambda on, shift: grid.line(thread, on, shift, token),
            round(thread.cpu_percent or 0.0, -1) + 1 / same[thread.name],  # of those that rest, a pool comes last
        )

    count = detail.threads_count or len(detail.threads)
    unread = f", {count - len(detail.threads)} not read" if count > len(detail.threads) else ""
    facts = f"{amount(count, 'thread')}{unread}"
    return Body([entry(thread) for thread in detail.threads], [grid.titles()], facts)


def _of_frame(view: ProcessView, width: int) -> Body:
    """Without details: how many threads there are, how many work, and what they are called."""
    process = view.process
    facts = "" if process.threads is None else amount(process.threads, "thread")
    known = []
    if process.main_thread_percent is not None:
        known.append(f"main thread {process.main_thread_percent:.0f} % of a core")
    if process.busy_threads is not None:
        known.append(f"{process.busy_threads} busy (≥ 10 % of the time)")
    if process.thread_names:
        times = view.look.glyphs.times
        known.append("named " + ", ".join(f"{name} {times}{count}" for name, count in process.thread_names))
    return without(view, width, "threads", facts, known)
