"""A small cluster to draw: each host is a demo at its newest update, one does not answer, a job spans three."""

from __future__ import annotations

from dataclasses import replace

from gputop.config import Settings
from gputop.hosts.overview import HostRow, row
from gputop.hosts.spanning import SpanningSource, spanning_jobs
from gputop.model import Frame
from gputop.monitor import Monitor, Update
from gputop.ui.hosts.app import HostsApp
from gputop.ui.latest_update import LatestUpdate
from gputop.ui.theme import Look
from tests.hosts.test_overview import watched
from tests.hosts.test_spanning import part
from tests.ui.test_ui_hosts import Watched

HOSTS = {
    "dgx01": "healthy", "dgx02": "healthy-plateau", "dgx03": "starved-cpu-idle", "dgx04": "thermal",
    "dgx05": "io-bound", "dgx06": "threads-host", "dgx07": "showcase", "dgx08": "idle", "dgx09": "healthy",
    "dgx10": "collective-wait", "dgx11": "healthy-plateau",
}  # fmt: skip


def cluster() -> tuple[list[HostRow], dict[str, Update]]:
    """The lines of the hosts, and their updates."""
    updates = {
        name: replace(update, frame=replace(update.frame, hostname=name))
        for name, scenario in HOSTS.items()
        for update in (watched(scenario)[1],)
    }
    rows = [
        replace(row(name, update), state="live", age_s=0.3 + 0.07 * place)
        for place, (name, update) in enumerate(updates.items())
    ]
    rows.append(HostRow(name="dgx12", state="lost", why="no answer within 10 s", retry_in_s=8.0))
    return rows, updates


def overview(wall_s: float, look: Look) -> HostsApp:
    """The program on that cluster, at a moment."""
    rows, updates = cluster()
    source = SpanningSource(dict, f"{len(rows)} hosts")
    named = {"dgx01": part(0, world=6), "dgx02": part(2, world=6), "dgx11": part(4, world=6)}
    source.jobs = [
        replace(job, parts=tuple(replace(each, job=replace(each.job, name="llama-70b")) for each in job.parts))
        for job in spanning_jobs({name: made(0.0) for name, made in named.items()})
    ]
    latest = LatestUpdate()
    latest.put(Update(frame=Frame(wall_s=wall_s, mono_s=1.0, hostname="hosts", host=updates["dgx01"].frame.host)))
    return HostsApp(Watched(rows, updates), Monitor(source), latest, Settings(), look)  # type: ignore[arg-type]
