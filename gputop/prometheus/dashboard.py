"""A Grafana dashboard made of the families: hosts, GPUs, jobs, findings, lost time.

GPU charts are those metrics that the model declares as worth a history, so a new one gets its chart here, too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from gputop.frozen_dataclass import frozen_dataclass
from gputop.prometheus import families as names
from gputop.prometheus.families import GPU, HOST, HOST_PRESSURE, Family
from gputop.prometheus.rules import aggregated

TITLE, UID = "gputop", "gputop"
_ON_HOST = 'instance=~"$host"'
_OF_JOB = f'{_ON_HOST},job_name=~"$job"'
_INTERVAL = "$__rate_interval"
_UNITS = {
    "ratio": "percentunit",
    "bytes": "bytes",
    "bytes_per_second": "Bps",
    "watts": "watt",
    "joules": "joule",
    "celsius": "celsius",
    "hertz": "hertz",
    "seconds": "s",
}
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_WIDTH = 24  # of Grafana's grid
_TITLE_END = re.compile(r"[:;(,]")
_SEVERITIES = {"0": ("none", "green"), "1": ("info", "blue"), "2": ("warn", "orange"), "3": ("crit", "red")}


Columns = tuple[tuple[str, str], ...]


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """One query of a panel. `legend` names its series; of a table it is the column."""

    expr: str
    legend: str = ""


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One panel. `kind` is Grafana's."""

    title: str
    help: str
    queries: Sequence[Query]
    kind: str = "timeseries"
    unit: str = ""
    width: int = 8
    height: int = 7
    columns: Columns = ()  # of a table: labels that are shown, with their titles
    units: Columns = ()  # of a table: its query columns that have a unit


def chart(family: Family, expr: str, legend: str, *, title: str = "", width: int = 8) -> Panel:
    """A chart of one family, with its help and unit."""
    return Panel(
        title=title or _title(family),
        help=family.help,
        queries=(Query(expr=expr, legend=legend),),
        unit=family.unit,
        width=width,
    )


def _title(family: Family) -> str:
    return _TITLE_END.split(family.help)[0].strip()


def _selected(family: Family, labels: str = _ON_HOST) -> str:
    return f"{family.name}{{{labels}}}"


def _hosts() -> Iterator[Panel]:
    gpus, busy = _selected(names.GPUS), _selected(GPU.named("busy_percent"))
    lost = f"rate({_selected(names.LOST)}[{_INTERVAL}])"
    totals = (
        ("Number of GPUs", names.GPUS.help, f"sum({gpus})", ""),
        ("GPUs not answering", "Lost, hung or not yet initialized", f"sum({_selected(names.GPU_UP)} == bool 0)", ""),
        ("Number of jobs", names.JOBS.help, f"sum({_selected(names.JOBS)})", ""),
        ("GPU busy, all hosts", GPU.named("busy_percent").help, f"avg({busy})", "ratio"),
        ("GPU time lost", names.LOST.help, f"(sum({lost}) or vector(0)) / sum({gpus})", "ratio"),
        ("Power", GPU.named("power_watts").help, f"sum({_selected(GPU.named('power_watts'))})", "watts"),
    )
    for title, help, expr, unit in totals:
        yield Panel(title=title, help=help, queries=(Query(expr=expr),), kind="stat", unit=unit, width=4, height=4)
    worst = aggregated("max", _selected(names.FINDING), names.FINDING)
    yield Panel(
        title="Each host",
        help="One line for each host; GPU time lost over the last 5 min",
        queries=(
            Query(expr=gpus, legend="GPUs"),
            Query(expr=aggregated("avg", busy, GPU.named("busy_percent")), legend="GPU busy"),
            Query(expr=aggregated("sum", _selected(names.JOBS), names.JOBS), legend="Jobs"),
            Query(expr=f"{worst} or 0 * {gpus}", legend="Worst finding"),
            Query(
                expr=f"{aggregated('sum', f'rate({_selected(names.LOST)}[5m])', names.LOST)} / {gpus} or 0 * {gpus}",
                legend="GPU time lost",
            ),
        ),
        kind="table",
        width=_WIDTH,
        height=8,
        columns=(("instance", "Host"),),
        units=(("GPU busy", "ratio"), ("GPU time lost", "ratio")),
    )
    for metric in ("cpu_percent", "memory_available_bytes", "read_bytes_per_s", "receive_bytes_per_s"):
        family = HOST.named(metric)
        yield chart(family, _selected(family), "{{instance}}", width=6)
    pressure = HOST_PRESSURE.named("some_percent")
    yield chart(pressure, _selected(pressure), "{{instance}} {{resource}}", title="Pressure (PSI)", width=_WIDTH)


