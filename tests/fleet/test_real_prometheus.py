"""A real Prometheus: a thousand simulated GPUs with an hour of history, and a real exporter that it scrapes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gputop.fleet.address import PrometheusAddress
from gputop.fleet.host_history import POINTS, HostHistory
from gputop.fleet.matchers import parse
from gputop.fleet.poller import TREND, Fleet
from gputop.fleet.promql import PrometheusClient, Unanswered
from gputop.fleet.queries import RECORDED
from tests.fakenvml import Fake
from tests.fleet.simulated import DEAD, GPUS, HEADLINE, HOT, IDLE, JUDGING, LOST, SLOW, name, openmetrics
from tests.process_watch import running
from tests.prometheus.test_real_prometheus import free_port
from tests.prometheus.test_real_prometheus import prometheus as scraping
from tests.scrapes import serving, until

HOSTS = 125
_PAST_S, _FUTURE_S, _DIED_S = 3900.0, 1200.0, 1500.0  # what is planted around now, and when one host died

pytestmark = pytest.mark.skipif(
    not (shutil.which("prometheus") and shutil.which("promtool")),
    reason="not covered: prometheus is not installed, so no query of gputop fleet was evaluated",
)


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Blocks with an hour of a thousand GPUs."""
    folder = tmp_path_factory.mktemp("blocks")
    now_s = time.time()
    with (folder / "text").open("w") as file:
        file.writelines(openmetrics(range(HOSTS), now_s - _PAST_S, now_s + _FUTURE_S, now_s - _DIED_S))
    made = [str(shutil.which("promtool")), "tsdb", "create-blocks-from", "openmetrics", str(folder / "text")]
    subprocess.run([*made, str(folder / "data")], check=True, capture_output=True, timeout=300)
    (folder / "text").unlink()
    return folder / "data"


@pytest.fixture
def url(planted: Path, tmp_path: Path) -> Iterator[str]:
    """The address of a Prometheus that has these, without recording rules."""
    shutil.copytree(planted, tmp_path / "data")
    (tmp_path / "prometheus.yml").write_text("{}")
    port = free_port()
    command = (
        str(shutil.which("prometheus")), f"--config.file={tmp_path / 'prometheus.yml'}",
        f"--storage.tsdb.path={tmp_path / 'data'}", f"--web.listen-address=127.0.0.1:{port}", "--log.level=error",
    )  # fmt: skip
    with running(*command, stderr=subprocess.DEVNULL):
        yield f"http://127.0.0.1:{port}"


def asking(url: str, match: str = "") -> Fleet:
    client = PrometheusClient(PrometheusAddress(url=url, place="here"), 60.0)
    made = Fleet(client, parse(match) if match else ())
    until(lambda: _answers(made))
    return made


def _answers(made: Fleet) -> bool:
    """Whether Prometheus has read its storage."""
    try:
        return bool(made.client.instant("gputop_gpus"))
    except Unanswered:
        return False


def test_a_thousand_gpus(url: str) -> None:
    made = asking(url)
    (*_, view) = made.poll()
    rows = {row.name: row for row in made.rows()}
    assert len(rows) == HOSTS
    assert sum(row.state == "live" for row in rows.values()) == HOSTS - 1
    assert sum(row.gpus or 0 for row in rows.values()) == GPUS * (HOSTS - 1)
    slow, hot, dead = (rows[name(number)] for number in (SLOW, HOT, DEAD))
    assert (slow.badge, slow.finding, slow.findings) == ("warn", f"llama-7b: {HEADLINE}", 1)
    assert slow.gpus_lost == pytest.approx(4 * LOST, rel=0.05)
    assert slow.busy_percent == pytest.approx(50, abs=12)
    assert (slow.gpus_busy, slow.vram_percent, slow.cpu_percent, slow.memory_percent, slow.jobs) == (8, 75, 25, 20, 1)
    assert slow.power_watts == pytest.approx(8 * (80 + 600 * 0.5), rel=0.4)
    assert (hot.badge, hot.finding) == ("crit", "GPU 6: hardware thermal slowdown")
    assert (dead.state, dead.why) == ("lost", "exporter down or unreachable (up is 0)")
    assert dead.age_s == pytest.approx(_DIED_S, abs=120)
    assert (rows[name(IDLE)].gpus_busy, rows[name(IDLE)].jobs) == (0, 0)
    assert rows[name(JUDGING)].badge == "judging"
    assert rows[name(0)].badge == "ok"
    for number in (0, SLOW, IDLE):
        trend = rows[name(number)].trend
        assert len(trend) == TREND
        assert None not in trend
    assert all(0 <= (row.age_s or 0) <= 61 + time.monotonic() - view.mono_s for row in rows.values() if row is not dead)
    assert made.queries.recorded == frozenset()
    assert len(made.remarks) == 1


def test_the_last_hour_of_a_host_and_matchers(url: str) -> None:
    made = asking(url, 'cluster="a",instance=~"dgx-00[0-9].*"')
    (*_, view) = made.poll()
    assert [host.row.name for host in view.hosts] == [name(number) for number in (0, 2, 4, 6, 8)]
    history = HostHistory(made, rest_s=0.01)
    hours = until(lambda: history.hour(view.by_name[name(SLOW)]))
    assert hours is not None
    assert (hours.why, len(hours.busy)) == ("", POINTS)
    assert sum(value is not None for value in hours.busy) >= POINTS - 2
    assert max(value or 0 for value in hours.lost) == pytest.approx(100 * LOST / 2, rel=0.1)
    history.close()


def test_a_regular_expression_that_prometheus_refuses_is_said(url: str) -> None:
    asking(url)
    client = PrometheusClient(PrometheusAddress(url=url, place="here"), 60.0)
    with pytest.raises(Unanswered, match=r"query failed: bad_data: .*error parsing regexp"):
        [*Fleet(client, parse('cluster=~"("')).poll()]


def test_the_command_prints_what_a_real_exporter_says_with_recording_rules(tmp_path: Path, fake: Fake) -> None:
    """A real exporter on the fake driver, scraped by a real Prometheus that evaluates our rules."""
    fake.update({"gpus": 2})
    command = [sys.executable, "-m", "gputop", "fleet", "--prometheus"]
    with serving("--interval", "1", env=fake.env()) as served, scraping(tmp_path, served.port, free_port()) as asked:
        until(lambda: all(asked.query(rule) for rule in RECORDED.values()))
        url = asked._url
        done = subprocess.run([*command, url, "--json"], capture_output=True, text=True, timeout=60, check=True)
        assert done.stderr == ""
        (host,) = json.loads(done.stdout)["hosts"]
        assert (host["name"], host["state"], host["gpus"]) == ("127.0.0.1", "live", 2)
        assert host["cpu_percent"] is not None
        assert host["age_s"] < 60
        own = [*command, url, "--once", "--ssh-name", "hostname"]
        done = subprocess.run(own, capture_output=True, text=True, timeout=60, check=True)
        assert os.uname().nodename in done.stdout
        served.program.kill()
        died_s = time.time()
        until(lambda: asked.query("up == 0") and not asked.query(RECORDED["gpus"]))
        asked_s = time.time()
        done = subprocess.run([*command, url, "--json"], capture_output=True, text=True, timeout=60, check=False)
        (host,) = json.loads(done.stdout)["hosts"]
        assert host["state"] == "lost"
        # its last sample was scraped in its last seconds, and the answer from a moment between the two
        assert asked_s - died_s - 1 <= host["age_s"] <= time.time() - died_s + 5
