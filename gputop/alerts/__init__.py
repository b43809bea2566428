"""Alerts: messages to people and programs when a finding or a metric calls for it, and when that is over."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gputop.alerts.plan import AlertPlan
    from gputop.alerts.sink import AlertSink
    from gputop.monitor import Monitor
    from gputop.source import Source


def due(plan: object, source: Source, *, rehearse: bool = False) -> AlertPlan | None:
    """The plan of the settings if its alerts are sent for this source; None without alerts.

    Nobody is alerted by a demo or a recording, unless `rehearse`.
    """
    if plan is None:
        return None
    from gputop.alerts.plan import AlertPlan  # late: most have no alerts

    return plan if isinstance(plan, AlertPlan) and plan.rules and (rehearse or not source.elsewhere) else None


def attach(
    monitor: Monitor, plan: object, *, settings_path: str | None, readonly: bool, rehearse: bool = False
) -> AlertSink | None:
    """Have a monitor send the alerts of the settings, if they are due.

    `settings_path`: the file with the alerts; `readonly`: no program is started and no mail is sent.
    """
    found = due(plan, monitor.source, rehearse=rehearse)
    if found is None:
        return None
    from gputop.alerts.sink import AlertSink, Turn

    place = None if rehearse or settings_path is None else os.path.realpath(settings_path)
    sink = AlertSink(
        found,
        monitor.source,
        withheld=withheld(settings_path, readonly=readonly),
        turn=Turn(place, readonly),
    )
    if found.extended:
        monitor.source.interest = replace(monitor.source.interest, extended=True)
    monitor.sinks = (*monitor.sinks, sink.take)
    return sink


def withheld(settings_path: str | None, *, readonly: bool) -> str:
    """Why receivers that start a program are not used; empty if they are.

    The settings name programs that run with our rights, so nobody else may have written them.
    """
    if readonly:
        return "--readonly starts no program"
    if settings_path is None:
        return ""
    from gputop.safe.programs import unfit

    why = unfit(str(Path(settings_path).absolute()), frozenset({0, os.geteuid()}))
    return f"{settings_path}: {why}" if why else ""
