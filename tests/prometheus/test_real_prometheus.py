"""A real Prometheus scrapes a real gputop: every query of the dashboard, and every recording rule, has an answer."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gputop.prometheus.dashboard import VARIABLES, dashboard, panels
from gputop.prometheus.rules import RECORDING_RULES, rule_file
from tests.fakenvml import Fake
from tests.process_watch import running
from tests.scrapes import serving, until
from tests.traced_jobs import environment, scratch

TRAINING = """
import time, torch
from torch.utils.data import DataLoader, TensorDataset
torch.set_num_threads(1)
model = torch.nn.Linear(8, 1)
steps = torch.optim.SGD(model.parameters(), lr=1e-6)
batches = DataLoader(TensorDataset(torch.rand(1 << 14, 8)), batch_size=64)
print("ready", flush=True)
while True:
    for (batch,) in batches:
        model(batch).mean().backward()
        steps.step()
        steps.zero_grad()
        time.sleep(0.02)
"""
# GPU 0 is slowed by heat, by a third of its clock
HOT = {"gpus": 2, "gpu.0.hw_thermal_ns_per_s": 440_000_000, "gpu.0.sm_clock": 1200, "gpu.0.temperature": 88}
ANSWERED_S = 150.0  # rules judge half a minute of samples, and findings must hold as long


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


class Prometheus:
    """The HTTP interface of a running one."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"

    def ask(self, path: str, **parameters: str) -> Any:
        """The answer's data; None while it does not answer yet."""
        url = f"{self._url}{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=60) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            if error.code == 503:  # it reads its storage first
                return None
            raise AssertionError(f"{parameters}: {error.read().decode()}") from None
        except OSError:
            return None

    def query(self, expr: str) -> list[dict[str, Any]]:
        """The series that an expression has now."""
        found: list[dict[str, Any]] = self.ask("/api/v1/query", query=expr)["result"]
        return found


@contextmanager
def prometheus(folder: Path, target: int, port: int) -> Iterator[Prometheus]:
    """A Prometheus on loopback that scrapes a port every second and evaluates our rules as often."""
    (folder / "gputop.rules.yml").write_text(rule_file())
    seldom = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    scraped = [{"job_name": "gputop", "static_configs": [{"targets": [f"127.0.0.1:{target}"]}]}]
    (folder / "prometheus.yml").write_text(
        json.dumps({"global": seldom, "rule_files": ["gputop.rules.yml"], "scrape_configs": scraped})
    )
    command = (
        shutil.which("prometheus") or "prometheus", f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn",
    )  # fmt: skip
    with running(*command, stderr=subprocess.DEVNULL):
        asked = Prometheus(port)
        until(lambda: asked.ask("/api/v1/targets"))
        yield asked


def queries() -> dict[str, str]:
    """Every query of the dashboard as Grafana sends it for all hosts and jobs, by its place."""
    found = {
        f"{row}: {panel.title}: {query.legend}": query.expr
        for row, made in panels().items()
        for panel in made
        for query in panel.queries
    }
    for name, (_, query) in VARIABLES.items():
        expr, _, label = query.removeprefix("label_values(").removesuffix(")").rpartition(", ")
        found[f"variable {name}"] = f"count by ({label}) ({expr})"
    filled = {"$host": ".*", "$job": ".*", "$__rate_interval": "10s", "$__range": "1m"}
    return {place: re.sub(r"\$\w+", lambda name: filled[name[0]], expr) for place, expr in found.items()}


@pytest.mark.jobs
def test_every_query_of_the_dashboard_and_every_rule_has_data(tmp_path: Path, fake: Fake) -> None:
    """On the fake driver, with a training that has a step meter, on a GPU that is too hot."""
    if shutil.which("prometheus") is None:
        pytest.skip("not covered: prometheus is not installed, so no query of the dashboard was evaluated")
    fake.update(HOT)
    with scratch() as folder:
        script = Path(folder, "train.py")
        script.write_text(TRAINING)
        env = environment(folder)
        with running(sys.executable, str(script), env=env, cwd=folder) as training:
            assert training.stdout is not None
            assert training.stdout.readline().strip() == "ready"
            fake.add_process(gpu=0, pid=training.pid, vram_bytes=3 << 30, sm=57)
            own = {name: env[name] for name in ("GPUTOP_RUNTIME_DIR", "XDG_STATE_HOME")}
            with (
                serving("--interval", "1", env=fake.env(**own)) as served,
                prometheus(tmp_path, served.port, free_port()) as asked,
            ):
                _wait_for_data(asked)


def _wait_for_data(asked: Prometheus) -> None:
    wanted = queries() | {rule.name: rule.name for rule in RECORDING_RULES}
    deadline = time.monotonic() + ANSWERED_S
    while silent := {place: expr for place, expr in wanted.items() if not asked.query(expr)}:
        assert time.monotonic() < deadline, silent
        time.sleep(1.0)
    for rule in RECORDING_RULES:
        assert len(asked.query(rule.name)) == 1, rule.name
    rules = asked.ask("/api/v1/rules")["groups"]
    assert [one["lastError"] for group in rules for one in group["rules"] if one.get("lastError")] == []


def test_each_row_and_panel_of_the_dashboard_has_a_title_of_its_own() -> None:
    titles = [each["title"] for each in json.loads(dashboard())["panels"]]
    assert len(titles) == len(panels()) + sum(map(len, panels().values()))
    assert sorted(titles) == sorted(set(titles))


def test_the_dashboard_is_one_that_grafana_reads() -> None:
    made = json.loads(dashboard())
    numbers = [panel["id"] for panel in made["panels"]]
    assert len(numbers) == len(set(numbers))
    assert [panel["title"] for panel in made["panels"] if panel["type"] == "row"] == [
        "Hosts", "GPUs", "Jobs", "Findings", "Lost time",
    ]  # fmt: skip
    assert [one["name"] for one in made["templating"]["list"]] == ["datasource", "host", "job"]
    taken: set[tuple[int, int]] = set()
    for panel in made["panels"]:
        place = panel["gridPos"]
        cells = {(x, y) for x in range(place["x"], place["x"] + place["w"])
                 for y in range(place["y"], place["y"] + place["h"])}  # fmt: skip
        assert place["x"] + place["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells
        assert panel["type"] == "row" or (panel["targets"] and panel["title"] and panel["description"])


def test_a_metric_with_a_history_has_a_chart() -> None:
    from gputop.prometheus.families import GPU

    charted = {panel.queries[0].expr.partition("{")[0] for panel in panels()["GPUs"]}
    assert charted == {GPU.named(metric.name).name for metric in GPU.metrics if metric.history}