def _gpus() -> Iterator[Panel]:
    for metric, family in zip(GPU.metrics, GPU.families, strict=True):
        if metric.history:
            expr = f"rate({_selected(family)}[{_INTERVAL}])" if metric.counter else _selected(family)
            yield chart(family, expr, "{{instance}} GPU {{gpu}}")


def _jobs() -> Iterator[Panel]:
    state = _selected(names.JOB_STATE, _OF_JOB)
    yield Panel(
        title="Each job",
        help=names.JOB_STATE.help,
        queries=(Query(expr=state, legend="State"),),
        kind="table",
        width=_WIDTH,
        columns=(("instance", "Host"), ("job_name", "Job"), ("state", "State")),
    )
    per_job = {
        names.JOB_BUSY: "GPU busy by job",
        names.JOB_VRAM: "GPU memory by job",
        names.JOB_GPUS: "GPUs by job",
        names.JOB_STEP: "Step time",
        names.JOB_DATA_WAIT: "Data wait",
        names.JOB_SAMPLES: "Samples/s",
    }
    for family, title in per_job.items():
        yield chart(family, _selected(family, _OF_JOB), "{{job_name}}", title=title)


def _findings() -> Iterator[Panel]:
    yield Panel(
        title="Current findings",
        help=names.FINDING_HEADLINE.help,
        queries=(Query(expr=_selected(names.FINDING_HEADLINE, _OF_JOB), legend="Headline"),),
        kind="table",
        width=_WIDTH,
        height=9,
        columns=(
            ("instance", "Host"),
            ("severity", "Severity"),
            ("subject", "Subject"),
            ("gpus", "GPUs"),
            ("headline", "Headline"),
            ("rule", "Rule"),
        ),
    )
    found = _selected(names.FINDING, _OF_JOB)
    yield Panel(
        title="Findings by severity",
        help=names.FINDING.help,
        queries=(Query(expr=f"count by (severity) ({found})", legend="{{severity}}"),),
        width=12,
    )
    yield chart(
        names.FINDING_LOST,
        _selected(names.FINDING_LOST, _OF_JOB),
        "{{subject}}: {{rule}}",
        title="Cost of findings",
        width=12,
    )


def _lost() -> Iterator[Panel]:
    lost = f"rate({_selected(names.LOST, _OF_JOB)}[{_INTERVAL}])"
    for what, label in (("cause", "rule"), ("job", "job_name"), ("host", "instance")):
        yield Panel(
            title=f"GPUs lost by {what}",
            help=f"{names.LOST.help}; as a number of GPUs",
            queries=(Query(expr=f"sum by ({label}) ({lost})", legend=f"{{{{{label}}}}}"),),
        )
    hours = f"sum by (rule, job_name) (increase({_selected(names.LOST, _OF_JOB)}[$__range])) / 3600"
    yield Panel(
        title="GPU hours lost",
        help="In the time range of the dashboard, by cause and job",
        queries=(Query(expr=hours, legend="GPU hours"),),
        kind="table",
        width=_WIDTH,
        columns=(("rule", "Rule"), ("job_name", "Job")),
    )


_ROWS = {"Hosts": _hosts, "GPUs": _gpus, "Jobs": _jobs, "Findings": _findings, "Lost time": _lost}


def panels() -> dict[str, tuple[Panel, ...]]:
    """The panels of each row."""
    return {row: tuple(make()) for row, make in _ROWS.items()}


