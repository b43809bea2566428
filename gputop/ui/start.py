"""The first thing that runs on the screen's side: lets the monitor look before the screen's libraries are loaded."""

from __future__ import annotations

from typing import NoReturn

from gputop.config import Settings
from gputop.monitor import Monitor
from gputop.source import Interest, Source
from gputop.ui.mailbox import Mailbox


def run(source: Source, settings: Settings) -> NoReturn:
    """Show the monitor on this terminal until somebody quits; ends the process."""
    source.interest = Interest(every_process=settings.every_process)
    monitor, mailbox = Monitor(source, settings.thresholds, unjudged=1), Mailbox()
    monitor.start(mailbox.put, mailbox.close)
    # late: it takes a quarter of a second, in which the source has its first look
    from gputop.ui.app import show

    show(monitor, mailbox, settings)
