"""A small cluster to draw: each host is a demo at its newest update, one does not answer, a job spans three."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

from gputop.config import Settings
from gputop.fleet.address import PrometheusAddress
from gputop.fleet.host_history import HostHistory, HostHour
from gputop.fleet.poller import Fleet, percents
from gputop.fleet.promql import PrometheusClient
from gputop.fleet.queries import BUSY, LOST
from gputop.hosts.overview import HostRow, row
from gputop.hosts.spanning import SpanningSource, spanning_jobs
from gputop.model import Frame
from gputop.monitor import Monitor, Update
from gputop.ui.hosts.app import HostsApp
from gputop.ui.hosts.board import SshBoard
from gputop.ui.hosts.fleet import FleetBoard
from gputop.ui.latest_update import LatestUpdate
from gputop.ui.theme import Look
from tests.fleet.scripted import Answers, ScriptedPrometheus, names
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
    named = {host: part(rank, ranks=1, world=3) for rank, host in enumerate(("dgx01", "dgx02", "dgx11"))}
    source.jobs = [
        replace(job, parts=tuple(replace(each, job=replace(each.job, name="llama-70b")) for each in job.parts))
        for job in spanning_jobs({name: made(0.0) for name, made in named.items()})
    ]
    latest = LatestUpdate()
    latest.put(Update(frame=Frame(wall_s=wall_s, mono_s=1.0, hostname="hosts", host=updates["dgx01"].frame.host)))
    board = SshBoard(Watched(rows, updates), source.label, lambda: source.jobs)  # type: ignore[arg-type]
    return HostsApp(board, Monitor(source), latest, Settings(), look)


def hour(server: ScriptedPrometheus, host: str, at_s: float) -> HostHour:
    """The last hour of a host until a moment."""
    form = {
        "start": str(at_s - 59 * 60),
        "end": str(at_s),
        "step": "60",
        "query": f'gputop_value,instance="{host}:9400"',
    }
    found = {one["metric"]["gputop_value"]: tuple(float(value) for _, value in one["values"])
             for one in Answers(server.instances, at_s).over(form)}  # fmt: skip
    return HostHour(
        busy=percents(found.get(BUSY, ())), lost=percents(found.get(LOST, ())), mono_s=time.monotonic() + 1e6
    )  # fmt: skip


@contextmanager
def fleet_screen(at_s: float, look: Look, hosts: int) -> Iterator[tuple[HostsApp, Fleet]]:
    """The program on a Prometheus that knows so many hosts, at a moment at which time stands still."""
    with ScriptedPrometheus(names(hosts), at_s=at_s) as server:
        fleet = Fleet(PrometheusClient(PrometheusAddress(url=server.url, place="prometheus:9090")))
        frame, *_ = fleet.frames(threading.Event()).__next__(), *[*fleet.poll()]
        view = fleet.view
        assert view is not None
        fleet.rows = lambda now_s=None: Fleet.rows(fleet, now_s or view.mono_s)  # type: ignore[method-assign]
        fleet.wall_s = lambda now_s=None: at_s  # type: ignore[method-assign]
        history = HostHistory(fleet)
        history._kept = {host.key: hour(server, host.row.name, at_s) for host in view.hosts}
        latest = LatestUpdate()
        board = FleetBoard(fleet, history, lambda name: SimpleNamespace(label=name), Settings())  # type: ignore[arg-type,return-value]
        app = HostsApp(board, Monitor(fleet), latest, Settings(), look)
        latest.put(replace(watched("starved-cpu-idle")[1], frame=frame, findings=()))
        yield app, fleet
