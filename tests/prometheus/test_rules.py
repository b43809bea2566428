"""The rules for Prometheus, checked and run by its own promtool on planted series."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gputop.prometheus.families import families
from gputop.prometheus.rules import ALERT_RULES, RECORDING_RULES, rule_file


@pytest.fixture
def promtool() -> str:
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("not covered: promtool is not installed, so no rule was evaluated")
    return found


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    path = tmp_path / "gputop.rules.yml"
    path.write_text(rule_file())
    return path


def target(host: str) -> str:
    """The labels that Prometheus gives to all series of a host."""
    return f'instance="{host}",job="gputop"'


def series(name: str, labels: str, values: str, host: str = "a") -> dict[str, str]:
    """A planted series of a host."""
    return {"series": f"{name}{{{','.join(filter(None, (labels, target(host))))}}}", "values": values}


def gpu(index: int, busy: float, host: str = "a") -> list[dict[str, str]]:
    """A GPU of a host that is as busy for a quarter of an hour, with 100 W and half of its 80 GB in use."""
    labels = f'gpu="{index}",uuid="GPU-{index}"'
    return [
        series("gputop_gpu_up", labels, "1x60", host),
        series("gputop_gpu_busy_ratio", labels, f"{busy}x60", host),
        series("gputop_gpu_power_watts", labels, "100x60", host),
        series("gputop_gpu_vram_used_bytes", labels, "40x60", host),
        series("gputop_gpu_vram_total_bytes", labels, "80x60", host),
        series("gputop_gpu_info", f'{labels},name="H100"', "1x60", host),
    ]


def finding(severity: str, values: str = "3x60", host: str = "a", primary: str = "true") -> list[dict[str, str]]:
    """A finding, with its headline."""
    labels = f'rule="thermal",severity="{severity}",kind="gpu",subject="GPU 1",gpus="1",job_id="7.1",job_name="llama"'
    return [
        series("gputop_finding", f'{labels},primary="{primary}"', values, host),
        series("gputop_finding_headline_info", f'{labels},headline="hot, 88 °C"', "1x60", host),
    ]


LOST = 'rule="starved-cpu-idle",cause="threads-host",job_id="7.1",job_name="llama"'
# host a has two GPUs, of which one hangs with its last value, and a third that is a MIG instance; host b has one
PLANTED = [
    *gpu(0, 0.5), *gpu(1, 0.9), *gpu(0, 0.25, "b"),
    series("gputop_gpu_up", 'gpu="2",uuid="GPU-2"', "0x60"),
    series("gputop_gpu_busy_ratio", 'gpu="2",uuid="GPU-2"', "1x60"),
    series("gputop_gpu_up", 'gpu="0:0",uuid="MIG-0"', "1x60"),
    series("gputop_gpu_info", 'gpu="0:0",uuid="MIG-0",parent_uuid="GPU-0"', "1x60"),
    series("gputop_gpus", "", "3x60"), series("gputop_gpus", "", "1x60", "b"),
    *(series("gputop_jobs", f'state="{state}"', f"{count}x60") for state, count in (("found", 1), ("healthy", 2))),
    series("gputop_jobs", 'state="found"', "0x60", "b"),
    *finding("warn", "2x60"), *finding("info", "1x60"),
    series("gputop_lost_gpu_seconds_total", LOST, "0+60x60"),  # one GPU, at every moment
    series("gputop_lost_gpu_seconds_total", LOST.replace("7.1", "8.1"), "0+30x60"),
]  # fmt: skip
EXPECTED = {
    "instance:gputop_gpus:sum": (3, 1),
    "instance:gputop_gpu_up:sum": (2, 1),
    "instance:gputop_gpu_busy_ratio:avg5m": (0.7, 0.25),
    "instance:gputop_gpus_busy:sum": (2, 1),
    "instance:gputop_gpu_power_watts:sum": (200, 100),
    "instance:gputop_gpu_vram_used_ratio:sum": (0.5, 0.5),
    "instance:gputop_jobs:sum": (3, 0),
    "instance:gputop_jobs_found:sum": (1, 0),
    "instance:gputop_finding_severity:max": (2, 0),
    "instance:gputop_lost_gpu_ratio:rate5m": (0.5, 0),
}
STEPS = "Evidence and steps: `gputop diagnose` on a; the rule: `gputop rules thermal`."


def fired(severity: str, summary: str, description: str, **labels: str) -> dict[str, Any]:
    """An alert as promtool expects it; without a job if the series had none."""
    return {
        "exp_labels": {"severity": severity, "instance": "a", "job": "gputop", **labels},
        "exp_annotations": {"summary": summary, "description": description},
    }


_ABOUT = {"rule": "thermal", "kind": "gpu", "subject": "GPU 1", "gpus": "1", "job_id": "7.1", "job_name": "llama"}
_GPU = {"gpu": "1", "uuid": "GPU-1"}
ALERTS: dict[str, tuple[list[dict[str, str]], str, list[dict[str, Any]]]] = {
    # alert and case: series, when, what fires
    "GputopFindingCritical": (
        finding("crit"), "3m", [fired("critical", "GPU 1: hot, 88 °C", STEPS, primary="true", **_ABOUT)],
    ),
    "GputopFindingCritical too short": (finding("crit"), "1m", []),
    "GputopFindingCritical of a warning": (finding("warn"), "30m", []),
    "GputopFindingWarning": (
        finding("warn"), "11m", [fired("warning", "GPU 1: hot, 88 °C", STEPS, primary="true", **_ABOUT)],
    ),
    "GputopFindingWarning without a headline": (
        finding("warn")[:1], "11m", [fired("warning", "GPU 1: thermal", STEPS, primary="true", **_ABOUT)],
    ),
    "GputopFindingWarning beside another": (finding("warn", primary="false"), "30m", []),
    "GputopFindingWarning of an info": (finding("info"), "30m", []),
    "GputopGpuTimeLost": (
        [series("gputop_gpus", "", "4x240"), series("gputop_lost_gpu_seconds_total", LOST, "0+60x240")], "2h",
        [fired("warning", "a: 25% of GPU time lost in the last hour", "By cause: `sum by (rule, job_name) "
               '(rate(gputop_lost_gpu_seconds_total{instance="a"}[1h]))`.')],
    ),
    "GputopGpuTimeLost just below": (
        [series("gputop_gpus", "", "4x240"), series("gputop_lost_gpu_seconds_total", LOST, "0+47x240")], "2h", [],
    ),
    "GputopGpuLost": (
        [series("gputop_gpu_condition", 'gpu="1",uuid="GPU-1",condition="lost"', "1x60")], "2m",
        [fired("critical", "a: GPU 1 lost", "The driver no longer reaches GPU-1. See `dmesg` for an Xid error on that "
               "host.", condition="lost", **_GPU)],
    ),
    "GputopGpuLost when it is well": (
        [series("gputop_gpu_condition", 'gpu="1",uuid="GPU-1",condition="ok"', "1x60")], "30m", [],
    ),
    "GputopGpuNotAnswering": (
        [series("gputop_gpu_condition", 'gpu="1",uuid="GPU-1",condition="hung"', "1x60")], "6m",
        [fired("warning", "a: GPU 1 does not answer", "Driver calls for GPU-1 do not return; its metrics are the last "
               "known ones.", condition="hung", **_GPU)],
    ),
    "GputopStale": (
        [series("gputop_frame_timestamp_seconds", "", "0x60")], "10m",
        [fired("warning", "a: no new samples for 10m 0s", "gputop does not sample, or its text file is not replaced: "
               "it may have been killed.")],
    ),
    "GputopStale when it is not": ([series("gputop_frame_timestamp_seconds", "", "0+60x60")], "30m", []),
    "GputopDown": (
        [series("gputop_build_info", 'version="1"', "1x10 stale"), series("up", "", "1x10 0x50")], "20m",
        [fired("warning", "a: exporter down or unreachable (up is 0)", "It was scraped within the last day.")],
    ),
    "GputopDown of another program": ([series("up", "", "0x60")], "30m", []),
    "GputopSeriesDropped": (
        [series("gputop_dropped_series", 'of="gpu"', "70x60"), series("gputop_dropped_series", 'of="mount"', "1x60")],
        "31m", [fired("warning", "a: 71 series are not exported",
                      "Raise --max-series of `gputop export prometheus`, or lower --processes.")],
    ),
    "GputopSeriesDropped of processes": ([series("gputop_dropped_series", 'of="process"', "70x60")], "40m", []),
}  # fmt: skip


def test_the_rules_are_valid(promtool: str, rules: Path) -> None:
    done = subprocess.run([promtool, "check", "rules", rules], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert f"SUCCESS: {len(RECORDING_RULES) + len(ALERT_RULES)} rules found" in done.stdout


def run(promtool: str, rules: Path, *tests: dict[str, Any]) -> None:
    """Raise with promtool's report if a test fails. JSON is YAML."""
    path = rules.with_name("tests.yml")
    path.write_text(json.dumps({"rule_files": [rules.name], "evaluation_interval": "1m", "tests": [*tests]}))
    done = subprocess.run([promtool, "test", "rules", path], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_host_has_one_series_of_each_recording_rule(promtool: str, rules: Path) -> None:
    assert set(EXPECTED) == {rule.name for rule in RECORDING_RULES}
    queries = [
        {
            "expr": name,
            "eval_time": "15m",
            "exp_samples": [
                {"labels": f"{name}{{{target(host)}}}", "value": value}
                for host, value in zip("ab", values, strict=True)
            ],
        }
        for name, values in EXPECTED.items()
    ]
    run(promtool, rules, {"interval": "1m", "input_series": PLANTED, "promql_expr_test": queries})


def test_every_alert_has_a_case() -> None:
    assert {case.split()[0] for case in ALERTS} == {rule.name for rule in ALERT_RULES}


@pytest.mark.parametrize("case", ALERTS)
def test_an_alert_fires_when_it_should(promtool: str, rules: Path, case: str) -> None:
    planted, at, expected = ALERTS[case]
    alert = {"eval_time": at, "alertname": case.split()[0], "exp_alerts": expected}
    run(promtool, rules, {"interval": "1m", "input_series": planted, "alert_rule_test": [alert]})


def test_a_hostile_subject_stays_a_text_in_the_query_of_a_summary(promtool: str, rules: Path) -> None:
    hostile = r"x\"} or up{a=\""
    planted = [{**one, "series": one["series"].replace("GPU 1", hostile)} for one in finding("crit")]
    about = {**_ABOUT, "subject": 'x"} or up{a="'}
    expected = fired("critical", 'x"} or up{a=": hot, 88 °C', STEPS, primary="true", **about)
    alert = {"eval_time": "3m", "alertname": "GputopFindingCritical", "exp_alerts": [expected]}
    run(promtool, rules, {"interval": "1m", "input_series": planted, "alert_rule_test": [alert]})


def test_rules_name_only_series_that_there_are() -> None:
    import re

    known = {family.name for family in families()} | {rule.name for rule in RECORDING_RULES}
    for rule in (*RECORDING_RULES, *ALERT_RULES):
        assert {*re.findall(r"\bgputop_\w+", rule.expr)} <= known, rule.name


def test_a_name_says_level_metric_and_operation() -> None:
    assert all(rule.name.startswith("instance:gputop_") and rule.name.count(":") == 2 for rule in RECORDING_RULES)
