"""The first thing that runs on the screen's side: lets the monitor look before the screen's libraries are loaded."""

from __future__ import annotations

import sys
from typing import NoReturn

from gputop.alerts import attach
from gputop.collectives import watch
from gputop.config import Settings
from gputop.monitor import Monitor
from gputop.proven import follow
from gputop.source import Interest, Source
from gputop.ui.latest_update import LatestUpdate


def run(source: Source, settings: Settings) -> NoReturn:
    """Show the monitor on this terminal until the user quits; ends the process."""
    source.interest = Interest(every_process=settings.every_process)
    monitor, latest = Monitor(source, settings.thresholds, unjudged=1), LatestUpdate()
    proofs = follow(monitor, remember=settings.remember, readonly=settings.readonly)
    watch.follow(monitor)
    monitor.start(latest.put, latest.close)
    _load_asyncio()
    # behind asyncio: a first message may load ssl
    alerts = attach(monitor, settings.alerts, settings_path=settings.origin.path, readonly=settings.readonly)
    # late: it takes a quarter of a second, in which the source has its first look
    from gputop.ui.app import show

    show(monitor, latest, settings, proofs, alerts)


def _load_asyncio() -> None:
    """Without ssl, which is 4 MB of memory that asyncio can do without: nothing here speaks TLS."""
    if "ssl" not in sys.modules:
        sys.modules["ssl"] = None  # type: ignore[assignment]  # as in a Python that was built without it
        try:
            import asyncio  # noqa: F401
        finally:
            sys.modules.pop("ssl", None)  # what imports it later gets it