VARIABLES = {
    "host": ("Host", f"label_values({names.GPUS.name}, instance)"),
    "job": ("Job", f"label_values({names.JOB_INFO.name}{{{_ON_HOST}}}, job_name)"),
}


def dashboard() -> str:
    """The dashboard as JSON, for Grafana's import dialog or its provisioning."""
    return json.dumps(
        {
            "title": TITLE,
            "uid": UID,
            "tags": ["gpu"],
            "schemaVersion": 39,
            "editable": True,
            "refresh": "30s",
            "time": {"from": "now-1h", "to": "now"},
            "templating": {"list": [_datasource(), *(_variable(name, *said) for name, said in VARIABLES.items())]},
            "panels": [*_placed()],
        },
        indent=2,
    )


def _datasource() -> dict[str, Any]:
    return {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}


def _variable(name: str, title: str, query: str) -> dict[str, Any]:
    return {
        "name": name,
        "label": title,
        "type": "query",
        "datasource": _SOURCE,
        "definition": query,
        "query": {"query": query, "refId": name},
        "refresh": 2,  # when the time range changes
        "includeAll": True,
        "multi": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
        "sort": 1,
    }


def _placed() -> Iterator[dict[str, Any]]:
    """Rows and panels with their places in the grid, from left to right."""
    top, number = 0, 0
    for row, made in panels().items():
        number += 1
        yield {"type": "row", "title": row, "id": number, "gridPos": {"x": 0, "y": top, "w": _WIDTH, "h": 1}}
        left, top, tallest = 0, top + 1, 0
        for panel in made:
            if left + panel.width > _WIDTH:
                left, top, tallest = 0, top + tallest, 0
            number += 1
            place = {"x": left, "y": top, "w": panel.width, "h": panel.height}
            yield {"id": number, "gridPos": place, **_drawn(panel)}
            left, tallest = left + panel.width, max(tallest, panel.height)
        top += tallest


def _drawn(panel: Panel) -> dict[str, Any]:
    table = panel.kind == "table"
    defaults: dict[str, Any] = {"unit": _UNITS.get(panel.unit, "short"), "min": 0}
    if panel.unit == "ratio":
        defaults["max"] = 1
    if panel.unit == "celsius":
        del defaults["min"]  # a margin may be negative
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.help,
        "datasource": _SOURCE,
        "fieldConfig": {"defaults": defaults, "overrides": [*_overrides(panel)]},
        "targets": [
            {
                "refId": chr(ord("A") + place),
                "datasource": _SOURCE,
                "expr": query.expr,
                "legendFormat": query.legend,
                "instant": panel.kind != "timeseries",
                "range": panel.kind == "timeseries",
                "format": "table" if table else "time_series",
            }
            for place, query in enumerate(panel.queries)
        ],
        **({"transformations": _columns(panel)} if table else {}),
    }


def _columns(panel: Panel) -> list[dict[str, Any]]:
    """Of a table: one line for each set of labels, and the columns that are shown."""
    several = len(panel.queries) > 1
    columns = dict(panel.columns)
    for place, query in enumerate(panel.queries):
        if query.legend not in columns.values():  # of a table of labels the value is 1
            columns[f"Value #{chr(ord('A') + place)}" if several else "Value"] = query.legend
    return [
        {"id": "merge", "options": {}},
        {"id": "filterFieldsByName", "options": {"include": {"names": [*columns]}}},
        {
            "id": "organize",
            "options": {"renameByName": columns, "indexByName": {name: place for place, name in enumerate(columns)}},
        },
    ]


def _overrides(panel: Panel) -> Iterator[dict[str, Any]]:
    for column, unit in panel.units:
        yield {
            "matcher": {"id": "byName", "options": column},
            "properties": [{"id": "unit", "value": _UNITS[unit]}],
        }
    if any(query.legend == "Worst finding" for query in panel.queries):
        options = {value: {"text": text, "color": color} for value, (text, color) in _SEVERITIES.items()}
        yield {
            "matcher": {"id": "byName", "options": "Worst finding"},
            "properties": [{"id": "mappings", "value": [{"type": "value", "options": options}]}],
        }
