"""Updates of a monitor written by hand, for alerts: a clock that a test sets, GPUs with temperatures, findings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gputop.alerts.condition import MetricCondition
from gputop.alerts.message import About, AlertMessage
from gputop.alerts.metric_values import metric_names
from gputop.alerts.tracker import AlertRule, AlertTracker
from gputop.diagnose import Evidence, Finding, Step, Subject
from gputop.model import Frame, Gpu, Host, Job, Process
from gputop.monitor import Update

WALL_S = 1_800_014_400.0
START_S = 1000.0


def gpu(number: int = 0, celsius: float | None = 60.0, **fields: Any) -> Gpu:
    """A GPU with a temperature."""
    return Gpu(uuid=f"GPU-{number}", index=str(number), name="H100", temperature_celsius=celsius, **fields)


def trainer(pid: int = 100, **fields: Any) -> Process:
    """A process of a job."""
    given = {
        "user": "alice",
        "uid": 1000,
        "name": "python",
        "command": ("python", "train.py"),
        "state": "R",
        "job": "j",
    }
    return Process(pid=pid, started_ticks=7, parent_pid=1, **{**given, **fields})


def update(
    at_s: float, *gpus: Gpu, findings: tuple[Finding, ...] = (), processes: tuple[Process, ...] = (), **host: Any
) -> Update:
    """An update so many seconds after the start."""
    members = tuple(one.identity for one in processes)
    frame = Frame(
        wall_s=WALL_S + at_s,
        mono_s=START_S + at_s,
        hostname="dgx-07",
        host=Host(**host),
        gpus=gpus,
        processes=processes,
        jobs=(Job(key="j", name="llama-7b", user="alice", members=members, ranks=members),) if members else (),
    )
    return Update(frame=frame, findings=findings)


def finding(rule: str = "thermal", severity: Any = "warn", *gpus: str, since_s: float = 40.0, **fields: Any) -> Finding:
    """A finding on GPUs."""
    given: dict[str, Any] = {
        "subject": Subject(kind="gpu", gpus=gpus or ("GPU-0",)),
        "headline": "hardware thermal slowdown",
        "evidence": (Evidence(text="88 °C", value=88.0, unit="C", limit=90.0, sense="healthy_to"),),
        "steps": (Step(text="Improve airflow", command="nvidia-smi -q -d TEMPERATURE", needs_root=True),),
    }
    return Finding(rule=rule, severity=severity, since_s=since_s, **{**given, **fields})


def hot_rule(**fields: Any) -> AlertRule:
    """An alert on a GPU above 88 degrees for a minute."""
    condition = MetricCondition(metric=metric_names()["gpu.temperature_celsius"], test="above", limit=88)
    given = {"name": "hot", "condition": condition, "for_s": 60.0, "cooldown_s": 900.0, "send": ("here",)}
    return AlertRule(**{**given, **fields})


def told(tracker: AlertTracker, one: Update) -> list[str]:
    """What it says of an update: `firing`, `resolved cleared`."""
    return [f"{each.status} {each.ended}".strip() for each in tracker.advance(one)]


def message(**fields: Any) -> AlertMessage:
    """A message about a hot GPU."""
    given: dict[str, Any] = {
        "alert": "hot",
        "id": "hot-1c291ca3",
        "status": "firing",
        "severity": "crit",
        "host": "dgx-07",
        "about": About(kind="gpu", name="GPU 6", gpus=("6",)),
        "headline": "GPU core temperature above 88 °C",
        "evidence": ("GPU core temperature 91 °C (alert above 88 °C)",),
        "metric": "gpu.temperature_celsius",
        "value": 91.0,
        "limit": 88.0,
        "unit": "C",
        "began_wall_s": WALL_S - 120,
        "sent_wall_s": WALL_S,
        "lasted_s": 120.0,
    }
    return AlertMessage(**{**given, **fields})


def at(one: Update, **fields: Any) -> Update:
    """The same update with another frame."""
    return replace(one, frame=replace(one.frame, **fields))
